#include "everyo/data/transform.h"

#include <fmt/format.h>

#include <array>
#include <utility>

#include "data/gather.h"
#include "data/part.h"

namespace everyo::inline v1 {

TransformDataset::~TransformDataset() = default;

Generator sample_generator(std::uint64_t seed, std::int64_t epoch, std::int64_t index) {
  // Two words a number whatever its size, and a last one that tells these seeds from those of the shuffles.
  constexpr std::uint32_t mark = 0x7366726d;
  const auto low = [](auto number) { return static_cast<std::uint32_t>(number); };
  const auto high = [](auto number) { return static_cast<std::uint32_t>(static_cast<std::uint64_t>(number) >> 32); };
  const std::array words{low(seed), high(seed), low(epoch), high(epoch), low(index), high(index), mark};
  return Generator(SeedSequence(words));
}

TransformDataset::TransformDataset(std::shared_ptr<const Dataset> data, Transform transform)
    : data_(std::move(data)), transform_(std::move(transform)) {
  if (!data_ || !transform_)
    throw ValueError(fmt::format("[TransformDataset] there is no {}; it needs a data set and a function",
                                 data_ ? "function" : "data set"));
}

Batch TransformDataset::rows(std::span<const std::int64_t> indices) const {
  if (indices.empty() && data_->size() > 0) {  // the shape of no rows is that of another's
    const std::int64_t any = 0;
    const Batch one = rows(std::span(&any, 1));
    return {data::view_rows(one.features, 0, 0), data::view_rows(one.targets, 0, 0)};
  }
  const Batch rows = data_->rows(indices);
  data::check_rows("TransformDataset", rows, static_cast<std::int64_t>(indices.size()));
  return data::map_samples(
      "TransformDataset", rows, indices, [&](Sample sample, std::int64_t) { return transform_(std::move(sample)); },
      nullptr);
}

}  // namespace everyo::inline v1
