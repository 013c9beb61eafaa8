#include <fmt/format.h>

#include "autograd/node.h"
#include "base/thread_context.h"
#include "everyo/events.h"
#include "kernels/isa.h"
#include "tensor/pool_allocator.h"

namespace everyo::inline v1 {
namespace {

[[noreturn]] void refuse_released(const Op& op, const Body& body) {
  throw StateError(fmt::format("[{}] parameter '{}' is released; restore it before forward", op.name, body.leaf->name));
}
[[noreturn]] void refuse_undefined(const Op& op, std::size_t i) {
  throw StateError(fmt::format("[{}] input {} is an undefined tensor; give it a value", op.name, i));
}

// Which inputs want a gradient, and whether only shapes are known.
struct Operands {
  InputMask needs = 0;
  bool meta = false;
};
Operands look_at(const Op& op, std::span<const Tensor* const> in, bool meta) {
  Operands operands{0, meta};
  for (std::size_t i = 0; i < in.size(); ++i) {
    const Body* body = in[i]->body();
    if (!body) [[unlikely]]
      refuse_undefined(op, i);
    operands.needs |= InputMask{body->requires_grad} << std::min<std::size_t>(i, 31);
    if (body->storage) [[likely]]
      continue;
    if (body->leaf && body->leaf->released && !meta) refuse_released(op, *body);
    operands.meta = true;
  }
  return operands;
}

Tensor view_of(const Tensor& of, const Spec& spec, std::size_t offset) {
  Ref<Body> body = Body::make(spec);
  body->storage = of.body()->storage;
  body->offset = of.body()->offset + offset;
  return Tensor(std::move(body));
}

void run(const Op& op, const void* attrs, std::span<const Tensor* const> in, const Specs& specs, std::span<Tensor> out,
         const Operands& operands) {
  const Context& c = thread_context;
  const Inputs inputs(in.data(), in.size());
  if (operands.meta) {
    for (std::size_t i = 0; i < out.size(); ++i) out[i] = Tensor::meta(specs[i]);
  } else if (std::optional<std::size_t> offset; op.view && (offset = op.view(inputs, attrs))) {
    out[0] = view_of(*in[0], specs[0], *offset);
  } else {
    for (std::size_t i = 0; i < out.size(); ++i) out[i] = Tensor::empty(specs[i]);
    kernels::require_isa();
    if (c.events) [[unlikely]] {
      const Cost cost = op.cost(inputs, specs, attrs);
      const EventScope event(c.events, op.name, EventKind::forward, static_cast<std::uint64_t>(cost.bytes), cost.flops);
      op.forward(Call{inputs, out}, attrs);
    } else {
      op.forward(Call{inputs, out}, attrs);
    }
  }
  if ((operands.needs != 0 || op.opaque) && c.grad) {
    if (op.backward) {
      record(op, attrs, in, out, operands.needs);
    } else {
      for (const Tensor& t : out)
        if (is_floating(t.dtype()))
          throw StateError(fmt::format("[{}] has no gradient: {}; detach() its inputs", op.name, op.no_backward),
                           ErrorKind::gradient);
    }
  }
  if (c.tracer) [[unlikely]]
    trace(op, attrs, in, out);
}

}  // namespace

void apply(const Op& op, const void* attrs, std::span<const Tensor* const> in, std::span<Tensor> out) {
  const Operands operands = look_at(op, in, thread_context.meta);
  const Specs specs = op.infer(Inputs(in.data(), in.size()), attrs);
  if (specs.size() != out.size()) [[unlikely]]
    throw StateError(fmt::format("[{}] makes {} outputs, {} were asked for", op.name, specs.size(), out.size()));
  run(op, attrs, in, specs, out, operands);
}

std::vector<Tensor> apply_all(const Op& op, const void* attrs, std::span<const Tensor* const> in) {
  const Operands operands = look_at(op, in, thread_context.meta);
  const Specs specs = op.infer(Inputs(in.data(), in.size()), attrs);
  std::vector<Tensor> out(specs.size());
  run(op, attrs, in, specs, out, operands);
  return out;
}

}  // namespace everyo::inline v1
