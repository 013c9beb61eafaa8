#include "everyo/data_parallel.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <iterator>
#include <numeric>
#include <optional>

#include "base/clock.h"
#include "everyo/autograd.h"
#include "parallel/gradients.h"
#include "parallel/process_group.h"

namespace everyo::inline v1 {
namespace {

std::span<std::byte> bytes_of(const Tensor& t) { return {t.bytes(), t.spec().bytes()}; }

// One number a tensor must be the same on all ranks.
void require_same(std::string_view what, const StateDict& tensors, ProcessGroup& group,
                  const std::function<std::uint64_t(const std::string&, const Tensor&)>& number) {
  std::vector<std::uint64_t> own, all(tensors.size() * static_cast<std::size_t>(group.world_size()));
  for (const auto& [name, tensor] : tensors) own.push_back(number(name, tensor));
  group.all_gather(std::span<const std::uint64_t>(own), std::span(all));
  for (std::size_t i = 0; i < all.size(); ++i) {
    const std::size_t rank = i / tensors.size(), tensor = i % tensors.size();
    if (all[i] == all[tensor]) continue;
    throw DistributedError(fmt::format("[DataParallel] '{}' has another {} on rank {} than on rank 0; build the same "
                                       "model on every rank",
                                       tensors[tensor].first, what, rank),
                           static_cast<int>(rank));
  }
}

void require_same_model(const StateDict& tensors, ProcessGroup& group) {
  std::int64_t count[] = {static_cast<std::int64_t>(tensors.size())}, least[] = {count[0]};
  group.all_reduce(std::span(least), ReduceOp::min);
  group.all_reduce(std::span(count), ReduceOp::max);
  if (count[0] != least[0])
    throw DistributedError(fmt::format("[DataParallel] one rank's model has {} parameters and buffers, another's {}; "
                                       "build the same model on every rank",
                                       least[0], count[0]),
                           -1);
  require_same("name, shape or dtype", tensors, group, [](const std::string& name, const Tensor& t) {
    return module_name_hash(
        fmt::format("{} {} {} {}", name, to_string(t.shape()), name_of(t.dtype()), t.requires_grad()));
  });
}

}  // namespace

void agree_on_model(const StateDict& parameters, const StateDict& buffers, ProcessGroup& group,
                    bool broadcast_weights) {
  StateDict tensors = parameters;
  tensors.insert(tensors.end(), buffers.begin(), buffers.end());
  require_same_model(tensors, group);
  for (const auto& [name, t] : tensors) {
    if (!broadcast_weights) break;
    group.broadcast(bytes_of(t), 0);
    t.body()->storage->bump_version();
  }
  if (!broadcast_weights)
    require_same("value", tensors, group, [](const std::string&, const Tensor& t) {
      return t.body()->storage->fingerprint(t.body()->offset, t.spec().bytes());
    });
}

namespace {

void require_same_options(const DataParallelOptions& options, ProcessGroup& group) {
  const std::uint64_t own[] = {options.bucket_bytes, static_cast<std::uint64_t>(options.buffers),
                               options.buffers_each_step ? 1u : 0u, options.broadcast_weights ? 1u : 0u};
  constexpr const char* names[] = {"bucket_bytes", "buffers", "buffers_each_step", "broadcast_weights"};
  std::vector<std::uint64_t> all(std::size(own) * static_cast<std::size_t>(group.world_size()));
  group.all_gather(std::span(own), std::span(all));
  for (std::size_t i = 0; i < all.size(); ++i) {
    const std::size_t rank = i / std::size(own), option = i % std::size(own);
    if (all[i] != all[option])
      throw DistributedError(fmt::format("[DataParallel] {} is {} on rank 0 and {} on rank {}; give all ranks the same",
                                         names[option], all[option], all[i], rank),
                             static_cast<int>(rank));
  }
}

void refuse_unfrozen(const Tensor& parameter) {
  throw StateError(
      fmt::format("[DataParallel] '{}' has a gradient, and needed none when DataParallel was made, so ranks "
                  "would not share it; make a new one after choosing what to train",
                  parameter.body()->leaf->name),
      ErrorKind::distributed);
}

constexpr std::size_t alignment = 64;
std::size_t padded(std::size_t bytes) { return (bytes + alignment - 1) / alignment * alignment; }

// With the gradient that is there.
void move_gradient(const Tensor& parameter, const Ref<Storage>& memory, std::size_t at) {
  const GradSlot& slot = parameter.body()->leaf->grad;
  const Tensor old = slot.value;
  const bool full = slot.full;
  give_memory(parameter, memory, at);
  if (!full) return;
  std::memcpy(memory->data() + at, old.bytes(), old.spec().bytes());
  note_written(parameter, slot.scale);
}

}  // namespace

// Gradients of one dtype that are exchanged at once.
struct DataParallel::Bucket {
  DType dtype;
  std::size_t last = 0;  // the place of its last parameter in the order that they are expected in
  std::size_t bytes = 0;
  std::vector<std::size_t> parameters{};
  Ref<Storage> memory{};
  std::size_t missing = 0;  // parameters whose gradient has not come in this backward
  Work work{};
};

// One backward: an exception may end it before its end is reached. Then others must not wait for what will not come,
// nor the next backward go on with this one's exchange.
struct DataParallel::Walk {
  explicit Walk(DataParallel& of) : parallel(of) {}
  ~Walk() {
    if (complete) return;
    parallel.running_ = false;
    parallel.group_.end(fmt::format("rank {}'s backward was broken off by an exception", parallel.group_.rank()));
    parallel.settle();
  }
  Walk(const Walk&) = delete;
  Walk& operator=(const Walk&) = delete;
  DataParallel& parallel;
  bool complete = false;
};

DataParallel::DataParallel(ModuleBase& model, ProcessGroup& group, const DataParallelOptions& options)
    : DataParallel(
          model.named_parameters(), [&model] { return model.named_buffers(); }, group, options) {}

DataParallel::DataParallel(const StateDict& parameters, std::function<StateDict()> buffers, ProcessGroup& group,
                           const DataParallelOptions& options)
    : buffers_of_model_(std::move(buffers)), group_(group), options_(options) {
  if (options.bucket_bytes < 1) throw ValueError("[DataParallel] bucket_bytes is 0; it must be 1 or more");
  require_same_options(options, group);
  agree_on_model(parameters, buffers_of_model_(), group, options.broadcast_weights);

  for (const auto& [name, p] : parameters) (p.requires_grad() ? parameters_ : frozen_).push_back(p);
  // Backward comes to the last parameters first, until it is known better.
  std::vector<std::size_t> order(parameters_.size());
  std::iota(order.rbegin(), order.rend(), std::size_t{0});
  fill_buckets(order);
  for (std::size_t i = 0; i < parameters_.size(); ++i)
    hooks_.push_back(add_ready_hook(parameters_[i], [this, i](const Tensor&) { ready(i); }));
  for (const Tensor& p : frozen_) hooks_.push_back(add_ready_hook(p, refuse_unfrozen));
  is_ready_.resize(parameters_.size());
}

// One bucket of each dtype is being filled at a time; they are exchanged in the order in which they are complete.
void DataParallel::fill_buckets(const std::vector<std::size_t>& order) {
  std::vector<Bucket> buckets;
  std::array<std::optional<std::size_t>, dtype_count> open{};
  for (std::size_t place = 0; place < order.size(); ++place) {
    const Tensor& p = parameters_[order[place]];
    const std::size_t bytes = padded(p.spec().bytes());
    std::optional<std::size_t>& filling = open[static_cast<std::size_t>(p.dtype())];
    if (!filling || buckets[*filling].bytes + bytes > options_.bucket_bytes) {
      filling = buckets.size();
      buckets.push_back({p.dtype()});
    }
    Bucket& bucket = buckets[*filling];
    bucket.parameters.push_back(order[place]);
    bucket.bytes += bytes;
    bucket.last = place;
  }
  std::ranges::sort(buckets, {}, &Bucket::last);
  bucket_of_.resize(parameters_.size());
  for (std::size_t b = 0; b < buckets.size(); ++b) {
    Bucket& bucket = buckets[b];
    bucket.memory = group_.shared_memory(bucket.bytes);
    std::memset(bucket.memory->data(), 0, bucket.bytes);
    std::size_t at = 0;
    for (const std::size_t i : bucket.parameters) {
      move_gradient(parameters_[i], bucket.memory, at);
      at += padded(parameters_[i].spec().bytes());
      bucket_of_[i] = b;
    }
  }
  buckets_ = std::move(buckets);
}

// By rank 0's order, since all must exchange the same buckets; its parameters that did not come stay behind. Sums do
// not depend on it: each element has its own.
void DataParallel::order_by_arrival() {
  if (ordered_) return;
  std::vector<std::size_t> before;
  for (const Bucket& bucket : buckets_) before.insert(before.end(), bucket.parameters.begin(), bucket.parameters.end());
  std::vector<std::size_t> order = arrived_;
  std::ranges::copy_if(before, std::back_inserter(order), [&](std::size_t i) { return !is_ready_[i]; });
  order.push_back(arrived_.size());
  group_.broadcast(std::span(std::as_writable_bytes(std::span(order))), 0);
  ordered_ = order.back() > 0;  // else rank 0 had no samples, and its next backward will tell
  order.pop_back();
  if (ordered_ && order != before) fill_buckets(order);
}

DataParallel::~DataParallel() {
  const std::size_t trained = parameters_.size();
  for (std::size_t i = 0; i < hooks_.size(); ++i)
    remove_ready_hook(i < trained ? parameters_[i] : frozen_[i - trained], hooks_[i]);
  settle();
}

// Exchanges under way use what this owns. There are some only when the group has failed, or is left now.
void DataParallel::settle() noexcept {
  const auto wait = [this](Work& work) {
    if (!work.done()) group_.end(fmt::format("rank {} has left an exchange of gradients", group_.rank()));
    try {
      work.wait();
    } catch (const Error&) {  // the next call on the group says so
    }
  };
  wait(weights_work_);
  for (Bucket& bucket : buckets_) wait(bucket.work);
}

void DataParallel::set_weight(double weight) {
  check_weight("DataParallel", weight);
  weight_ = weight;
}

void DataParallel::begin(double weight) {
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const Body& parameter = *parameters_[i].body();
    const GradSlot& slot = parameter.leaf->grad;
    if (slot.value.body()->storage.get() == buckets_[bucket_of_[i]].memory.get()) continue;
    throw StateError(fmt::format("[DataParallel] the gradient of '{}' has moved to other memory since, such as that of "
                                 "another DataParallel; have one for a model at a time",
                                 parameter.leaf->name),
                     ErrorKind::distributed);
  }
  running_ = true;
  launched_ = early_ = 0;
  arrived_.clear();
  std::fill(is_ready_.begin(), is_ready_.end(), false);
  for (Bucket& bucket : buckets_) bucket.missing = bucket.parameters.size();
  own_weight_[0] = weight;
  weights_ = std::make_shared<ProcessGroup::Weights>(static_cast<std::size_t>(group_.world_size()));
  weights_work_ =
      group_.all_gather_async(std::as_bytes(std::span(own_weight_)), std::as_writable_bytes(std::span(*weights_)));
}

