#include <fmt/format.h>

#include <bit>
#include <numeric>
#include <utility>

#include "data/gather.h"
#include "everyo/data.h"
#include "everyo/random.h"

namespace everyo::inline v1 {
namespace {

/// The 32-bit words that NumPy makes of an integer in a list of seeds.
void append_words(std::vector<std::uint32_t>& words, std::uint64_t value) {
  words.push_back(static_cast<std::uint32_t>(value));
  if (value >> 32 != 0) words.push_back(static_cast<std::uint32_t>(value >> 32));
}

/// The first row of part `part` of `parts` of `count` rows; the first count % parts ones are a row larger.
std::int64_t part_begin(std::int64_t count, std::int64_t part, std::int64_t parts) {
  return part * (count / parts) + std::min(part, count % parts);
}

}  // namespace

std::vector<std::int64_t> sample_order(std::int64_t count, bool shuffle, std::uint64_t seed, std::int64_t epoch) {
  if (shuffle) {
    std::vector<std::uint32_t> words;
    append_words(words, seed);
    append_words(words, static_cast<std::uint64_t>(epoch));
    return Generator(SeedSequence(words)).permutation(count);
  }
  std::vector<std::int64_t> order(static_cast<std::size_t>(count));
  std::iota(order.begin(), order.end(), std::int64_t{0});
  return order;
}

Loader::Loader(ArrayDataset data, const LoaderOptions& options) : data_(std::move(data)), options_(options) {
  if (options.batch < 1)
    throw ValueError(fmt::format("[Loader] batch_size {} is too small; it must be at least 1", options.batch));
  if (options.world_size < 1 || options.rank < 0 || options.rank >= options.world_size)
    throw ValueError(fmt::format("[Loader] rank {} of world size {}; rank must be in 0..world_size-1", options.rank,
                                 options.world_size));
  if (data_.size() == 0) throw ValueError("[Loader] the dataset has no samples; a loader needs at least one");
  if (options.drop_last && options.batch > data_.size())
    throw ValueError(
        fmt::format("[Loader] drop_last leaves no batches: batch_size {} of {} samples; take a smaller batch",
                    options.batch, data_.size()));
  options_.batch = std::min(options.batch, data_.size());  // "all of it" may be any large number
}

std::int64_t Loader::samples() const noexcept {
  return options_.drop_last ? data_.size() / options_.batch * options_.batch : data_.size();
}

std::int64_t Loader::batches() const noexcept { return (samples() + options_.batch - 1) / options_.batch; }

Batch Loader::rows(std::int64_t first, std::int64_t count) const {
  const std::int64_t begin = first + part_begin(count, options_.rank, options_.world_size);
  const std::int64_t end = first + part_begin(count, options_.rank + 1, options_.world_size);
  if (!options_.shuffle)
    return {data::view_rows(data_.features, begin, end - begin), data::view_rows(data_.targets, begin, end - begin)};
  if (order_epoch_ != epoch_) {
    order_ = sample_order(data_.size(), true, options_.seed, epoch_);
    order_epoch_ = epoch_;
  }
  const auto indices =
      std::span(order_).subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(end - begin));
  return {data::gather(data_.features, indices), data::gather(data_.targets, indices)};
}

Batch Loader::batch(std::int64_t i) const {
  if (i < 0 || i >= batches())
    throw ValueError(fmt::format("[Loader] batch {} is out of range; an epoch has batches 0..{}", i, batches() - 1));
  const std::int64_t first = i * options_.batch;
  return rows(first, std::min(options_.batch, samples() - first));
}

std::optional<Batch> Loader::next() {
  const std::int64_t count = std::min(options_.batch, samples() - position_);
  if (count <= 0) {
    ++epoch_;
    position_ = 0;
    return std::nullopt;
  }
  std::optional<Batch> batch = rows(position_, count);
  position_ += count;
  return batch;
}

void Loader::seek(std::int64_t epoch, std::int64_t position) {
  constexpr std::int64_t last_epoch = std::int64_t{1} << 62;
  if (epoch < 0 || epoch > last_epoch || position < 0 || position > samples())
    throw ValueError(
        fmt::format("[Loader] epoch {}, position {} does not exist; an epoch is at least 0, a position in "
                    "0..{}",
                    epoch, position, samples()));
  epoch_ = epoch;
  position_ = position;
}

StateTree Loader::state() const {
  StateTree tree;
  tree["samples"] = data_.size();
  tree["shuffle"] = options_.shuffle;
  tree["seed"] = std::bit_cast<std::int64_t>(options_.seed);
  tree["epoch"] = epoch_;
  tree["position"] = position_;
  return tree;
}

void Loader::load(const StateTree& state) {
  const auto check = [](std::string_view what, const auto& saved, const auto& here) {
    if (saved != here)
      throw StateError(
          fmt::format("[Loader] the state was saved with {} {}, this loader has {}; the order of samples "
                      "would not be the same",
                      what, saved, here));
  };
  check("samples", state.get<std::int64_t>("samples"), data_.size());
  check("shuffle", state.get<bool>("shuffle"), options_.shuffle);
  if (options_.shuffle) check("seed", std::bit_cast<std::uint64_t>(state.get<std::int64_t>("seed")), options_.seed);
  const std::int64_t epoch = state.get<std::int64_t>("epoch"), position = state.get<std::int64_t>("position");
  if (epoch < 0 || position < 0 || position > data_.size())
    throw StateError(fmt::format("[Loader] the state has epoch {}, position {}; there are {} samples", epoch, position,
                                 data_.size()));
  epoch_ = epoch;
  position_ = position;
}

}  // namespace everyo::inline v1
