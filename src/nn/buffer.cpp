#include <fmt/format.h>

#include <type_traits>

#include "everyo/nn/parameter.h"

namespace everyo::inline v1 {
namespace {

// buffer = (1 - momentum) buffer + momentum value(i), in float64, rounded once.
template <class T, class Value>
void blend(const Tensor& buffer, double momentum, Value value) {
  const auto to = buffer.write<T>();
  for (std::size_t i = 0; i < to.size(); ++i)
    to[i] = narrow<T>((1 - momentum) * static_cast<double>(widen(to[i])) + momentum * static_cast<double>(value(i)));
}

void check(const Tensor& buffer, const Tensor& observed) {
  if (observed.spec() == buffer.spec()) return;
  const std::string what =
      fmt::format("[Buffer] observed {} {} for a buffer {} {}; they must be the same", name_of(observed.dtype()),
                  to_string(observed.shape()), name_of(buffer.dtype()), to_string(buffer.shape()));
  if (observed.shape() != buffer.shape()) throw ShapeError(what);
  throw DTypeError(what);
}

// Sums values[0..count) in place: neighbours in pairs, level by level, so the order depends on the count alone.
template <class Wide>
Wide tree_sum(std::vector<Wide>& values, std::size_t count) {
  for (; count > 1; count = (count + 1) / 2)
    for (std::size_t k = 0; k < count; k += 2) values[k / 2] = k + 1 < count ? values[k] + values[k + 1] : values[k];
  return values[0];
}

template <class T>
void apply_mean(std::span<const BufferUpdates::Update* const> observed) {
  using Wide = decltype(widen(T{}));
  std::vector<std::span<T>> from;
  for (const auto* update : observed) from.push_back(update->observed.data<T>());
  std::vector<Wide> nodes(from.size());
  const auto count = static_cast<Wide>(from.size());
  blend<T>(observed[0]->buffer, observed[0]->momentum, [&](std::size_t i) {
    for (std::size_t shard = 0; shard < from.size(); ++shard) nodes[shard] = widen(from[shard][i]);
    return tree_sum(nodes, nodes.size()) / count;
  });
}

template <class F>
void visit_floating(DType dtype, F f) {
  visit_dtype(dtype, [&]<class T>() {
    if constexpr (is_floating(dtype_v<T>)) f.template operator()<T>();
  });
}

}  // namespace

void Buffer::post(const Tensor& observed, double momentum) const {
  const Context& c = context();
  if (c.recompute || values_.is_meta() || observed.is_meta()) return;
  if (!is_floating(values_.dtype()))
    throw DTypeError(fmt::format("[Buffer] post blends floating buffers, not {}", name_of(values_.dtype())));
  check(values_, observed);
  if (c.buffers) {
    c.buffers->add({values_, observed.detach(), momentum});
    return;
  }
  visit_floating(values_.dtype(), [&]<class T>() {
    const auto from = observed.data<T>();
    blend<T>(values_, momentum, [&](std::size_t i) { return widen(from[i]); });
  });
}

void apply_updates(std::span<BufferUpdates> shards) {
  std::vector<std::span<const BufferUpdates::Update>> lists;
  for (const BufferUpdates& shard : shards)
    if (!shard.updates().empty()) lists.push_back(shard.updates());
  if (lists.empty()) return;
  for (const auto& list : lists) {
    bool same = list.size() == lists[0].size();
    for (std::size_t u = 0; same && u < list.size(); ++u)
      same = list[u].buffer.body() == lists[0][u].buffer.body() && list[u].momentum == lists[0][u].momentum;
    if (!same)
      throw StateError(
          fmt::format("[apply_updates] the shards updated different buffers ({} and {} updates); every "
                      "shard must run the same model",
                      lists[0].size(), list.size()));
  }
  std::vector<const BufferUpdates::Update*> observed(lists.size());
  for (std::size_t u = 0; u < lists[0].size(); ++u) {
    for (std::size_t shard = 0; shard < lists.size(); ++shard) observed[shard] = &lists[shard][u];
    visit_floating(observed[0]->buffer.dtype(), [&]<class T>() { apply_mean<T>(observed); });
  }
  for (BufferUpdates& shard : shards) shard.clear();
}

}  // namespace everyo::inline v1