void DataParallel::ready(std::size_t parameter) {
  if (no_sync_ > 0) return;
  if (!running_) {
    begin(weight_);
    if (context().engine.walk != nullptr)
      at_backward_end([this, walk = std::make_shared<Walk>(*this)] {
        walk->complete = true;
        finish();
      });
  }
  early_ = launched_;
  if (!is_ready_[parameter]) {
    --buckets_[bucket_of_[parameter]].missing;
    arrived_.push_back(parameter);
  }
  is_ready_[parameter] = true;
  launch_those_that_are_complete();
  if (context().engine.walk == nullptr) finish();  // backward of a parameter itself
}

// In one order on every rank, whichever is complete first.
void DataParallel::launch_those_that_are_complete() {
  while (launched_ < buckets_.size() && buckets_[launched_].missing == 0) launch(buckets_[launched_++]);
}
void DataParallel::launch(Bucket& bucket) {
  bucket.work = group_.weighted_mean_async({bucket.memory->data(), bucket.bytes}, bucket.dtype, weights_);
}

void DataParallel::finish() {
  running_ = false;
  for (; launched_ < buckets_.size(); ++launched_) {
    Bucket& bucket = buckets_[launched_];
    for (const std::size_t i : bucket.parameters) fill_absent(parameters_[i]);
    launch(bucket);
  }
  const auto start = base::Clock::now();
  times_ = {.buckets = static_cast<std::int64_t>(buckets_.size()), .early = static_cast<std::int64_t>(early_)};
  weights_work_.wait();
  for (Bucket& bucket : buckets_) {
    bucket.work.wait();
    times_.bytes += static_cast<std::int64_t>(bucket.bytes);
  }
  total_weight_ = std::accumulate(weights_->begin(), weights_->end(), 0.0);
  const GradientsElsewhere elsewhere = compare_gradients(parameters_, group_);
  if (total_weight_ != 0) {
    for (std::size_t i = 0; i < parameters_.size(); ++i)
      if (elsewhere.present[i]) note_written(parameters_[i], elsewhere.scale);
    if (options_.buffers_each_step) {
      const auto before = base::Clock::now();
      exchange_buffers(weights_);
      times_.buffers = base::seconds_since(before);
    }
  }
  times_.exposed = base::seconds_since(start);
  order_by_arrival();
}

void DataParallel::take_part() {
  begin(0);
  finish();
}

void DataParallel::sync_buffers() {
  exchange_buffers(std::make_shared<ProcessGroup::Weights>(static_cast<std::size_t>(group_.world_size()), 1.0));
}

void DataParallel::exchange_buffers(const std::shared_ptr<ProcessGroup::Weights>& weights) {
  if (options_.buffers == BufferSync::none) return;
  for (const auto& [name, buffer] : buffers_of_model_()) {
    if (options_.buffers == BufferSync::first)
      group_.broadcast(bytes_of(buffer), 0);
    else if (is_floating(buffer.dtype()))
      group_.weighted_mean_async(bytes_of(buffer), buffer.dtype(), weights).wait();
    else
      group_.all_reduce(bytes_of(buffer), buffer.dtype(), ReduceOp::max);
    buffer.body()->storage->bump_version();
  }
}

}  // namespace everyo::inline v1
