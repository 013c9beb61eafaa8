#pragma once
// A layer whose op is defined here, outside the library: what the tests of modules are made of.
#include <string>

#include "everyo/nn/module.h"
#include "everyo/op.h"

namespace everyo::testing_nn {

// y[n, k] = sum over d of x[n, d] w[d, k]: x [N, D], w [D, K], float32, plain loops.
inline constexpr Record<> product_record{
    .name = "product",
    .policy = CastPolicy::follow,
    .saves = {.inputs = {for_grad_of(1), for_grad_of(0)}},
    .infer = [](const Inputs& in, const NoAttrs&) -> Specs {
      return Spec{float32, {in[0].shape()[0], in[1].shape()[1]}};
    },
    .forward =
        [](const Call& call, const NoAttrs&) {
          const auto x = call.in[0].data<float>(), w = call.in[1].data<float>(), y = call.out[0].data<float>();
          const auto inner = static_cast<std::size_t>(call.in[1].shape()[0]);
          const auto width = static_cast<std::size_t>(call.in[1].shape()[1]);
          for (std::size_t i = 0; i < y.size(); ++i) {
            float sum = 0;
            for (std::size_t d = 0; d < inner; ++d) sum += x[i / width * inner + d] * w[d * width + i % width];
            y[i] = sum;
          }
        },
    .backward =
        [](Backward& b, const NoAttrs&) {
          const auto g = b.grad().data<float>();
          const auto width = static_cast<std::size_t>(b.grad().shape()[1]);
          const std::size_t rows = g.size() / width;
          if (b.needs(0)) {
            const auto w = b.input(1).data<float>();
            const std::size_t inner = w.size() / width;
            const Tensor dx = Tensor::zeros({b.grad().shape()[0], b.input(1).shape()[0]});
            for (std::size_t n = 0; n < rows; ++n)
              for (std::size_t d = 0; d < inner; ++d)
                for (std::size_t k = 0; k < width; ++k)
                  dx.data<float>()[n * inner + d] += g[n * width + k] * w[d * width + k];
            b.give(0, dx);
          }
          if (b.needs(1)) {
            const auto x = b.input(0).data<float>();
            const std::size_t inner = x.size() / rows;
            const Tensor dw = Tensor::zeros({b.input(0).shape()[1], b.grad().shape()[1]});
            for (std::size_t n = 0; n < rows; ++n)
              for (std::size_t d = 0; d < inner; ++d)
                for (std::size_t k = 0; k < width; ++k)
                  dw.data<float>()[d * width + k] += x[n * inner + d] * g[n * width + k];
            b.give(1, dw);
          }
        },
    .cost = [](const Inputs& in, const Specs& out,
               const NoAttrs&) { return Cost{.flops = 2. * static_cast<double>(in[0].size() * out[0].shape[-1])}; },
    .onnx = no("for tests"),
    .composed = no("primitive")};

// The sum of all elements, in order: x [..] -> [].
inline constexpr Record<> total_record{
    .name = "total",
    .policy = CastPolicy::follow,
    .infer = [](const Inputs&, const NoAttrs&) -> Specs {
      return Spec{float32, {}};
    },
    .forward =
        [](const Call& call, const NoAttrs&) {
          float sum = 0;
          for (const float v : call.in[0].data<float>()) sum += v;
          call.out[0].data<float>()[0] = sum;
        },
    .backward = [](Backward& b, const NoAttrs&) { b.give(0, Tensor::full(b.input_spec(0).shape, b.grad().item())); },
    .cost = [](const Inputs& in, const Specs&,
               const NoAttrs&) { return Cost{.flops = static_cast<double>(in[0].size())}; },
    .onnx = no("for tests"),
    .composed = no("primitive"),
    .specs = true};

inline Tensor product(const Tensor& x, const Tensor& w) { return apply<product_record>({}, x, w); }
inline Tensor total(const Tensor& x) { return apply<total_record>({}, x); }

struct Dense : Module<Dense> {
  Dense(std::int64_t in, std::int64_t out, std::uint64_t seed = 0)
      : weight({in, out}, {.initializer = "he_uniform", .seed = seed}) {}
  void visit(Visitor& v) { v("weight", weight); }
  [[nodiscard]] Tensor forward(const Tensor& x) const { return product(x, weight); }
  Parameter weight;
};

// In training, watches the mean of each column: x [N, K] -> x.
struct Watch : Module<Watch> {
  explicit Watch(std::int64_t width) : mean({width}, 0) {}
  void visit(Visitor& v) { v("mean", mean); }
  [[nodiscard]] Tensor forward(const Tensor& x) const {
    if (!training() || x.is_meta()) return x;
    const Tensor observed = Tensor::zeros(mean.tensor().shape());
    const auto to = observed.data<float>();
    const auto from = x.data<float>();
    for (std::size_t i = 0; i < from.size(); ++i) to[i % to.size()] += from[i] / static_cast<float>(x.shape()[0]);
    mean.post(observed, 0.5);
    return x;
  }
  Buffer mean;
};

struct Block : Module<Block> {
  Block(std::int64_t width, std::uint64_t seed) : up(width, 2 * width, seed), down(2 * width, width, seed + 1) {}
  void visit(Visitor& v) { v("up", up)("down", down)("watch", watch); }
  [[nodiscard]] Tensor forward(const Tensor& x) const {
    const Tensor y = down(up(x));
    return watch ? (*watch)(y) : y;
  }
  Dense up, down;
  std::optional<Watch> watch;
};

// stem and head share one weight.
struct Net : Module<Net> {
  Net() {
    for (std::uint64_t i = 0; i < 3; ++i) blocks.emplace_back(4, 10 * i + 10);
    blocks[0].watch.emplace(4);
    head.weight = stem.weight.tie();
  }
  void visit(Visitor& v) { v("stem", stem)("blocks", blocks)("head", head); }
  [[nodiscard]] Tensor forward(const Tensor& x) const {
    Tensor y = stem(x);
    for (const Block& block : blocks) y = block(y);
    return head(y);
  }
  Dense stem{4, 4, 1};
  std::vector<Block> blocks;
  Dense head{4, 4, 2};
};

/// x[i] = (i mod 7 - 3) / 4, exact in float32.
inline Tensor ramp(const Shape& shape) {
  const Tensor x = Tensor::empty(shape);
  const auto values = x.data<float>();
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = (static_cast<float>(i % 7) - 3) / 4;
  return x;
}

/// What `f` throws, as text; "" when it does not.
template <class F>
std::string error_of(F f) {
  try {
    f();
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

/// Bytes of a tensor, so that equality means the same bits.
inline std::string bits(const Tensor& t) { return {reinterpret_cast<const char*>(t.bytes()), t.spec().bytes()}; }

}  // namespace everyo::testing_nn
