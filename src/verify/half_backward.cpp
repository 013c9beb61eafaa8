#include <algorithm>
#include <cmath>

#include "everyo/ops.h"
#include "verify/deep_sigmoid.h"
#include "verify/topics.h"

// P3b and P12: the deep network with a backward that is truly in halves, as autocast makes it.
namespace everyo::verify_room {
namespace {

enum class Kind { zero, overflowed };

enum class Fault { none, secretly_in_float32, scale_divides };

/// The fraction of gradients that are zero, or infinite or NaN, at each scale: inf - inf and inf * 0 come soon after.
std::vector<double> fractions(Part part, Kind kind, Fault fault) {
  const DeepSigmoid net(deep);
  std::vector<double> out;
  for (const int exponent : exponents) {
    net.backward({.factor = std::ldexp(1.0, fault == Fault::scale_divides ? -exponent : exponent),
                  .half = float16,
                  .secretly_in_float32 = fault == Fault::secretly_in_float32});
    const std::vector<double> gradients = gradients_of(part_of(net, part)).to_vector();
    const auto count =
        std::ranges::count_if(gradients, [kind](double g) { return kind == Kind::zero ? g == 0 : !std::isfinite(g); });
    out.push_back(static_cast<double>(count) / static_cast<double>(gradients.size()));
  }
  return out;
}

Tensor first_layer_gradients(const DeepSigmoid::Pass& pass) {
  const DeepSigmoid net(deep);
  net.backward(pass);
  return gradients_of(net.first_layer());
}

}  // namespace

void add_half_backward_checks(Checks& checks, const Figures& figures) {
  struct Row {
    Part part;
    Kind kind;
    const char *figure, *whose, *note;
    Fault fault = Fault::secretly_in_float32;
  };
  for (const Row& row : {Row{Part::first, Kind::zero, "half_scale_first_zero", "first layer",
                             "more are lost than in P3a: what comes from the layers above was rounded, too"},
                         Row{Part::first, Kind::overflowed, "half_scale_first_lost", "first layer",
                             "one overflow above, and all below it are infinite or NaN: the window is narrow, so the "
                             "scale is searched for"},
                         Row{Part::last, Kind::zero, "half_scale_last_zero", "last layer", "", Fault::scale_divides},
                         Row{Part::last, Kind::overflowed, "half_scale_last_lost", "last layer", ""},
                         Row{Part::all, Kind::zero, "half_scale_all_zero", "all layers", ""},
                         Row{Part::all, Kind::overflowed, "half_scale_all_lost", "all layers", ""}})
    checks.push_back(
        {.requirement = "P3b",
         .what = std::string(row.whose) + (row.kind == Kind::zero ? ": zero" : ": infinite or NaN") +
                 " part of the gradients of a float16 backward",
         .figure = figures.at(row.figure),
         .measure =
             [row](bool sabotaged) { return fractions(row.part, row.kind, sabotaged ? row.fault : Fault::none); },
         .sabotage =
             row.fault == Fault::scale_divides ? "the loss is divided by the scale" : "backward is secretly in float32",
         .note = row.note,
         .columns = scale_columns()});
}

void add_bfloat16_checks(Checks& checks, const Figures& figures) {
  checks.push_back({.requirement = "P12",
                    .what = "first-layer gradients that are zero under bfloat16 autocast, without a scaler, of 80",
                    .figure = figures.at("bfloat16_zero"),
                    .measure =
                        [](bool sabotaged) {
                          return std::vector{
                              count_zeros(first_layer_gradients({.half = sabotaged ? float16 : bfloat16}))};
                        },
                    .sabotage = "autocast to float16 instead",
                    .note = "bfloat16 has float32's range, so that it needs no scaler"});
  checks.push_back({.requirement = "P12",
                    .what = "distance of those gradients from float32's, of their norm",
                    .figure = figures.at("bfloat16_distance"),
                    .measure =
                        [](bool sabotaged) {
                          const Tensor exact = first_layer_gradients({});
                          const Tensor low = first_layer_gradients({.half = sabotaged ? float16 : bfloat16});
                          return std::vector{norm(low - exact) / norm(exact)};
                        },
                    .sabotage = "autocast to float16 instead",
                    .note = "26 roundings to 8 bits forward and as many backward"});
}

}  // namespace everyo::verify_room
