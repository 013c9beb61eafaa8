#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <numeric>
#include <string>

#include "everyo/context.h"
#include "everyo/data_parallel.h"
#include "parallel/gradients.h"
#include "parallel/process_group.h"

namespace everyo::inline v1 {
namespace {

// Gradients are exchanged in runs of at most so many bytes; what is smaller is gathered in one copy first.
constexpr std::size_t run_bytes = std::size_t{1} << 20;

std::span<std::byte> gradient_bytes(const Tensor& parameter) {
  const Tensor& value = parameter.body()->leaf->grad.value;
  return {value.bytes(), value.spec().bytes()};
}

// Consecutive parameters of one dtype, exchanged as one.
struct Run {
  DType dtype;
  std::size_t bytes = 0;
  std::vector<Tensor> parameters{};
};

std::vector<Run> runs_of(std::span<const Tensor> parameters, const std::vector<bool>& present) {
  std::vector<Run> runs;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    if (!present[i]) continue;
    const Tensor& p = parameters[i];
    const std::size_t bytes = p.spec().bytes();
    if (runs.empty() || runs.back().dtype != p.dtype() || runs.back().bytes + bytes > run_bytes)
      runs.push_back({p.dtype()});
    runs.back().bytes += bytes;
    runs.back().parameters.push_back(p);
  }
  return runs;
}

void average(const Run& run, ProcessGroup& group, const std::shared_ptr<const ProcessGroup::Weights>& weights) {
  if (run.parameters.size() == 1)
    return group.weighted_mean_async(gradient_bytes(run.parameters[0]), run.dtype, weights).wait();
  std::vector<std::byte> all(run.bytes);
  std::size_t at = 0;
  for (const Tensor& p : run.parameters) {
    const auto bytes = gradient_bytes(p);
    std::ranges::copy(bytes, all.begin() + static_cast<std::ptrdiff_t>(at));
    at += bytes.size();
  }
  group.weighted_mean_async(all, run.dtype, weights).wait();
  at = 0;
  for (const Tensor& p : run.parameters) {
    const auto bytes = gradient_bytes(p);
    std::memcpy(bytes.data(), all.data() + at, bytes.size());
    at += bytes.size();
  }
}

std::uint64_t description_of(std::span<const Tensor> parameters) {
  std::string all;
  for (const Tensor& p : parameters)
    all += fmt::format("{} {} {};", p.body()->leaf->name, to_string(p.shape()), name_of(p.dtype()));
  return module_name_hash(all);
}

// Every rank's weight. Throws DistributedError unless all give the same parameters.
std::shared_ptr<const ProcessGroup::Weights> gather_weights(std::span<const Tensor> parameters, ProcessGroup& group,
                                                            double weight) {
  struct Rank {
    double weight;
    std::uint64_t parameters;
  };
  const Rank own[] = {{weight, description_of(parameters)}};
  std::vector<Rank> all(static_cast<std::size_t>(group.world_size()));
  group.all_gather(std::as_bytes(std::span(own)), std::as_writable_bytes(std::span(all)));
  const auto weights = std::make_shared<ProcessGroup::Weights>();
  for (const Rank& rank : all) {
    if (rank.parameters != all[0].parameters)
      throw DistributedError(
          fmt::format("[average_gradients] rank {} gives other parameters than rank 0; give the same "
                      "names, shapes and dtypes in the same order on every rank",
                      weights->size()),
          static_cast<int>(weights->size()));
    weights->push_back(rank.weight);
  }
  return weights;
}

}  // namespace

Block shard_indices(std::int64_t count, int rank, int world_size, bool drop_last) {
  if (world_size < 1)
    throw ValueError(fmt::format("[shard_indices] world_size is {}; it must be at least 1", world_size),
                     ErrorKind::distributed);
  if (rank < 0 || rank >= world_size)
    throw ValueError(fmt::format("[shard_indices] rank is {}; rank must be from 0 to {}", rank, world_size - 1),
                     ErrorKind::distributed);
  if (count < world_size)
    throw ValueError(
        fmt::format("[shard_indices] {} samples cannot be split over {} ranks; each needs one", count, world_size),
        ErrorKind::distributed);
  const std::int64_t each = count / world_size, rest = drop_last ? 0 : count % world_size;
  const std::int64_t first = rank * each + std::min<std::int64_t>(rank, rest);
  return {first, first + each + (rank < rest ? 1 : 0)};
}

