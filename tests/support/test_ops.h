#pragma once
#include <algorithm>
#include <vector>

#include "everyo/op.h"

// Small user-defined ops for the tests of the tape: they stand outside the library, as a user's own would.
namespace everyo_test {
namespace eo = everyo;

/// y = x * x
inline constexpr eo::Record<> square_record{
    .name = "test_square",
    .policy = eo::CastPolicy::follow,
    .saves = {.inputs = {eo::for_grad_of(0)}},
    .infer = [](const eo::Inputs& in, const eo::NoAttrs&) -> eo::Specs { return in[0].spec(); },
    .forward =
        [](const eo::Call& c, const eo::NoAttrs&) {
          std::ranges::transform(c.in[0].data<float>(), c.out[0].data<float>().begin(), [](float x) { return x * x; });
        },
    .backward =
        [](eo::Backward& b, const eo::NoAttrs&) {
          const eo::Tensor d = eo::Tensor::empty(b.input(0).spec());
          std::ranges::transform(b.input(0).data<float>(), b.grad().data<float>(), d.data<float>().begin(),
                                 [](float x, float g) { return 2 * x * g; });
          b.give(0, d);
        },
    .cost = [](const eo::Inputs& in, const eo::Specs&, const eo::NoAttrs&) -> eo::Cost {
      return {.flops = static_cast<double>(in[0].size()), .bytes = 8.0 * static_cast<double>(in[0].size())};
    },
    .onnx = [](eo::onnx::Graph& g, const eo::onnx::Values& v, const eo::NoAttrs&) -> eo::onnx::Values {
      return {g.node("Mul", {v[0], v[0]}, v[0].spec)};
    },
    .composed = eo::no("primitive")};

struct ScaleAttrs {
  float by;
};
/// y = by * x; saves nothing.
inline constexpr eo::Record<ScaleAttrs> scale_record{
    .name = "test_scale",
    .policy = eo::CastPolicy::follow,
    .infer = [](const eo::Inputs& in, const ScaleAttrs&) -> eo::Specs { return in[0].spec(); },
    .forward =
        [](const eo::Call& c, const ScaleAttrs& a) {
          const float by = a.by;
          std::ranges::transform(c.in[0].data<float>(), c.out[0].data<float>().begin(),
                                 [by](float x) { return x * by; });
        },
    .backward =
        [](eo::Backward& b, const ScaleAttrs& a) {
          const eo::Tensor d = eo::Tensor::empty(b.grad().spec());
          const float by = a.by;
          std::ranges::transform(b.grad().data<float>(), d.data<float>().begin(), [by](float g) { return g * by; });
          b.give(0, d);
        },
    .cost = [](const eo::Inputs& in, const eo::Specs&, const ScaleAttrs&) -> eo::Cost {
      return {.flops = static_cast<double>(in[0].size())};
    },
    .onnx = eo::no("a test op"),
    .composed = eo::no("primitive")};

/// y = a + b + ..., any number of inputs of one shape; gradients go straight into leaves where they may.
inline constexpr eo::Record<> add_all_record{
    .name = "test_add_all",
    .policy = eo::CastPolicy::promote,
    .infer = [](const eo::Inputs& in, const eo::NoAttrs&) -> eo::Specs { return in[0].spec(); },
    .forward =
        [](const eo::Call& c, const eo::NoAttrs&) {
          const auto out = c.out[0].data<float>();
          std::ranges::copy(c.in[0].data<float>(), out.begin());
          for (std::size_t k = 1; k < c.in.size(); ++k) {
            const auto x = c.in[k].data<float>();
            for (std::size_t i = 0; i < out.size(); ++i) out[i] += x[i];
          }
        },
    .backward =
        [](eo::Backward& b, const eo::NoAttrs&) {
          for (std::size_t k = 0; k < b.inputs(); ++k) {
            if (!b.needs(k)) continue;
            if (const eo::Target t = b.target(k)) {
              const auto to = t.memory.data<float>(), g = b.grad().data<float>();
              for (std::size_t i = 0; i < to.size(); ++i) to[i] = t.add ? to[i] + g[i] : g[i];
              b.wrote(k);
            } else {
              b.give(k, b.grad());
            }
          }
        },
    .cost = [](const eo::Inputs& in, const eo::Specs&, const eo::NoAttrs&) -> eo::Cost {
      return {.flops = static_cast<double>(in[0].size())};
    },
    .onnx = eo::no("a test op"),
    .composed = eo::no("primitive")};

/// Cuts a vector [n] into n scalars: as many outputs as elements.
inline constexpr eo::Record<> unbind_record{
    .name = "test_unbind",
    .policy = eo::CastPolicy::follow,
    .infer = [](const eo::Inputs& in, const eo::NoAttrs&) -> eo::Specs {
      return std::span<const eo::Spec>(
          std::vector<eo::Spec>(static_cast<std::size_t>(in[0].size()), {in[0].dtype(), {}}));
    },
    .forward =
        [](const eo::Call& c, const eo::NoAttrs&) {
          for (std::size_t i = 0; i < c.out.size(); ++i) c.out[i].data<float>()[0] = c.in[0].data<float>()[i];
        },
    .backward =
        [](eo::Backward& b, const eo::NoAttrs&) {
          const eo::Tensor d = eo::Tensor::zeros(b.input_spec(0).shape);
          for (std::size_t i = 0; i < d.data<float>().size(); ++i)
            if (b.grad(i).defined()) d.data<float>()[i] = b.grad(i).data<float>()[0];
          b.give(0, d);
        },
    .cost = [](const eo::Inputs&, const eo::Specs&, const eo::NoAttrs&) { return eo::Cost{}; },
    .onnx = eo::no("a test op"),
    .composed = eo::no("primitive"),
    .specs = true};

inline eo::Tensor square(const eo::Tensor& x) { return eo::apply<square_record>({}, x); }
inline eo::Tensor scaled(const eo::Tensor& x, float by) { return eo::apply<scale_record>({by}, x); }
inline eo::Tensor plus(const eo::Tensor& a, const eo::Tensor& b) { return eo::apply<add_all_record>({}, a, b); }
inline eo::Tensor leaf(std::initializer_list<float> values) { return eo::Tensor::from(values).set_requires_grad(); }

}  // namespace everyo_test
