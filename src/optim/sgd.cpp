#include <fmt/format.h>

#include <array>
#include <cmath>

#include "everyo/optim.h"
#include "kernels/optimizer.h"
#include "optim/options.h"
#include "optim/stall_watch.h"
#include "tensor/pool_allocator.h"

namespace everyo::inline v1 {
namespace {
void check(const SGDOptions& o) {
  check_common("SGD", o.lr, o.weight_decay, o.state_dtype);
  if (!(o.momentum >= 0 && o.momentum < 1))
    throw ValueError(fmt::format("[SGD] momentum {} must lie in [0, 1)", o.momentum));
  if (o.nesterov && o.momentum == 0) throw ValueError("[SGD] Nesterov needs a momentum; set one in (0, 1)");
}
}  // namespace

SGD::SGD(std::vector<Tensor> parameters, SGDOptions options)
    : SGD(std::vector<Group>{{std::move(parameters), options}}) {}

SGD::SGD(const std::vector<Group>& groups) {
  for (const Group& group : groups) {
    check(group.options);
    add_group(group.parameters);
    options_.push_back(group.options);
  }
  check_not_empty();
}

std::span<const char* const> SGD::state_names() const {
  static constexpr std::array names{"velocity"};
  return names;
}

void SGD::update(std::size_t group) {
  const SGDOptions& o = options_[group];
  PoolVector<kernels::SgdTask> tasks;
  const std::size_t begin = group_begin(group);
  tasks.reserve(group_end(group) - begin);
  StallWatch watch(group_end(group) - begin);
  for (std::size_t i = begin; i < group_end(group); ++i) {
    const Tensor& p = parameters_[i];
    const GradSlot& grad = p.body()->leaf->grad;
    if (!grad.full) continue;
    const Tensor* velocity = o.momentum != 0 ? &state_tensor(i, 0, o.state_dtype) : nullptr;
    tasks.push_back({.weights = watch.weights(p, i - begin, master_of(i, group), is_watched(i)),
                     .state_dtype = velocity ? velocity->dtype() : float32,
                     .gradient = grad.value.bytes(),
                     .velocity = velocity ? velocity->bytes() : nullptr,
                     .first = slots_[i].steps == 0});
  }
  kernels::sgd(tasks, {o.lr, o.momentum, o.weight_decay, o.nesterov});
  watch.each(
      [&](std::size_t i, const kernels::Stalls& s) { note_stalls(begin + i, s.moved, s.stalled, s.weight, s.change); });
}

}  // namespace everyo::inline v1