void check_weight(std::string_view function, double weight) {
  // Within these bounds no sum of products overflows, and none of what matters vanishes.
  if (weight == 0 || (weight >= 1e-30 && weight <= 1e30)) return;
  throw ValueError(
      fmt::format("[{}] the weight is {}; it counts rows or targets: 0, or from 1e-30 to 1e30", function, weight),
      ErrorKind::distributed);
}

GradientsElsewhere compare_gradients(std::span<const Tensor> parameters, ProcessGroup& group) {
  const auto ranks = static_cast<std::size_t>(group.world_size());
  // Of each rank: the scale of its gradients (0: it has none), then a byte a parameter.
  const std::size_t size = sizeof(float) + parameters.size();
  std::vector<std::byte> own(size), all(size * ranks);
  float scale = 0;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const GradSlot& slot = parameters[i].body()->leaf->grad;
    if (!slot.full) continue;
    scale = slot.scale;
    own[sizeof(float) + i] = std::byte{1};
  }
  std::memcpy(own.data(), &scale, sizeof scale);
  group.all_gather(std::span<const std::byte>(own), std::span(all));
  GradientsElsewhere found{.present = std::vector<bool>(parameters.size())};
  float known = 0;
  for (std::size_t r = 0; r < ranks; ++r) {
    float theirs = 0;
    std::memcpy(&theirs, all.data() + r * size, sizeof theirs);
    for (std::size_t i = 0; i < parameters.size(); ++i)
      if (all[r * size + sizeof(float) + i] != std::byte{}) found.present[i] = true;
    if (theirs == 0) continue;
    if (known != 0 && theirs != known)
      throw StateError(fmt::format("[average_gradients] gradients are multiplied by {} on one rank and by {} on rank "
                                   "{}; scalers must agree over the group (GradScalerOptions::ranks)",
                                   known, theirs, r),
                       ErrorKind::distributed);
    known = theirs;
  }
  if (known != 0) found.scale = known;
  return found;
}

void fill_absent(const Tensor& parameter) {
  GradSlot& slot = parameter.body()->leaf->grad;
  if (slot.full) return;
  if (!slot.value.defined()) {
    const Scoped<&Context::category> category(MemoryCategory::gradient);
    slot.value = Tensor::empty(parameter.spec());
  }
  std::memset(slot.value.bytes(), 0, slot.value.spec().bytes());
}

void note_written(const Tensor& parameter, float scale) {
  GradSlot& slot = parameter.body()->leaf->grad;
  slot.full = true;
  slot.scale = scale;
  slot.value.body()->storage->bump_version();
}

double average_gradients(std::span<const Tensor> parameters, ProcessGroup& group, const AverageOptions& options) {
  check_weight("average_gradients", options.weight);
  for (const Tensor& p : parameters)
    if (!p.defined() || !p.body()->leaf)
      throw StateError("[average_gradients] a tensor is no parameter; give those of parameters()");
  const auto weights = gather_weights(parameters, group, options.weight);
  const double total = std::accumulate(weights->begin(), weights->end(), 0.0);
  const GradientsElsewhere elsewhere = compare_gradients(parameters, group);
  if (total == 0) return 0;
  for (std::size_t i = 0; i < parameters.size(); ++i)
    if (elsewhere.present[i]) fill_absent(parameters[i]);
  for (const Run& run : runs_of(parameters, elsewhere.present)) average(run, group, weights);
  for (std::size_t i = 0; i < parameters.size(); ++i)
    if (elsewhere.present[i]) note_written(parameters[i], elsewhere.scale);
  return total;
}

}  // namespace everyo::inline v1
