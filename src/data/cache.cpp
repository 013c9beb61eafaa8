#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <mutex>
#include <utility>
#include <vector>

#include "data/gather.h"
#include "data/part.h"
#include "everyo/data/transform.h"

namespace everyo::inline v1 {

namespace {

std::byte* row_bytes(const Tensor& rows, std::int64_t row) {
  return rows.bytes() + data::row_spec(rows.spec()).bytes() * static_cast<std::size_t>(row);
}
void copy_row(const std::byte* from, const Tensor& to, std::int64_t row) {
  if (const std::size_t bytes = data::row_spec(to.spec()).bytes(); bytes > 0)
    std::memcpy(row_bytes(to, row), from, bytes);
}

}  // namespace

// Rows lie in chunks that are made when they are needed. What was once put there never moves or changes, so it is read
// without the lock.
struct CachedDataset::Rows {
  static constexpr std::int64_t chunk_bytes = std::int64_t{1} << 20;
  struct Kept {
    bool found = false;
    const std::byte *features = nullptr, *targets = nullptr;
  };

  Rows(std::int64_t bytes_allowed, std::int64_t samples)
      : allowed(bytes_allowed), place(static_cast<std::size_t>(samples), -1) {}

  [[nodiscard]] std::int64_t bytes_of_row() const {
    return static_cast<std::int64_t>(features.bytes() + targets.bytes());
  }
  [[nodiscard]] Kept find(std::int64_t index) const {
    const std::int64_t row = place[static_cast<std::size_t>(index)];
    if (row < 0) return {};
    const Batch& chunk = chunks[static_cast<std::size_t>(row / chunk_rows)];
    return {true, row_bytes(chunk.features, row % chunk_rows), row_bytes(chunk.targets, row % chunk_rows)};
  }
  void add(std::span<const std::int64_t> indices, const Batch& rows) {
    if (std::exchange(known, true)) {
      data::check_same_row("[CachedDataset] features", data::row_spec(rows.features.spec()), features);
      data::check_same_row("[CachedDataset] targets", data::row_spec(rows.targets.spec()), targets);
    } else {  // the first rows decide what rows look like, and how many there is room for
      features = data::row_spec(rows.features.spec());
      targets = data::row_spec(rows.targets.spec());
      const std::int64_t bytes = std::max<std::int64_t>(bytes_of_row(), 1);
      room = std::min(allowed / bytes, static_cast<std::int64_t>(place.size()));
      chunk_rows = std::clamp<std::int64_t>(chunk_bytes / bytes, 1, std::max<std::int64_t>(room, 1));
    }
    for (std::size_t i = 0; i < indices.size() && used < room; ++i) {
      std::int64_t& row = place[static_cast<std::size_t>(indices[i])];
      if (row >= 0) continue;  // another thread was faster, or the index comes twice
      if (used % chunk_rows == 0) {
        const std::int64_t count = std::min(chunk_rows, room - used);
        chunks.push_back({Tensor::empty(data::stacked(features, count)), Tensor::empty(data::stacked(targets, count))});
      }
      const auto from = static_cast<std::int64_t>(i);
      copy_row(row_bytes(rows.features, from), chunks.back().features, used % chunk_rows);
      copy_row(row_bytes(rows.targets, from), chunks.back().targets, used % chunk_rows);
      row = used++;
    }
  }

  std::mutex mutex;
  const std::int64_t allowed;
  bool known = false;
  Spec features, targets;  // of one row
  std::int64_t room = 0, chunk_rows = 1, used = 0;
  std::vector<Batch> chunks;
  std::vector<std::int64_t> place;  // of each sample; -1: not kept
};

CachedDataset::CachedDataset(std::shared_ptr<const Dataset> data, const CacheOptions& options)
    : data_(std::move(data)) {
  if (!data_) throw ValueError("[CachedDataset] there is no data set; give one");
  if (options.bytes < 0) throw ValueError(fmt::format("[CachedDataset] bytes {} must be at least 0", options.bytes));
  rows_ = std::make_shared<Rows>(options.bytes, data_->size());
}
CachedDataset::~CachedDataset() = default;

Batch CachedDataset::rows(std::span<const std::int64_t> indices) const {
  std::vector<Rows::Kept> kept(indices.size());
  std::vector<std::int64_t> missing;
  data::check_indices("CachedDataset", indices, static_cast<std::int64_t>(rows_->place.size()));
  {
    const std::lock_guard lock(rows_->mutex);
    for (std::size_t i = 0; i < indices.size(); ++i) {
      kept[i] = rows_->find(indices[i]);
      if (!kept[i].found) missing.push_back(indices[i]);
    }
  }
  const Scoped<&Context::category> category(MemoryCategory::input);
  Batch fresh;
  if (!missing.empty() || indices.empty()) {
    fresh = data_->rows(missing);
    data::check_rows("CachedDataset", fresh, static_cast<std::int64_t>(missing.size()));
    const std::lock_guard lock(rows_->mutex);
    rows_->add(missing, fresh);
    if (missing.size() == indices.size()) return fresh;
  }
  const auto count = static_cast<std::int64_t>(indices.size());
  Batch out{Tensor::empty(data::stacked(rows_->features, count)), Tensor::empty(data::stacked(rows_->targets, count))};
  std::int64_t next = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    const Rows::Kept& row = kept[static_cast<std::size_t>(i)];
    copy_row(row.found ? row.features : row_bytes(fresh.features, next), out.features, i);
    copy_row(row.found ? row.targets : row_bytes(fresh.targets, next), out.targets, i);
    if (!row.found) ++next;
  }
  return out;
}

std::int64_t CachedDataset::cached() const {
  const std::lock_guard lock(rows_->mutex);
  return rows_->used;
}

std::int64_t CachedDataset::bytes() const {
  const std::lock_guard lock(rows_->mutex);
  return rows_->used * (rows_->known ? rows_->bytes_of_row() : 0);
}

}  // namespace everyo::inline v1
