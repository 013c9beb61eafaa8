#include <fmt/format.h>

#include "everyo/random.h"
#include "kernels/dropout.h"
#include "ops/elementwise.h"

// dropout: x [..] -> y [..], zero with probability p. The mask is drawn again in backward, so nothing is saved.
namespace everyo::inline v1 {
namespace {

struct DropoutAttrs {
  kernels::DropoutKey key;
  double p;
};
Attributes describe(const DropoutAttrs& a) { return {{"p", a.p}}; }

constexpr Record<DropoutAttrs> dropout_record{
    .name = "dropout",
    .policy = CastPolicy::follow,
    .infer = [](const Inputs& in, const DropoutAttrs&) -> Specs {
      require_floating("dropout", in[0]);
      return in[0].spec();
    },
    .forward =
        [](const Call& c, const DropoutAttrs& a) {
          const Tensor &x = c.in[0], &y = c.out[0];
          kernels::dropout(x.dtype(), x.bytes(), y.bytes(), x.size(), a.key, a.p);
        },
    .backward =
        [](Backward& b, const DropoutAttrs& a) {
          const bool owned = b.owns_grad();
          const Tensor g = b.take_grad();
          const Tensor d = owned ? g : Tensor::empty(g.spec());
          kernels::dropout(g.dtype(), g.bytes(), d.bytes(), g.size(), a.key, a.p);
          b.give(0, d);
        },
    .cost = [](const Inputs& in, const Specs& out, const DropoutAttrs&) { return elementwise_cost(in, out, 20); },
    .onnx = no("dropout belongs to training; export the model in eval mode, where it is the identity"),
    .composed = no("primitive")};

}  // namespace

extern const Op* const dropout_op;
constinit const Op* const dropout_op = &op_of<dropout_record>;

Tensor dropout(const Tensor& x, double p, std::uint32_t site) {
  if (!(p >= 0 && p < 1)) throw ValueError(fmt::format("[dropout] p is {}; it must lie in [0, 1)", p));
  if (p == 0) return x;
  const KeyedGenerator draws(DrawKey::here(site));
  return apply<dropout_record>({{draws.key(), draws.stream()}, p}, x);
}

}  // namespace everyo::inline v1
