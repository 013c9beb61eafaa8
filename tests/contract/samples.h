#pragma once
#include <cmath>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "everyo/ops.h"

// What the contract suite must be told of an op. The suite walks everyo::ops() and holds each op to every law of
// laws.h; an op without samples fails by its name. To add those of a new op, append one Samples to the family's file:
//
//   list.push_back({.op = "square",                                    // the record's name
//                   .at =                                              // a case for a batch of n: 0, 1, 2, 3, 7, 20011
//                   [](std::int64_t n) {
//                     return Case{.inputs = {{.shape = {n, 5}}},       // floating, drawn from [-2, 2]
//                                 .run = [](Tensors in) { return square(in[0]); },
//                                 .reference = map([](double x) { return x * x; }),
//                                 .flops = 5.0 * n};
//                   },
//                   .refusals = {{.run = [] { square({}); }, .text = "undefined"}}});
//
// A case calls the public function; the suite finds the op's own calls in a trace of it. Further cases (other ranks,
// axes, attributes) go into `cases`. A new family is a new file with a function declared below and called in
// samples.cpp.
namespace everyo_test::contract {
namespace eo = everyo;

using Tensors = std::span<const eo::Tensor>;

/// One tensor in float64: what references read and write.
struct Values {
  eo::Shape shape;
  std::vector<double> v;
};
using Reference = std::function<std::vector<double>(std::span<const Values> in)>;

/// An operand: its shape, and how it is filled. Draws are spread evenly over [low, high] in a fixed random order, so
/// that no two are equal and none lies at 0 or at another corner; draws of integer and bool dtypes may repeat.
struct Input {
  eo::Shape shape;
  double low = -2, high = 2;         ///< integers: both included
  std::optional<eo::DType> dtype{};  ///< unset: each floating dtype in turn, with a gradient
  std::vector<double> values{};      ///< instead of draws, row-major
  bool gradient = true;              ///< false: a floating operand that the op gives no gradient
};
/// Class numbers 0..classes-1.
inline Input labels(const eo::Shape& shape, std::int64_t classes, eo::DType dtype = eo::int64) {
  return {.shape = shape, .low = 0, .high = static_cast<double>(classes - 1), .dtype = dtype};
}
inline Input bools(const eo::Shape& shape) { return {.shape = shape, .low = 0, .high = 1, .dtype = eo::boolean}; }

/// How near the op must come, where the defaults do not fit; say why beside it.
struct Tolerance {
  double float64 = 1e-12;    ///< relative to max(1, |value|)
  double float32 = 2e-6;     ///< the same
  double half = 1;           ///< units in the last place, from the reference rounded once; float32's beside it
  double half_largest = 0;   ///< further ones of the largest element, for fused ops that round in between
  double gradient = 1e-7;    ///< float64 against central differences, relative to max(1, |value|)
  double step = 1e-5;        ///< of the differences
  double half_gradient = 2;  ///< half units in the last place of the gradient's largest element
  double composed = 0;       ///< units in the last place between fused and composed; 0: the same bits
};

struct Case {
  std::string name{};
  std::vector<Input> inputs;
  std::function<eo::Tensor(Tensors)> run;
  Reference reference;
  /// Operations counted by hand: multiplications, additions, comparisons, each a 1.
  std::optional<double> flops{};
  /// Bytes moved in float32; unset: every operand read once, every output written once.
  std::optional<double> bytes{};
  Tolerance tolerance{};
};

/// A call that must throw: what, and words of its message.
struct Refusal {
  std::function<void()> run;
  std::vector<std::string> text;
  eo::ErrorKind kind = eo::ErrorKind::shape;
};

struct Samples {
  std::string op;
  std::function<Case(std::int64_t n)> at;
  std::int64_t smallest = 0;  ///< batch that `at` takes; above 0 when the op refuses an empty one (then in `refusals`)
  std::vector<Case> cases{};
  std::vector<Refusal> refusals{};
  /// `at` for the laws that need several blocks of work.
  std::int64_t large = 20011;
};

using SampleList = std::vector<Samples>;
void add_arithmetic_samples(SampleList& list);
void add_unary_samples(SampleList& list);
void add_matmul_samples(SampleList& list);
void add_pool_samples(SampleList& list);
void add_reduce_samples(SampleList& list);
void add_loss_samples(SampleList& list);
void add_norm_samples(SampleList& list);
void add_shape_samples(SampleList& list);
void add_image_samples(SampleList& list);
/// All families.
const SampleList& all_samples();
const Samples* samples_of(std::string_view op);

// ---- references --------------------------------------------------------------------------------------------------

/// f of each element of the first operand.
template <class F>
Reference map(F f) {
  return [f](std::span<const Values> in) {
    std::vector<double> out;
    out.reserve(in[0].v.size());
    for (const double x : in[0].v) out.push_back(static_cast<double>(f(x)));
    return out;
  };
}
/// The values repeated to `shape`, as NumPy broadcasts.
std::vector<double> broadcast(const Values& values, const eo::Shape& shape);
eo::Shape broadcast_shapes(std::span<const Values> in);
/// f of the elements of all operands, broadcast.
template <class F>
Reference zip(F f) {
  return [f](std::span<const Values> in) {
    const eo::Shape shape = broadcast_shapes(in);
    std::vector<std::vector<double>> operands;
    for (const Values& each : in) operands.push_back(broadcast(each, shape));
    std::vector<double> out(static_cast<std::size_t>(shape.elements()));
    for (std::size_t i = 0; i < out.size(); ++i) {
      if constexpr (std::is_invocable_v<F, double, double, double>)
        out[i] = static_cast<double>(f(operands[0][i], operands[1][i], operands[2][i]));
      else
        out[i] = static_cast<double>(f(operands[0][i], operands[1][i]));
    }
    return out;
  };
}

}  // namespace everyo_test::contract
