#include "verify/deep_sigmoid.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "everyo/ops.h"
#include "everyo/random.h"
#include "verify/casts.h"
#include "verify/topics.h"

namespace everyo::verify_room {
namespace {

constexpr std::int64_t rows = 32, inputs = 4, width = 16;
constexpr int deep = 12, shallow = 4;  // hidden layers
/// Powers of two of the loss scale. tests/oracle/make_verify_reference.py has the same.
constexpr std::array exponents{0, 16, 20, 24, 28, 32, 36, 40, 44, 48, 52, 56};

double norm(const Tensor& x) {
  double sum = 0;
  for (const double v : x.to_vector()) sum += v * v;
  return std::sqrt(sum);
}

template <class F>
double count_if(const Tensor& x, F&& condition) {
  const std::vector<double> values = x.to_vector();
  return static_cast<double>(std::count_if(values.begin(), values.end(), condition));
}
double zeros(const Tensor& x) {
  return count_if(x, [](double v) { return v == 0; });
}

Tensor first_layer_gradients(int depth, DeepSigmoid::Loss loss = DeepSigmoid::Loss::mean) {
  const DeepSigmoid net(depth);
  net.backward(1, loss);
  return gradients_of(net.first_layer());
}

enum class Part { first, last, all };
enum class Kind { zero, inf };
enum class Fault { none, scale_after_cast, scale_divides, wide_dtype, saturates, flushes_subnormals };

/// Gradients at a loss scale of 2^exponent, in float16.
Tensor scaled_in_half(const DeepSigmoid& net, Part part, int exponent, Fault fault) {
  const double factor = std::ldexp(1.0, exponent);
  net.backward(fault == Fault::scale_after_cast ? 1 : fault == Fault::scale_divides ? 1 / factor : factor);
  const Tensor gradients = gradients_of(part == Part::first  ? net.first_layer()
                                        : part == Part::last ? net.last_layer()
                                                             : std::span(net.parameters()));
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

/// The fraction of gradients that are zero or infinite in float16, at each scale.
std::vector<double> fractions(Part part, Kind kind, Fault fault) {
  const DeepSigmoid net(deep);
  std::vector<double> out;
  for (const int exponent : exponents) {
    const Tensor half = scaled_in_half(net, part, exponent, fault);
    const double count = kind == Kind::zero ? zeros(half) : count_if(half, [](double v) { return std::isinf(v); });
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
                 " part of the gradients in float16 at loss scales 2^0, 2^16, 2^20, 2^24 … 2^56",
         .figure = figures.at(row.figure),
         .measure =
             [row](bool sabotaged) { return fractions(row.part, row.kind, sabotaged ? row.fault : Fault::none); },
         .sabotage = row.sabotage,
         .note = row.note});
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

void DeepSigmoid::backward(double factor, Loss loss) const {
  for (const Tensor& parameter : parameters_) parameter.zero_grad();
  Tensor x = inputs_;
  for (std::size_t i = 0; i + 2 < parameters_.size(); i += 2)
    x = sigmoid(linear(x, parameters_[i], parameters_[i + 1]));
  const Tensor prediction = linear(x, parameters_.end()[-2], parameters_.end()[-1]);  // [32, 1]
  scale(mse_loss(prediction, targets_, loss == Loss::mean ? Reduction::mean : Reduction::sum), factor).backward();
}

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
                          return std::vector{zeros(sabotaged ? cast(cast(gradients, float16), float32) : gradients)};
                        },
                    .sabotage = "gradients pass through float16"});
  checks.push_back(
      {.requirement = "P2",
       .what = "12 sigmoid layers: first-layer gradients that are zero in float16, of 80",
       .figure = figures.at("deep_zero_in_float16"),
       .measure =
           [](bool sabotaged) {
             return std::vector{zeros(cast(first_layer_gradients(deep), sabotaged ? bfloat16 : float16))};
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
                          return std::vector{zeros(faulty_cast(first_layer_gradients(shallow), float16, fault))};
                        },
                    .sabotage = "the cast flushes subnormals to zero",
                    .note = "most are subnormal in float16: they survive, with few bits left"});
  add_scale_table(checks, figures);
}

std::vector<verify::Check> precision_checks() {
  const Figures figures("precision");
  std::vector<verify::Check> checks;
  add_cast_checks(checks, figures);
  add_deep_sigmoid_checks(checks, figures);
  add_power_of_two_checks(checks, figures);
  return checks;
}

}  // namespace everyo::verify_room
