#include <fmt/format.h>

#include <numeric>
#include <string_view>
#include <vector>

#include "data/gather.h"
#include "everyo/data/dataset.h"
#include "kernels/index.h"

namespace everyo::inline v1 {

using data::check_indices;
using data::check_range;

Dataset::~Dataset() = default;
SampleError::~SampleError() = default;

namespace {

void check_same_rows(const Tensor& features, const Tensor& targets) {
  const auto shown = [](const Tensor& t) { return t.defined() ? to_string(t.shape()) : std::string("undefined"); };
  if (!features.defined() || !targets.defined() || features.rank() == 0 || targets.rank() == 0 ||
      features.shape()[0] != targets.shape()[0])
    throw ShapeError(
        fmt::format("[ArrayDataset] features {} and targets {} must have the same number of samples, one row each",
                    shown(features), shown(targets)));
}

}  // namespace

ArrayDataset::ArrayDataset(Tensor all_features, Tensor all_targets)
    : features(std::move(all_features)), targets(std::move(all_targets)) {
  check_same_rows(features, targets);
}

ArrayDataset::ArrayDataset(const Batch& rows) : ArrayDataset(rows.features, rows.targets) {
  if (rows.padding != 0) *this = ArrayDataset(range(0, rows.counted()));
}

ArrayDataset::~ArrayDataset() = default;

Batch ArrayDataset::rows(std::span<const std::int64_t> indices) const {
  check_same_rows(features, targets);
  check_indices("ArrayDataset", indices, size());
  return {data::gather(features, indices), data::gather(targets, indices)};
}

Batch ArrayDataset::range(std::int64_t first, std::int64_t count) const {
  check_same_rows(features, targets);
  check_range("ArrayDataset", first, count, size());
  return {data::view_rows(features, first, count), data::view_rows(targets, first, count)};
}

SubsetDataset::SubsetDataset(std::shared_ptr<const Dataset> data, std::vector<std::int64_t> indices)
    : data_(std::move(data)), indices_(std::make_shared<const std::vector<std::int64_t>>(std::move(indices))) {
  if (!data_) throw ValueError("[SubsetDataset] there is no data set; give one");
  check_indices("SubsetDataset", *indices_, data_->size());
}
SubsetDataset::~SubsetDataset() = default;

Batch SubsetDataset::rows(std::span<const std::int64_t> indices) const {
  check_indices("SubsetDataset", indices, size());
  std::vector<std::int64_t> there;
  there.reserve(indices.size());
  for (const std::int64_t index : indices) there.push_back((*indices_)[static_cast<std::size_t>(index)]);
  return data_->rows(there);
}

Batch Dataset::range(std::int64_t first, std::int64_t count) const {
  check_range("Dataset", first, count, size());
  std::vector<std::int64_t> indices(static_cast<std::size_t>(count));
  std::iota(indices.begin(), indices.end(), first);
  return rows(indices);
}

}  // namespace everyo::inline v1

namespace everyo::data {

namespace {
/// The spec of `count` rows of it.
Spec rows_spec(Spec spec, std::int64_t count) {
  spec.shape.set(0, count);
  return spec;
}

/// A view of `all` that begins at row `first`.
Tensor view_from(const Tensor& all, std::int64_t first, const Spec& spec) {
  Ref<Body> body = Body::make(spec);
  body->storage = all.body()->storage;
  const std::size_t row_bytes = all.shape()[0] == 0 ? 0 : all.spec().bytes() / static_cast<std::size_t>(all.shape()[0]);
  body->offset = all.body()->offset + row_bytes * static_cast<std::size_t>(first);
  return Tensor(std::move(body));
}
}  // namespace

Spec stacked(const Spec& one, std::int64_t count) {
  Spec spec{one.dtype, {count}};
  for (const std::int64_t size : one.shape.sizes()) spec.shape.push_back(size);
  return spec;
}

void check_indices(std::string_view what, std::span<const std::int64_t> indices, std::int64_t samples) {
  const std::int64_t bad =
      kernels::find_bad_index(int64, indices.data(), static_cast<std::int64_t>(indices.size()), 0, samples);
  if (bad >= 0)
    throw ShapeError(fmt::format("[{}] index {} at position {} is out of range for {} samples", what,
                                 indices[static_cast<std::size_t>(bad)], bad, samples));
}

void check_range(std::string_view what, std::int64_t first, std::int64_t count, std::int64_t samples) {
  if (first < 0 || count < 0 || first > samples - count)
    throw ShapeError(
        fmt::format("[{}] {} rows from {} on are out of range for {} samples", what, count, first, samples));
}

void check_same_row(std::string_view what, const Spec& row, const Spec& before) {
  if (row != before)
    throw ShapeError(fmt::format("{} of a row are {} {}, of those before {} {}; need one shape and dtype", what,
                                 name_of(row.dtype), to_string(row.shape), name_of(before.dtype),
                                 to_string(before.shape)));
}

Tensor gather(const Tensor& all, std::span<const std::int64_t> indices) {
  if (all.is_meta()) return Tensor::meta(rows_spec(all.spec(), static_cast<std::int64_t>(indices.size())));
  return gather({all.bytes(), all.spec().bytes()}, all.spec(), indices);
}

Tensor gather(std::span<const std::byte> all, const Spec& spec, std::span<const std::int64_t> indices) {
  const Scoped<&Context::category> category(MemoryCategory::input);
  const Scoped<&Context::meta> with_values(false);
  const auto count = static_cast<std::int64_t>(indices.size());
  Tensor out = Tensor::empty(rows_spec(spec, count));
  if (count == 0 || all.empty()) return out;
  kernels::gather_rows({.outer = 1,
                        .limit = spec.shape[0],
                        .inner = spec.shape.elements() / spec.shape[0],
                        .count = count,
                        .index_dtype = int64,
                        .index = indices.data()},
                       size_of(spec.dtype), all.data(), out.bytes());
  return out;
}

Tensor view_rows(const Tensor& all, std::int64_t first, std::int64_t count) {
  return view_from(all, first, rows_spec(all.spec(), count));
}

Tensor row_of(const Tensor& all, std::int64_t row) { return view_from(all, row, row_spec(all.spec())); }

}  // namespace everyo::data
