#include "everyo/virtual_shards.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>
#include <utility>

#include "everyo/autograd.h"
#include "everyo/context.h"
#include "everyo/ops.h"
#include "kernels/binary.h"
#include "kernels/parallel.h"
#include "parallel/gradients.h"
#include "parallel/shard_tree.h"

namespace everyo {
namespace parallel {
namespace {

bool lies_in(const Block& node, const Block& within) { return node.first >= within.first && node.end <= within.end; }

void collect(const Block& node, const Block& own, std::vector<Block>& found) {
  if (node.first >= own.end || node.end <= own.first) return;
  if (lies_in(node, own)) return found.push_back(node);
  const std::int64_t middle = node.first + left_size(node.size());
  collect({node.first, middle}, own, found);
  collect({middle, node.end}, own, found);
}

}  // namespace

std::vector<Block> nodes_within(std::int64_t shards, const Block& own) {
  std::vector<Block> found;
  if (own.size() > 0) collect({0, shards}, own, found);
  return found;
}

std::vector<Block> nodes_above(std::int64_t shards, std::int64_t leaf) {
  std::vector<Block> path;
  for (Block node{0, shards}; node.size() > 1;) {
    path.push_back(node);
    const std::int64_t middle = node.first + left_size(node.size());
    node = leaf < middle ? Block{node.first, middle} : Block{middle, node.end};
  }
  std::ranges::reverse(path);
  return path;
}

}  // namespace parallel

inline namespace v1 {
namespace {

using parallel::nodes_above, parallel::nodes_within;
constexpr auto before = [](const Block& a, const Block& b) {
  return std::pair(a.first, a.end) < std::pair(b.first, b.end);
};

// The gradients of some shards summed: one a parameter, float32 where that is a half; undefined where none has come.
struct Sum {
  std::vector<Tensor> gradients;
  float scale = 1;
};

// left + right, in left's memory.
Tensor summed(Tensor left, Tensor right) {
  if (!left.defined()) return right;
  if (right.defined())
    kernels::binary(kernels::Binary::add, left.dtype(), left.size(), left.bytes(), right.bytes(), left.bytes());
  return left;
}

// The gradients of one shard, out of its sink.
Sum sum_of(const GradientSink& sink, std::span<const Tensor> parameters, float scale) {
  Sum sum{std::vector<Tensor>(parameters.size()), scale};
  for (const auto& [leaf, gradient] : sink.gradients()) {
    const auto at = std::ranges::find(parameters, leaf.body(), &Tensor::body);
    if (at == parameters.end())
      throw StateError(
          fmt::format("[VirtualShards] '{}' {} has a gradient and is no parameter of the model that needed one "
                      "when VirtualShards was made, so shards would not share it",
                      leaf.body()->leaf->name, to_string(leaf.shape())),
          ErrorKind::distributed);
    sum.gradients[static_cast<std::size_t>(at - parameters.begin())] =
        is_half(gradient.dtype()) ? cast(gradient, float32) : gradient;
  }
  return sum;
}

// What the shards of one rank have come to: sums go up the tree as soon as both parts are there, so that not all
// shards' gradients are kept.
class RankSums {
 public:
  RankSums(std::int64_t shards, const Block& own) : shards_(shards), own_(own) {}

  void put(std::int64_t shard, Sum sum) {
    Block node{shard, shard + 1};
    for (const Block& parent : nodes_above(shards_, shard)) {
      if (parent.first < own_.first || parent.end > own_.end) break;
      const bool is_left = node.first == parent.first;
      const Block sibling = is_left ? Block{node.end, parent.end} : Block{parent.first, node.first};
      Sum other;
      {
        const std::scoped_lock lock(mutex_);
        const auto found = sums_.find(sibling);
        if (found == sums_.end()) {
          sums_.emplace(node, std::move(sum));
          return;
        }
        other = std::move(found->second);
        sums_.erase(found);
      }
      if (!is_left) std::swap(sum, other);
      for (std::size_t p = 0; p < sum.gradients.size(); ++p)
        sum.gradients[p] = summed(std::move(sum.gradients[p]), std::move(other.gradients[p]));
      sum.scale = std::max(sum.scale, other.scale);
      node = parent;
    }
    const std::scoped_lock lock(mutex_);
    sums_.emplace(node, std::move(sum));
  }
  [[nodiscard]] const Sum& of(const Block& node) const { return sums_.at(node); }

 private:
  std::int64_t shards_;
  Block own_;
  std::mutex mutex_;
  std::map<Block, Sum, decltype(before)> sums_;
};

// The nodes that ranks send each other.
struct Sent {
  Block node;
  int rank;
};
std::vector<Sent> all_sent(std::int64_t shards, int world_size) {
  std::vector<Sent> all;
  for (int rank = 0; rank < world_size; ++rank)
    for (const Block& node : nodes_within(shards, shard_indices(shards, rank, world_size, false)))
      all.push_back({node, rank});
  return all;
}

// One parameter's gradient from the nodes that were sent.
Tensor finish(const Block& node, const std::map<Block, Tensor, decltype(before)>& sent) {
  if (const auto found = sent.find(node); found != sent.end()) return found->second;
  const std::int64_t middle = node.first + parallel::left_size(node.size());
  Tensor left = finish({node.first, middle}, sent);
  return summed(std::move(left), finish({middle, node.end}, sent));
}

void store(const Tensor& parameter, const Tensor& gradient, float scale) {
  fill_absent(parameter);
  parameter.body()->leaf->grad.value.assign(gradient);
  note_written(parameter, scale);
}

void exchange_gradients(const RankSums& own, std::span<const Tensor> parameters, std::int64_t shards,
                        ProcessGroup& group) {
  const std::vector<Sent> sent = all_sent(shards, group.world_size());
  // Which gradients each node has, and their scale.
  const std::size_t width = parameters.size();
  std::vector<std::uint8_t> present(sent.size() * width);
  std::vector<float> scale{0};
  for (std::size_t n = 0; n < sent.size(); ++n) {
    if (sent[n].rank != group.rank()) continue;
    const Sum& sum = own.of(sent[n].node);
    for (std::size_t p = 0; p < width; ++p) {
      present[n * width + p] = sum.gradients[p].defined() ? 1 : 0;
      if (sum.gradients[p].defined()) scale[0] = std::max(scale[0], sum.scale);
    }
  }
  group.all_reduce(std::span(present), ReduceOp::max);
  group.all_reduce(std::span(scale), ReduceOp::max);
  for (std::size_t p = 0; p < width; ++p) {
    std::map<Block, Tensor, decltype(before)> nodes;
    for (std::size_t n = 0; n < sent.size(); ++n) {
      Tensor& value = nodes[sent[n].node];
      if (present[n * width + p] == 0) continue;
      const bool mine = sent[n].rank == group.rank();
      const DType dtype = is_half(parameters[p].dtype()) ? float32 : parameters[p].dtype();
      value = mine ? own.of(sent[n].node).gradients[p] : Tensor::empty({dtype, parameters[p].shape()});
      group.broadcast(std::span(value.bytes(), value.spec().bytes()), sent[n].rank);
    }
    parameters[p].zero_grad();
    if (const Tensor gradient = finish({0, shards}, nodes); gradient.defined())
      store(parameters[p], gradient, scale[0]);
  }
}

// A shard's updates as bytes for other ranks: each a buffer's place in the model, a momentum, and what was observed.
std::vector<std::byte> pack(const BufferUpdates& updates, const StateDict& buffers) {
  std::vector<std::byte> all;
  const auto put = [&](const void* data, std::size_t bytes) {
    const auto* from = static_cast<const std::byte*>(data);
    all.insert(all.end(), from, from + bytes);
  };
  for (const BufferUpdates::Update& update : updates.updates()) {
    const auto at =
        std::ranges::find_if(buffers, [&](const auto& entry) { return entry.second.body() == update.buffer.body(); });
    const auto place = static_cast<std::uint64_t>(at - buffers.begin());
    put(&place, sizeof place);
    put(&update.momentum, sizeof update.momentum);
    put(update.observed.bytes(), update.observed.spec().bytes());
  }
  return all;
}

BufferUpdates unpack(std::span<const std::byte> all, const StateDict& buffers) {
  BufferUpdates updates;
  while (!all.empty()) {
    std::uint64_t place = 0;
    double momentum = 0;
    std::memcpy(&place, all.data(), sizeof place);
    std::memcpy(&momentum, all.data() + sizeof place, sizeof momentum);
    all = all.subspan(sizeof place + sizeof momentum);
    const Tensor& buffer = buffers.at(place).second;
    const Tensor observed = Tensor::empty(buffer.spec());
    std::memcpy(observed.bytes(), all.data(), observed.spec().bytes());
    all = all.subspan(observed.spec().bytes());
    updates.add({buffer, observed, momentum});
  }
  return updates;
}

}  // namespace

VirtualShards::VirtualShards(ModuleBase& model, ProcessGroup& group, std::int64_t shards)
    : VirtualShards(
          model.named_parameters(), [&model] { return model.named_buffers(); }, group, shards) {}

VirtualShards::VirtualShards(const StateDict& parameters, std::function<StateDict()> buffers, ProcessGroup& group,
                             std::int64_t shards)
    : buffers_of_model_(std::move(buffers)), group_(group), shards_(shards) {
  constexpr std::int64_t most = 65536;
  if (shards > most)
    throw ValueError(
        fmt::format("[VirtualShards] {} shards; each is a forward and backward, so give at most {}", shards, most),
        ErrorKind::distributed);
  if (shards < group.world_size() || shards < 1)
    throw ValueError(fmt::format("[VirtualShards] {} shards for {} ranks; give at least one a rank, the same number in "
                                 "every run that is to have the same bits",
                                 shards, group.world_size()),
                     ErrorKind::distributed);
  own_ = shard_indices(shards, group.rank(), group.world_size(), false);
  agree_on_model(parameters, buffers_of_model_(), group, true);
  for (const auto& [name, p] : parameters)
    if (p.requires_grad()) parameters_.push_back(p);
}

void VirtualShards::share(std::span<double> values) {
  if (static_cast<std::int64_t>(values.size()) != shards_)
    throw ShapeError(fmt::format("[VirtualShards] {} values for {} shards; give one a shard", values.size(), shards_));
  for (std::int64_t s = 0; s < shards_; ++s)
    if (s < own_.first || s >= own_.end) values[static_cast<std::size_t>(s)] = 0;
  group_.all_reduce(values);  // each sum has one part that is not 0
}

void VirtualShards::run(const std::function<void(std::int64_t)>& forward_backward) {
  RankSums sums(shards_, own_);
  std::vector<BufferUpdates> updates(static_cast<std::size_t>(shards_));
  try {
    kernels::parallel_for(own_.size(), 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t shard = own_.first + begin; shard < own_.first + end; ++shard) {
        GradientSink sink;
        const auto number = static_cast<std::int32_t>(shard);
        const Scoped<&Context::gradients> gradients(&sink);
        const Scoped<&Context::buffers> buffers(&updates[static_cast<std::size_t>(shard)]);
        const Scoped<&Context::shard> as_shard(number);
        const Scoped<&Context::micro_batch> draws(number);
        const Scoped<&Context::rank> of_any_rank(0);
        forward_backward(shard);
        float scale = 1;
        for (const auto& [leaf, gradient] : sink.gradients()) scale = sink.slot(leaf).scale;
        const NoGrad no_grad;
        sums.put(shard, sum_of(sink, parameters_, scale));
      }
    });
  } catch (...) {
    // Or others would go on with this rank's next call.
    group_.end(fmt::format("an exception broke off the shards of rank {}", group_.rank()));
    throw;
  }
  exchange_gradients(sums, parameters_, shards_, group_);

  const StateDict buffers = buffers_of_model_();
  std::vector<double> sizes(static_cast<std::size_t>(shards_));
  std::vector<std::vector<std::byte>> packed(sizes.size());
  for (std::size_t s = 0; s < sizes.size(); ++s) {
    packed[s] = pack(updates[s], buffers);
    sizes[s] = static_cast<double>(packed[s].size());
  }
  share(sizes);
  const std::vector<Sent> sent = all_sent(shards_, group_.world_size());
  for (std::size_t s = 0; s < sizes.size(); ++s) {
    if (sizes[s] == 0 || group_.world_size() == 1) continue;
    const auto shard = static_cast<std::int64_t>(s);
    const auto owner =
        std::ranges::find_if(sent, [&](const Sent& n) { return shard >= n.node.first && shard < n.node.end; });
    packed[s].resize(static_cast<std::size_t>(sizes[s]));
    group_.broadcast(std::span(packed[s]), owner->rank);
    if (shard < own_.first || shard >= own_.end) updates[s] = unpack(packed[s], buffers);
  }
  apply_updates(updates);
}

}  // namespace v1
}  // namespace everyo
