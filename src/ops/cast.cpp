#include "kernels/convert.h"
#include "ops/elementwise.h"
#include "ops/lowering.h"

// cast: x [..] of one dtype -> y [..] of another.
namespace everyo::inline v1 {
namespace {

struct CastAttrs {
  DType from, to;
  bool shared = false;  // of a parameter, for ops that only read it
};
Attributes describe(const CastAttrs& a) {
  return {{"from", std::string(name_of(a.from))}, {"to", std::string(name_of(a.to))}};
}

// y as a view of the kept cast of x, or kept itself.
void share_cast(const Tensor& x, DType to, const Tensor& y) {
  CastCache& cache = x.body()->leaf->cast;
  if (Ref<Storage> kept = cache.find(x, to)) {
    y.body()->storage = std::move(kept);
    return;
  }
  kernels::convert(x.dtype(), x.bytes(), to, y.bytes(), x.size());
  y.body()->storage->retag(MemoryCategory::parameter);  // made again for backward, too
  cache.keep(x, to, y.body()->storage);
}

// Reals outside of a byte's range become its ends here, and anything in ONNX.
onnx::Values lower_to(onnx::Graph& g, const onnx::Values& v, const CastAttrs& a) {
  onnx::Value x = v[0];
  if (a.to == uint8 && is_floating(x.spec.dtype)) {
    x = is_half(x.spec.dtype) ? lower_cast(g, x, float32) : x;
    const auto end = [&](double value) { return g.constant(Tensor::scalar(value, x.spec.dtype)); };
    x = g.node("Clip", {x, end(0), end(255)}, x.spec);
  }
  return {g.node("Cast", {x}, {a.to, x.spec.shape}, {{"to", onnx::data_type_of(a.to)}})};
}

constexpr Record<CastAttrs> cast_record{
    .name = "cast",
    .policy = CastPolicy::follow,
    .infer = [](const Inputs& in, const CastAttrs& a) -> Specs {
      return Spec{a.to, in[0].shape()};
    },
    .forward =
        [](const Call& c, const CastAttrs& a) {
          if (a.shared) return share_cast(c.in[0], a.to, c.out[0]);
          kernels::convert(c.in[0].dtype(), c.in[0].bytes(), a.to, c.out[0].bytes(), c.in[0].size());
        },
    .backward =
        [](Backward& b, const CastAttrs& a) {
          if (b.grad().dtype() == a.from) return b.give(0, b.take_grad());  // widened already
          const Tensor& g = b.grad();
          const Target target = b.target(0);
          const bool straight = target && !target.add;  // the same memory in every step
          const Tensor d = straight ? target.memory : Tensor::empty({a.from, g.shape()});
          kernels::convert(g.dtype(), g.bytes(), a.from, d.bytes(), g.size());
          if (straight)
            b.wrote(0);
          else
            b.give(0, d);
        },
    .cost = [](const Inputs& in, const Specs& out, const CastAttrs&) { return elementwise_cost(in, out, 0); },
    .onnx = lower_to,
    .composed = no("primitive"),
    .cheap = true};

}  // namespace

extern const Op* const cast_op;
constinit const Op* const cast_op = &op_of<cast_record>;

Tensor cast(const Tensor& x, DType dtype) { return x.dtype() == dtype ? x : apply<cast_record>({x.dtype(), dtype}, x); }

Tensor as_low(const Tensor& x, const Tensor& with) {
  const DType to = context().autocast_dtype;
  if (!x.defined() || x.dtype() == to) return x;
  if (!is_floating(x.dtype()) && !(with.defined() && is_floating(with.dtype()))) return x;
  const Leaf* leaf = x.body()->leaf.get();
  const bool shared = leaf != nullptr && leaf->parameter;
  const Scoped<&Context::category> category(shared ? MemoryCategory::parameter : context().category);
  return apply<cast_record>({x.dtype(), to, shared}, x);
}

}  // namespace everyo::inline v1
