#include <fmt/format.h>

#include <bit>
#include <numeric>
#include <string_view>
#include <utility>

#include "data/workers.h"
#include "everyo/data/loader.h"
#include "everyo/events.h"
#include "everyo/random.h"

namespace everyo::inline v1 {
namespace {

/// The 32-bit words that NumPy makes of an integer in a list of seeds.
void append_words(std::vector<std::uint32_t>& words, std::uint64_t value) {
  words.push_back(static_cast<std::uint32_t>(value));
  if (value >> 32 != 0) words.push_back(static_cast<std::uint32_t>(value >> 32));
}

template <class E>
void check_place(std::string_view of, std::int64_t epoch, std::int64_t position, std::int64_t samples) {
  constexpr std::int64_t last_epoch = std::int64_t{1} << 62;  // so that counting on does not overflow
  if (epoch < 0 || epoch > last_epoch || position < 0 || position > samples)
    throw E(
        fmt::format("[Loader] {}epoch {}, position {} does not exist; need an epoch in 0..2^62, a position in 0..{}",
                    of, epoch, position, samples));
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

Loader::Loader(std::shared_ptr<const Dataset> data, const LoaderOptions& options)
    : data_(std::move(data)), options_(options) {
  if (!data_) throw ValueError("[Loader] there is no data set; give one");
  const std::int64_t size = data_->size();
  if (options.batch < 1)
    throw ValueError(fmt::format("[Loader] batch_size {} is too small; it must be at least 1", options.batch));
  if (options.world_size < 1 || options.rank < 0 || options.rank >= options.world_size)
    throw ValueError(fmt::format("[Loader] rank {} of world size {}; rank must be in 0..world_size-1", options.rank,
                                 options.world_size));
  if (options.workers < 0 || options.workers > most_loader_workers)
    throw ValueError(fmt::format("[Loader] workers {} must be in 0..{}", options.workers, most_loader_workers));
  if (options.prefetch < 0) throw ValueError(fmt::format("[Loader] prefetch {} must be at least 0", options.prefetch));
  if (options.shards < 0 || (options.shards > 0 && options.shards < options.world_size))
    throw ValueError(fmt::format("[Loader] {} shards for {} ranks; give at least one a rank, or 0 for none",
                                 options.shards, options.world_size));
  if (options.shards > 0 && options.uneven != Uneven::spread)
    throw ValueError("[Loader] shards go with Uneven::spread: every row of a batch is in one of them");
  if (size == 0) throw ValueError("[Loader] the dataset has no samples; a loader needs at least one");
  if (options.drop_last && options.batch > size)
    throw ValueError(
        fmt::format("[Loader] drop_last leaves no batches: batch_size {} of {} samples; take a smaller batch",
                    options.batch, size));
  options_.batch = std::min(options.batch, size);  // "all of it" may be any large number
  if (options.uneven == Uneven::drop && options_.batch < options.world_size)
    throw ValueError(fmt::format(
        "[Loader] Uneven::drop leaves no rows: batch_size {} of {} samples on {} ranks; take a batch of a row for each",
        options.batch, size, options.world_size));
  const std::int64_t rest = size % options_.batch;
  samples_ = options.drop_last || (options.uneven == Uneven::drop && rest < options.world_size) ? size - rest : size;
}

Loader::Loader(Loader&&) noexcept = default;
Loader& Loader::operator=(Loader&&) noexcept = default;
Loader::~Loader() = default;

void Loader::Deleter::operator()(data::Workers* workers) const noexcept {
  // In a forked child the threads are gone, and nothing of theirs may be touched.
  if (workers->here()) delete workers;
}

std::int64_t Loader::batches() const noexcept { return (samples() + options_.batch - 1) / options_.batch; }

std::int64_t Loader::settled(std::int64_t position) const noexcept {
  // Fewer rows than ranks are no batch; they can be left where the batches were of another size before.
  return options_.uneven == Uneven::drop && samples_ - position < options_.world_size ? samples_ : position;
}

Loader::Place Loader::after(const Place& place) const noexcept {
  const std::int64_t position = settled(std::min(place.position + options_.batch, samples_));
  return position < samples_ ? Place{place.epoch, position} : Place{place.epoch + 1, 0};
}

const std::vector<std::int64_t>& Loader::order(std::int64_t epoch) const {
  Order& order = orders_[static_cast<std::size_t>(epoch % 2)];
  if (order.epoch != epoch) order = {epoch, sample_order(data_->size(), true, options_.seed, epoch)};
  return order.samples;
}

data::Part Loader::part(const Place& place) const {
  const std::int64_t rows = std::min(options_.batch, samples_ - place.position);
  const auto [begin, end] = data::share_of(rows, options_);
  data::Part part;
  part.epoch = place.epoch;
  part.position = place.position;
  part.first = place.position + begin;
  part.count = end - begin;
  part.padding = std::max<std::int64_t>(0, end - std::max(begin, rows));
  part.by_index = options_.shuffle || options_.transform || part.padding > 0;
  const std::vector<std::int64_t>* shuffled = options_.shuffle ? &order(place.epoch) : nullptr;
  const auto sample = [&](std::int64_t row) {
    const std::int64_t at = place.position + row % rows;
    return shuffled != nullptr ? (*shuffled)[static_cast<std::size_t>(at)] : at;
  };
  part.any_sample = sample(0);
  if (part.by_index)
    for (std::int64_t row = begin; row < end; ++row) part.indices.push_back(sample(row));
  return part;
}

Batch Loader::batch(std::int64_t i) const {
  if (i < 0 || i >= batches())
    throw ValueError(fmt::format("[Loader] batch {} is out of range; an epoch has batches 0..{}", i, batches() - 1));
  const EventScope event("data", EventKind::data);
  return data::make_batch(*data_, options_, part({epoch_, i * options_.batch}), context().threads, nullptr);
}

std::optional<Batch> Loader::next() {
  if (position_ >= samples_) {
    ++epoch_;
    position_ = 0;
    return std::nullopt;
  }
  const EventScope event("data", EventKind::data);
  std::optional<Batch> batch =
      options_.workers > 0 ? take_from_workers()
                           : data::make_batch(*data_, options_, part({epoch_, position_}), context().threads, nullptr);
  position_ = settled(std::min(position_ + options_.batch, samples_));
  return batch;
}

void Loader::ask_ahead() {
  const auto most = static_cast<std::size_t>(options_.prefetch > 0 ? options_.prefetch : 2 * options_.workers);
  while (workers_->asked() < most) {
    workers_->ask(part(planned_));
    planned_ = after(planned_);
  }
}

Batch Loader::take_from_workers() {
  if (!workers_ || !workers_->here())
    workers_.reset(new data::Workers(
        options_.workers, [data = data_, options = options_](const data::Part& part, const data::Cancelled& cancelled) {
          return data::make_batch(*data, options, part, 1, &cancelled);
        }));
  const bool elsewhere =
      workers_->asked() > 0 && (workers_->oldest().epoch != epoch_ || workers_->oldest().position != position_);
  if (elsewhere) workers_->forget();  // after seek(), load(), or an exception
  if (workers_->asked() == 0) planned_ = {epoch_, position_};
  ask_ahead();
  Batch batch = workers_->take();
  ask_ahead();
  return batch;
}

void Loader::seek(std::int64_t epoch, std::int64_t position) {
  check_place<ValueError>("", epoch, position, samples());
  epoch_ = epoch;
  position_ = settled(position);
}

StateTree Loader::state() const {
  StateTree tree;
  tree["samples"] = data_->size();
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
  check("samples", state.get<std::int64_t>("samples"), data_->size());
  check("shuffle", state.get<bool>("shuffle"), options_.shuffle);
  if (options_.shuffle) check("seed", std::bit_cast<std::uint64_t>(state.get<std::int64_t>("seed")), options_.seed);
  const std::int64_t epoch = state.get<std::int64_t>("epoch"), position = state.get<std::int64_t>("position");
  // Of all samples: the loader that was saved may have had no drop_last.
  check_place<StateError>("the state's ", epoch, position, data_->size());
  epoch_ = epoch;
  position_ = settled(position);
}

}  // namespace everyo::inline v1
