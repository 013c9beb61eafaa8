#include <cmath>

#include "contract/samples.h"

// Samples of the functions of one element and of activations.
namespace everyo_test::contract {
namespace {

struct Range {
  double low = -2, high = 2;
};

// `each`: operations an element; a function of the C library counts as the ten or so that it takes.
template <class Op, class F>
Samples unary(const char* name, double each, Op op, F f, Range range = {}, const Tolerance& tolerance = {}) {
  const auto of = [=](const eo::Shape& shape) {
    return Case{.inputs = {{.shape = shape, .low = range.low, .high = range.high}},
                .run = [op](Tensors in) { return op(in[0]); },
                .reference = map(f),
                .flops = each * static_cast<double>(shape.elements()),
                .tolerance = tolerance};
  };
  return {.op = name,
          .at =
              [of](std::int64_t n) {
                return of({n, 5});
              },
          .cases = {of({}), of({2, 3, 4}), of({67}), of({64})},
          .refusals = {{.run = [op] { op(eo::Tensor()); }, .text = {"undefined"}, .kind = eo::ErrorKind::state}}};
}

}  // namespace

void add_unary_samples(SampleList& list) {
  using eo::Tensor;
  list.push_back(unary(
      "scale", 2, [](const Tensor& x) { return eo::scale(x, -1.5, 0.25); }, [](double x) { return -1.5 * x + 0.25; }));
  list.push_back(unary(
      "reciprocal", 1, [](const Tensor& x) { return eo::reciprocal(x, 3); }, [](double x) { return 3 / x; }, {0.5, 4}));
  list.push_back(unary("negative", 1, eo::negative, [](double x) { return -x; }));
  list.back().refusals.push_back({.run = [] { eo::negative(Tensor::ones({2}, eo::boolean)); },
                                  .text = {"negative", "bool"},
                                  .kind = eo::ErrorKind::dtype});
  list.push_back(unary("exp", 10, eo::exp, [](double x) { return std::exp(x); }, {-3, 3}));
  list.push_back(unary("log", 10, eo::log, [](double x) { return std::log(x); }, {0.1, 4}));
  list.push_back(unary("sqrt", 1, eo::sqrt, [](double x) { return std::sqrt(x); }, {0.1, 4}));
  list.push_back(unary("abs", 1, eo::abs, [](double x) { return std::abs(x); }));
  list.push_back(unary(
      "clip", 1, [](const Tensor& x) { return eo::clip(x, -1, 0.75); },
      [](double x) { return std::min(std::max(x, -1.0), 0.75); }));
  list.back().refusals.push_back(
      {.run = [] { eo::clip(Tensor::ones({2}), 1, 0); }, .text = {"clip", "low <= high", "1", "0"}});
  list.push_back(unary(
      "power", 10, [](const Tensor& x) { return eo::power(x, 2.5); }, [](double x) { return std::pow(x, 2.5); },
      {0.2, 2}));
  for (const double exponent : {0.0, 1.0, 2.0, 3.0, -1.0, -2.0})
    list.back().cases.push_back({.name = "power " + std::to_string(exponent),
                                 .inputs = {{.shape = {3, 7}}},
                                 .run = [exponent](Tensors in) { return eo::power(in[0], exponent); },
                                 .reference = map([exponent](double x) { return std::pow(x, exponent); }),
                                 // x^-2 of the draw nearest to 0, 0.06, has a gradient of 1e4 and third derivative 1e7.
                                 .tolerance = {.gradient = 1e-5}});

  const auto sigmoid = [](double x) { return 1 / (1 + std::exp(-x)); };
  list.push_back(unary("relu", 1, eo::relu, [](double x) { return std::max(x, 0.0); }));
  list.push_back(unary("sigmoid", 12, eo::sigmoid, sigmoid, {-6, 6},
                       // y (1 - y) from the rounded y: near 1 a unit of y is all of 1 - y.
                       {.half_gradient = 4}));
  list.push_back(unary("tanh", 12, eo::tanh, [](double x) { return std::tanh(x); }, {-3, 3}));
  list.push_back(
      unary("gelu", 20, eo::gelu, [](double x) { return 0.5 * x * (1 + std::erf(x / std::sqrt(2.0))); }, {-3, 3}));
  list.push_back(unary("silu", 12, eo::silu, [sigmoid](double x) { return x * sigmoid(x); }, {-4, 4}));
}

}  // namespace everyo_test::contract
