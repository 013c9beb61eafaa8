#include <algorithm>
#include <cmath>

#include "contract/samples.h"

// Samples of the matrix products. M x K x N a product, D and K the widths of a layer, N its batch.
namespace everyo_test::contract {
namespace {

// a [.., M, K] b [.., K, N] in float64, leading dimensions broadcast.
Values product(const Values& a, const Values& b) {
  const std::int64_t m = a.shape.rank() > 1 ? a.shape[-2] : 1, k = a.shape[-1],
                     n = b.shape.rank() > 1 ? b.shape[-1] : 1;
  std::vector<Values> leading(2);
  for (std::int64_t d = 0; d + 2 < a.shape.rank(); ++d) leading[0].shape.push_back(a.shape[d]);
  for (std::int64_t d = 0; d + 2 < b.shape.rank(); ++d) leading[1].shape.push_back(b.shape[d]);
  Values out{broadcast_shapes(leading), {}};
  // Which matrix of a and of b each matrix of the result is made of.
  std::vector<std::vector<double>> from;
  for (Values& l : leading) {
    for (std::int64_t i = 0; i < l.shape.elements(); ++i) l.v.push_back(static_cast<double>(i));
    from.push_back(broadcast(l, out.shape));
  }
  const std::int64_t batches = out.shape.elements();
  for (std::int64_t t = 0; t < batches; ++t) {
    const auto at = static_cast<std::size_t>(t);
    const double* const left = a.v.data() + static_cast<std::int64_t>(from[0][at]) * m * k;
    const double* const right = b.v.data() + static_cast<std::int64_t>(from[1][at]) * k * n;
    for (std::int64_t i = 0; i < m; ++i)
      for (std::int64_t j = 0; j < n; ++j) {
        double sum = 0;
        for (std::int64_t p = 0; p < k; ++p) sum += left[i * k + p] * right[p * n + j];
        out.v.push_back(sum);
      }
  }
  return out;
}

Case matmul_case(const eo::Shape& a, const eo::Shape& b) {
  const double columns = b.rank() > 1 ? static_cast<double>(b[-1]) : 1;
  std::vector<Values> leading(2);
  for (std::int64_t d = 0; d + 2 < a.rank(); ++d) leading[0].shape.push_back(a[d]);
  for (std::int64_t d = 0; d + 2 < b.rank(); ++d) leading[1].shape.push_back(b[d]);
  const double rows =
      static_cast<double>(broadcast_shapes(leading).elements()) * (a.rank() > 1 ? static_cast<double>(a[-2]) : 1);
  return {.inputs = {{.shape = a}, {.shape = b}},
          .run = [](Tensors in) { return eo::matmul(in[0], in[1]); },
          .reference = [](std::span<const Values> in) { return product(in[0], in[1]).v; },
          .flops = 2 * rows * columns * static_cast<double>(a[-1]),
          // A sum of 65 products of up to 4.
          .tolerance = {.float32 = 2e-5}};
}

double activated(double z, eo::Activation activation) {
  switch (activation) {
    case eo::Activation::relu: return std::max(z, 0.0);
    case eo::Activation::sigmoid: return 1 / (1 + std::exp(-z));
    case eo::Activation::tanh: return std::tanh(z);
    case eo::Activation::gelu: return 0.5 * z * (1 + std::erf(z / std::sqrt(2.0)));
    case eo::Activation::silu: return z / (1 + std::exp(-z));
    case eo::Activation::none: break;
  }
  return z;
}

Case linear_case(const eo::Shape& x, std::int64_t k, bool bias, eo::Activation activation) {
  const std::int64_t d = x[-1];
  Case c{.inputs = {{.shape = x}, {.shape = {d, k}, .low = -1, .high = 1}},
         .run = [=](Tensors in) { return eo::linear(in[0], in[1], bias ? in[2] : eo::Tensor(), activation); },
         .reference =
             [=](std::span<const Values> in) {
               std::vector<double> y = product(in[0], in[1]).v;
               for (std::size_t i = 0; i < y.size(); ++i)
                 y[i] = activated(y[i] + (bias ? in[2].v[i % static_cast<std::size_t>(k)] : 0), activation);
               return y;
             },
         // Halves round after the product and after the bias, as the separate ops do; gradients start from those.
         .tolerance = {.float32 = 2e-5, .half_largest = 2, .half_gradient = 6}};
  if (bias) c.inputs.push_back({.shape = {k}, .low = -1, .high = 1});
  const bool fused = activation != eo::Activation::gelu && activation != eo::Activation::silu;
  const double steps = (bias ? 1 : 0) + (fused && activation != eo::Activation::none ? 1 : 0);
  const auto outputs = static_cast<double>(x.elements() / std::max<std::int64_t>(d, 1) * k);
  if (d > 0) c.flops = outputs * (2 * static_cast<double>(d) + steps);
  return c;
}

std::vector<Refusal> linear_refusals(eo::Activation activation) {
  using eo::Tensor;
  return {{.run =
               [=] {
                 eo::linear(Tensor::ones({2, 3}), Tensor::ones({4, 5}), {}, activation);
               },
           .text = {"linear", "must be 4", "(2, 3)", "(4, 5)"}},
          {.run =
               [=] {
                 eo::linear(Tensor::ones({2, 4}), Tensor::ones({4, 5}), Tensor::ones({4}), activation);
               },
           .text = {"linear", "bias", "(4,)", "(5,)"}},
          {.run =
               [=] {
                 eo::linear(Tensor::ones({2, 4}), Tensor::ones({4}), {}, activation);
               },
           .text = {"linear", "two dimensions", "(4,)"}},
          {.run =
               [=] {
                 eo::linear({}, Tensor::ones({4, 5}), {}, activation);
               },
           .text = {"undefined"},
           .kind = eo::ErrorKind::state}};
}

}  // namespace

void add_matmul_samples(SampleList& list) {
  using eo::Activation;
  using eo::Tensor;
  list.push_back({.op = "matmul", .at = [](std::int64_t n) { return matmul_case({n, 5}, {5, 4}); }});
  list.back().cases = {matmul_case({5}, {5}),
                       matmul_case({5}, {5, 4}),
                       matmul_case({3, 5}, {5}),
                       matmul_case({2, 3, 4}, {2, 4, 5}),
                       matmul_case({2, 1, 3, 4}, {3, 4, 2}),
                       matmul_case({3, 4}, {2, 4, 5}),
                       matmul_case({2, 3, 4}, {4, 5}),
                       matmul_case({4}, {2, 4, 5}),
                       matmul_case({2, 3, 4}, {4}),
                       matmul_case({2, 0}, {0, 3}),
                       matmul_case({3, 1, 4}, {1, 4, 1}),
                       matmul_case({33, 65}, {65, 17}),
                       matmul_case({130, 70}, {70, 129})};
  list.back().refusals = {
      {.run =
           [] {
             eo::matmul(Tensor::ones({2, 3}), Tensor::ones({4, 5}));
           },
       .text = {"matmul", "inner dimensions", "(2, 3)", "(4, 5)"}},
      {.run =
           [] {
             eo::matmul(Tensor::ones({}), Tensor::ones({4, 5}));
           },
       .text = {"matmul", "at least one dimension", "()"}},
      {.run =
           [] {
             eo::matmul(Tensor::ones({2, 3, 4}), Tensor::ones({3, 4, 5}));
           },
       .text = {"matmul", "broadcast", "(2, 3, 4)", "(3, 4, 5)"}},
      {.run = [] { eo::matmul(Tensor::ones({2}, eo::int64), Tensor::ones({2}, eo::int64)); },
       .text = {"matmul", "int64", "floating"},
       .kind = eo::ErrorKind::dtype},
      {.run = [] { eo::matmul(Tensor::ones({2}), {}); }, .text = {"undefined"}, .kind = eo::ErrorKind::state}};

  list.push_back({.op = "linear", .at = [](std::int64_t n) { return linear_case({n, 5}, 4, true, Activation::none); }});
  list.back().cases = {
      linear_case({3, 5}, 4, false, Activation::none),     linear_case({5}, 3, true, Activation::none),
      linear_case({2, 3, 4}, 5, true, Activation::none),   linear_case({33, 65}, 17, true, Activation::none),
      linear_case({70, 130}, 129, true, Activation::none), linear_case({3, 5}, 4, true, Activation::gelu),
      linear_case({3, 5}, 4, true, Activation::silu)};
  list.back().refusals = linear_refusals(Activation::none);

  list.push_back({.op = "linear_activation", .at = [](std::int64_t n) {
                    return linear_case({n, 5}, 4, true, Activation::relu);
                  }});
  for (const Activation activation : {Activation::relu, Activation::sigmoid, Activation::tanh})
    for (const bool bias : {false, true}) list.back().cases.push_back(linear_case({3, 5}, 4, bias, activation));
  list.back().cases.push_back(linear_case({2, 3, 4}, 5, true, Activation::relu));
  list.back().cases.push_back(linear_case({70, 130}, 129, true, Activation::relu));
  list.back().refusals = linear_refusals(Activation::relu);
}

}  // namespace everyo_test::contract
