#include "verify/deep_sigmoid.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "everyo/ops.h"
#include "everyo/precision.h"
#include "everyo/random.h"
#include "verify/casts.h"
#include "verify/topics.h"

namespace everyo::verify_room {
namespace {

constexpr std::int64_t rows = 32, inputs = 4, width = 16;
Tensor first_layer_gradients(int depth, DeepSigmoid::Loss loss = DeepSigmoid::Loss::mean) {
  const DeepSigmoid net(depth);
  net.backward({.loss = loss});
  return gradients_of(net.first_layer());
}

enum class Kind { zero, inf };
enum class Fault { none, scale_after_cast, scale_divides, wide_dtype, saturates, flushes_subnormals };

/// Gradients at a loss scale of 2^exponent, in float16.
Tensor scaled_in_half(const DeepSigmoid& net, Part part, int exponent, Fault fault) {
  const double factor = std::ldexp(1.0, exponent);
  net.backward({.factor = fault == Fault::scale_after_cast ? 1 : fault == Fault::scale_divides ? 1 / factor : factor});
  const Tensor gradients = gradients_of(part_of(net, part));
  switch (fault) {
    case Fault::wide_dtype: return cast(gradients, bfloat16);
    case Fault::saturates: return faulty_cast(gradients, float16, CastFault::saturates);
    case Fault::flushes_subnormals: return faulty_cast(gradients, float16, CastFault::flushes_subnormals);
    case Fault::scale_after_cast: return scale(cast(gradients, float16), std::min(factor, finfo(float16).max));
    case Fault::none:
    case Fault::scale_divides: break;
  }
  return cast(gradients, float16);
}

double count_infinite(const Tensor& x) {
  return static_cast<double>(std::ranges::count_if(x.to_vector(), [](double v) { return std::isinf(v); }));
}

/// The fraction of gradients that are zero or infinite in float16, at each scale.
std::vector<double> fractions(Part part, Kind kind, Fault fault) {
  const DeepSigmoid net(deep);
  std::vector<double> out;
  for (const int exponent : exponents) {
    const Tensor half = scaled_in_half(net, part, exponent, fault);
    const double count = kind == Kind::zero ? count_zeros(half) : count_infinite(half);
    out.push_back(count / static_cast<double>(half.size()));
  }
  return out;
}

void add_scale_table(std::vector<verify::Check>& checks, const Figures& figures) {
  struct Row {
    Part part;
    Kind kind;
    Fault fault;
    const char *figure, *what, *sabotage, *note;
  };
  constexpr std::array table{
      Row{Part::first, Kind::zero, Fault::scale_after_cast, "scale_first_zero", "first layer", "scaled after the cast",
          "a scale of 2^28 saves all of them"},
      Row{Part::first, Kind::inf, Fault::wide_dtype, "scale_first_inf", "first layer", "cast to bfloat16 instead",
          "too large a scale loses them at the other end"},
      Row{Part::last, Kind::zero, Fault::scale_divides, "scale_last_zero", "last layer",
          "the loss is divided by the scale", ""},
      Row{Part::last, Kind::inf, Fault::saturates, "scale_last_inf", "last layer", "the cast saturates at 65504",
          "the last layer overflows at 2^20, where the first still underflows: the scale is searched for"},
      Row{Part::all, Kind::zero, Fault::flushes_subnormals, "scale_all_zero", "all layers",
          "the cast flushes subnormals to zero", ""},
      Row{Part::all, Kind::inf, Fault::saturates, "scale_all_inf", "all layers", "the cast saturates at 65504", ""}};
  for (const Row& row : table)
    checks.push_back(
        {.requirement = "P3a",
         .what = std::string(row.what) + (row.kind == Kind::zero ? ": zero" : ": infinite") +
                 " part of the float32 gradients of the scaled loss, cast to float16",
         .figure = figures.at(row.figure),
         .measure =
             [row](bool sabotaged) { return fractions(row.part, row.kind, sabotaged ? row.fault : Fault::none); },
         .sabotage = row.sabotage,
         .note = row.note,
         .columns = scale_columns()});
}

}  // namespace

DeepSigmoid::DeepSigmoid(int depth) {
  std::int64_t fan_in = inputs;
  for (int layer = 0; layer <= depth; ++layer) {
    const std::int64_t fan_out = layer == depth ? 1 : width;
    const Tensor weight = Tensor::empty({fan_in, fan_out});
    const double bound = 1 / std::sqrt(static_cast<double>(fan_in));
    Generator(static_cast<std::uint64_t>(layer)).uniform(-bound, bound, weight.data<float>());
    parameters_.push_back(weight.set_requires_grad());
    parameters_.push_back(Tensor::zeros({fan_out}).set_requires_grad());
    fan_in = fan_out;
  }
  Generator generator(0);
  inputs_ = Tensor::empty({rows, inputs});
  generator.normal(0, 1, inputs_.data<float>());
  targets_ = Tensor::empty({rows, 1});
  generator.normal(0, 1, targets_.data<float>());
}

Tensor DeepSigmoid::predict(const Pass& pass) const {
  const auto rounded = [&](const Tensor& t) {
    return pass.secretly_in_float32 ? rounded_in_forward(t, pass.half.value_or(float16)) : t;
  };
  const auto layer = [&](const Tensor& x, std::size_t i) {  // x [32, fan in]
    return rounded(linear(rounded(x), rounded(parameters_[i]), rounded(parameters_[i + 1])));
  };
  Tensor x = inputs_;
  std::size_t i = 0;
  for (; i + 2 < parameters_.size(); i += 2) x = rounded(sigmoid(layer(x, i)));
  return layer(x, i);  // [32, 1]
}

Tensor DeepSigmoid::loss(const Pass& pass) const {
  std::optional<Autocast> low;
  if (pass.half && !pass.secretly_in_float32) low.emplace(*pass.half);
  return mse_loss(predict(pass), targets_, pass.loss == Loss::mean ? Reduction::mean : Reduction::sum);
}

void DeepSigmoid::backward(const Pass& pass) const {
  for (const Tensor& parameter : parameters_) parameter.zero_grad();
  scale(loss(pass), pass.factor).backward();
}

std::vector<std::string> scale_columns() {
  std::vector<std::string> names;
  for (const int exponent : exponents) names.push_back(fmt::format("2^{}", exponent));
  return names;
}

std::span<const Tensor> part_of(const DeepSigmoid& net, Part part) {
  switch (part) {
    case Part::first: return net.first_layer();
    case Part::last: return net.last_layer();
    case Part::all: break;
  }
  return net.parameters();
}

Tensor rounded_in_forward(const Tensor& x, DType half) {
  const Tensor detached = x.detach();
  return x + (cast(cast(detached, half), x.dtype()) - detached);  // the difference is exact, and so is the sum
}

double norm(const Tensor& x) {
  double sum = 0;
  for (const double v : x.to_vector()) sum += v * v;
  return std::sqrt(sum);
}

double count_zeros(const Tensor& x) { return static_cast<double>(std::ranges::count(x.to_vector(), 0.0)); }

Tensor gradients_of(std::span<const Tensor> parameters) {
  const NoGrad no_grad;
  std::vector<Tensor> parts;
  for (const Tensor& parameter : parameters) parts.push_back(flatten(parameter.grad()));
  return concatenate(parts);
}

void add_deep_sigmoid_checks(std::vector<verify::Check>& checks, const Figures& figures) {
  const auto add_norm = [&](int depth, const char* figure, const char* what, const char* note) {
    checks.push_back({.requirement = "P2",
                      .what = what,
                      .figure = figures.at(figure),
                      .measure =
                          [depth](bool sabotaged) {
                            const auto loss = sabotaged ? DeepSigmoid::Loss::sum : DeepSigmoid::Loss::mean;
                            return std::vector{norm(first_layer_gradients(depth, loss))};
                          },
                      .sabotage = "the loss is summed instead of averaged",
                      .note = note});
  };
  add_norm(deep, "deep_first_layer_norm", "12 sigmoid layers: norm of the first layer's gradients",
           "each sigmoid passes at most a quarter of a gradient on");
  checks.push_back({.requirement = "P2",
                    .what = "12 sigmoid layers: first-layer gradients that are zero in float32, of 80",
                    .figure = figures.at("deep_zero_in_float32"),
                    .measure =
                        [](bool sabotaged) {
                          const Tensor gradients = first_layer_gradients(deep);
                          return std::vector{
                              count_zeros(sabotaged ? cast(cast(gradients, float16), float32) : gradients)};
                        },
                    .sabotage = "gradients pass through float16"});
  checks.push_back(
      {.requirement = "P2",
       .what = "12 sigmoid layers: first-layer gradients that are zero in float16, of 80",
       .figure = figures.at("deep_zero_in_float16"),
       .measure =
           [](bool sabotaged) {
             return std::vector{count_zeros(cast(first_layer_gradients(deep), sabotaged ? bfloat16 : float16))};
           },
       .sabotage = "cast to bfloat16 instead",
       .note = "all lie below 3e-8, half of float16's smallest value: without scaling nothing would train"});
  add_norm(shallow, "shallow_first_layer_norm", "4 sigmoid layers: norm of the first layer's gradients",
           "eight sigmoids fewer: some ten million times as large");
  checks.push_back({.requirement = "P2",
                    .what = "4 sigmoid layers: first-layer gradients that are zero in float16, of 80",
                    .figure = figures.at("shallow_zero_in_float16"),
                    .measure =
                        [](bool sabotaged) {
                          const CastFault fault = sabotaged ? CastFault::flushes_subnormals : CastFault::none;
                          return std::vector{count_zeros(faulty_cast(first_layer_gradients(shallow), float16, fault))};
                        },
                    .sabotage = "the cast flushes subnormals to zero",
                    .note = "most are subnormal in float16: they survive, with few bits left"});
  add_scale_table(checks, figures);
}

}  // namespace everyo::verify_room
