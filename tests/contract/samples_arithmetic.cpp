#include <algorithm>
#include <cmath>

#include "contract/samples.h"
#include "everyo/random.h"

// Samples of arithmetic, comparison, where, cast and dropout.
namespace everyo_test::contract {
namespace {

using Function2 = eo::Tensor (*)(const eo::Tensor&, const eo::Tensor&);

// Both operands of one shape, and each broadcast over the other.
template <class F>
Samples binary(const char* name, Function2 op, F f, const Input& b = {.shape = {}}) {
  const auto of = [=](const eo::Shape& left, const eo::Shape& right) {
    Input second = b;
    second.shape = right;
    Case c{.inputs = {{.shape = left}, second},
           .run = [op](Tensors in) { return op(in[0], in[1]); },
           .reference = zip(f),
           // A broadcast operand's gradient sums rounded terms: a unit of each, and one of the sum.
           .tolerance = {.half_gradient = 4}};
    std::vector<Values> shapes{{left, {}}, {right, {}}};
    c.flops = static_cast<double>(broadcast_shapes(shapes).elements());
    return c;
  };
  Samples samples{.op = name, .at = [of](std::int64_t n) { return of({n, 5}, {n, 5}); }};
  samples.cases = {of({3, 4}, {4}),    of({4}, {3, 4}),    of({3, 1}, {1, 5}),  of({2, 1, 3}, {4, 1}),
                   of({}, {2, 2}),     of({}, {}),         of({0, 3}, {3}),     of({33}, {1}),
                   of({1, 1, 6}, {6}), of({2, 3, 1}, {1}), of({17, 9}, {17, 1})};
  samples.refusals = {
      {.run =
           [op] {
             op(eo::Tensor::ones({2, 3}), eo::Tensor::ones({2}));
           },
       .text = {name, "broadcast", "(2, 3)", "(2,)"}},
      {.run = [op] { op(eo::Tensor::ones({2}), {}); }, .text = {"undefined"}, .kind = eo::ErrorKind::state}};
  return samples;
}

template <class F>
Samples comparison(const char* name, Function2 op, F f) {
  Samples samples = binary(name, op, [f](double a, double b) { return f(a, b) ? 1.0 : 0.0; });
  samples.cases.push_back({.name = "of integers, some equal",
                           .inputs = {labels({40}, 3), labels({40}, 3)},
                           .run = [op](Tensors in) { return op(in[0], in[1]); },
                           .reference = zip([f](double a, double b) { return f(a, b) ? 1.0 : 0.0; })});
  return samples;
}

Case where_case(const eo::Shape& condition, const eo::Shape& a, const eo::Shape& b) {
  const std::vector<Values> shapes{{condition, {}}, {a, {}}, {b, {}}};
  return {.inputs = {bools(condition), {.shape = a}, {.shape = b}},
          .run = [](Tensors in) { return eo::where(in[0], in[1], in[2]); },
          .reference = zip([](double c, double x, double y) { return c != 0 ? x : y; }),
          .flops = static_cast<double>(broadcast_shapes(shapes).elements())};
}

Case cast_case(const eo::Shape& shape, eo::DType to) {
  return {.name = "to " + std::string(eo::name_of(to)),
          .inputs = {{.shape = shape, .low = -3, .high = 3, .gradient = eo::is_floating(to)}},
          .run = [to](Tensors in) { return eo::cast(in[0], to); },
          .reference = map([to](double x) {
            if (to == eo::boolean) return x != 0 ? 1.0 : 0.0;
            if (to == eo::float16) return static_cast<double>(eo::to_float(eo::narrow<eo::Float16>(x)));
            if (to == eo::bfloat16) return static_cast<double>(eo::to_float(eo::narrow<eo::BFloat16>(x)));
            return eo::is_floating(to) ? x : std::trunc(x);
          }),
          // A bfloat16 near 3 is rounded by up to 0.008, so differences take a long step.
          .tolerance = {.float64 = to == eo::float32 ? 1e-7 : 0, .gradient = 0.05, .step = 0.5}};
}

// dropout draws by the element's index: the reference draws the same.
std::vector<double> dropped(std::span<const Values> in, double p) {
  const eo::KeyedGenerator draws(eo::DrawKey::here());
  std::vector<double> out;
  for (std::size_t i = 0; i < in[0].v.size(); ++i) {
    const bool kept = static_cast<double>(draws.uniform(i)) >= p;
    out.push_back(kept ? in[0].v[i] / (1 - p) : 0);
  }
  return out;
}

}  // namespace

void add_arithmetic_samples(SampleList& list) {
  list.push_back(binary("add", eo::add, [](double a, double b) { return a + b; }));
  list.push_back(binary("subtract", eo::subtract, [](double a, double b) { return a - b; }));
  list.back().refusals.push_back(
      {.run = [] { eo::subtract(eo::Tensor::ones({2}, eo::boolean), eo::Tensor::ones({2}, eo::boolean)); },
       .text = {"subtract", "bool"},
       .kind = eo::ErrorKind::dtype});
  list.push_back(binary("multiply", eo::multiply, [](double a, double b) { return a * b; }));
  list.push_back(
      binary("divide", eo::divide, [](double a, double b) { return a / b; }, {.shape = {}, .low = 0.5, .high = 3}));
  list.push_back(binary("maximum", eo::maximum, [](double a, double b) { return std::max(a, b); }));
  list.push_back(binary("minimum", eo::minimum, [](double a, double b) { return std::min(a, b); }));

  list.push_back(comparison("equal", eo::equal, std::equal_to<>()));
  list.push_back(comparison("not_equal", eo::not_equal, std::not_equal_to<>()));
  list.push_back(comparison("less", eo::less, std::less<>()));
  list.push_back(comparison("less_equal", eo::less_equal, std::less_equal<>()));

  list.push_back({.op = "where", .at = [](std::int64_t n) { return where_case({n, 5}, {n, 5}, {n, 5}); }});
  list.back().cases = {where_case({4}, {3, 4}, {3, 1}), where_case({3, 1}, {1}, {2, 3, 4}), where_case({}, {6}, {})};
  list.back().refusals = {
      {.run = [] { eo::where(eo::Tensor::ones({2}), eo::Tensor::ones({2}), eo::Tensor::ones({2})); },
       .text = {"where", "bool"},
       .kind = eo::ErrorKind::dtype},
      {.run = [] { eo::where(eo::Tensor::ones({2}, eo::boolean), eo::Tensor::ones({3}), eo::Tensor::ones({3})); },
       .text = {"where", "broadcast", "(2,)", "(3,)"}}};

  list.push_back({.op = "cast", .at = [](std::int64_t n) {
                    // There and back, so that the result is in the operand's dtype, through one that holds it.
                    Case c{.inputs = {{.shape = {n, 6}}},
                           .run =
                               [](Tensors in) {
                                 const eo::DType own = in[0].dtype();
                                 return eo::cast(eo::cast(in[0], own == eo::float64 ? eo::float32 : eo::float64), own);
                               },
                           .reference = map([](double x) { return x; }),
                           .flops = 0,
                           .tolerance = {.float64 = 1e-7, .gradient = 1e-5, .step = 0.125}};  // through float32
                    return c;
                  }});
  for (const eo::DType to : {eo::float32, eo::float16, eo::bfloat16, eo::int64, eo::int32, eo::boolean})
    list.back().cases.push_back(cast_case({3, 11}, to));
  list.back().refusals = {
      {.run = [] { eo::cast({}, eo::float32); }, .text = {"undefined"}, .kind = eo::ErrorKind::state}};

  list.push_back({.op = "dropout", .at = [](std::int64_t n) {
                    return Case{.inputs = {{.shape = {n, 5}}},
                                .run = [](Tensors in) { return eo::dropout(in[0], 0.25); },
                                .reference = [](std::span<const Values> in) { return dropped(in, 0.25); },
                                .flops = 20.0 * 5 * static_cast<double>(n)};  // ten rounds of two products a draw
                  }});
  list.back().cases = {{.name = "half of a vector",
                        .inputs = {{.shape = {301}}},
                        .run = [](Tensors in) { return eo::dropout(in[0], 0.5); },
                        .reference = [](std::span<const Values> in) { return dropped(in, 0.5); }}};
  for (const double p : {-0.1, 1.0, std::nan("")})
    list.back().refusals.push_back({.run = [p] { eo::dropout(eo::Tensor::ones({2}), p); },
                                    .text = {"dropout", "[0, 1)"},
                                    .kind = eo::ErrorKind::value});
}

}  // namespace everyo_test::contract
