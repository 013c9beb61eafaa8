#include "data/part.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <new>
#include <string_view>

#include "data/gather.h"

namespace everyo::data {
namespace {

/// Throws SampleError for the exception being handled.
[[noreturn]] void name_sample(std::string_view who, std::int64_t index) {
  const auto message = [&](const char* what) { return fmt::format("[{}] sample {}: {}", who, index, what); };
  try {
    throw;
  } catch (const SampleError&) {
    throw;
  } catch (const std::bad_alloc&) {
    throw;  // not the sample's fault
  } catch (const Error& error) {
    throw SampleError(message(error.what()), error.kind(), index);
  } catch (const std::exception& error) {
    throw SampleError(message(error.what()), ErrorKind::backend, index);
  } catch (...) {
    throw SampleError(message("an exception that is no std::exception"), ErrorKind::backend, index);
  }
}

/// Rows as `get` gives them; an error is traced to the sample that is at fault, `index_of(i)` being the i-th.
template <class Get, class IndexOf>
Batch read(const Dataset& data, std::int64_t count, const Get& get, const IndexOf& index_of) {
  try {
    Batch rows = get();
    check_rows("Loader", rows, count);
    return rows;
  } catch (const SampleError&) {
    throw;
  } catch (...) {
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t index = index_of(i);
      try {
        check_rows("Loader", data.rows(std::span(&index, 1)), 1);
      } catch (...) {
        name_sample("Loader", index);
      }
    }
    throw;  // only together do they fail
  }
}

Batch read(const Dataset& data, std::span<const std::int64_t> indices) {
  return read(
      data, static_cast<std::int64_t>(indices.size()), [&] { return data.rows(indices); },
      [&](std::int64_t i) { return indices[static_cast<std::size_t>(i)]; });
}

Batch read_range(const Dataset& data, std::int64_t first, std::int64_t count) {
  return read(
      data, count, [&] { return data.range(first, count); }, [&](std::int64_t i) { return first + i; });
}

/// Rows of one shape and dtype, put together one by one.
class Stack {
 public:
  explicit Stack(std::int64_t rows) : rows_(rows) {}
  void put(std::int64_t row, const Tensor& value, std::string_view what) {
    if (!value.defined() || value.is_meta())
      throw ShapeError(fmt::format("{} of a row have no values; need a tensor that is computed", what));
    if (!out_.defined()) {
      one_ = value.spec();
      out_ = Tensor::empty(stacked(one_, rows_));
    }
    check_same_row(what, value.spec(), one_);
    const std::size_t bytes = one_.bytes();
    if (bytes > 0 && row < rows_)
      std::memcpy(out_.bytes() + static_cast<std::size_t>(row) * bytes, value.bytes(), bytes);
  }
  Tensor take() { return std::move(out_); }

 private:
  std::int64_t rows_;
  Spec one_;
  Tensor out_;
};

}  // namespace

void check_rows(std::string_view what, const Batch& rows, std::int64_t wanted) {
  const auto fits = [&](const Tensor& t) {
    return t.defined() && !t.is_meta() && t.rank() > 0 && t.shape()[0] == wanted;
  };
  const auto shown = [](const Tensor& t) {
    return t.defined() ? (t.is_meta() ? "meta " : "") + to_string(t.shape()) : std::string("undefined");
  };
  if (!fits(rows.features) || !fits(rows.targets))
    throw ShapeError(fmt::format("[{}] the data set gave features {} and targets {} for {} indices; need a row each",
                                 what, shown(rows.features), shown(rows.targets), wanted));
}

Share share_of(std::int64_t rows, const LoaderOptions& options) {
  const std::int64_t rank = options.rank, ranks = options.world_size;
  if (options.shards > 0) {
    const auto first_row = [&](std::int64_t of) {
      return part_begin(rows, options.shards, part_begin(options.shards, ranks, of));
    };
    return {first_row(rank), first_row(rank + 1)};
  }
  const std::int64_t least = rows / ranks, over = rows % ranks;
  switch (options.uneven) {
    case Uneven::spread: break;
    case Uneven::pad: {
      const std::int64_t each = least + (over > 0 ? 1 : 0);
      return {rank * each, (rank + 1) * each};
    }
    case Uneven::drop: return {rank * least, (rank + 1) * least};
  }
  return {part_begin(rows, ranks, rank), part_begin(rows, ranks, rank + 1)};
}

Batch map_samples(std::string_view what, const Batch& rows, std::span<const std::int64_t> indices,
                  const IndexedTransform& f, const Cancelled* cancelled) {
  const Scoped<&Context::category> category(MemoryCategory::input);
  const auto count = static_cast<std::int64_t>(indices.size());
  Stack features(count), targets(count);
  for (std::int64_t i = 0; i < count; ++i) {
    if (cancelled != nullptr && cancelled->load(std::memory_order_relaxed)) throw CancelledError{};
    const std::int64_t index = indices[static_cast<std::size_t>(i)];
    try {
      const Sample out = f({row_of(rows.features, i), row_of(rows.targets, i)}, index);
      features.put(i, out.features, "the transform's features");
      targets.put(i, out.targets, "the transform's targets");
    } catch (...) {
      name_sample(what, index);
    }
  }
  return {features.take(), targets.take()};
}

Context data_context(int threads) noexcept {
  Context clean;
  clean.grad = false;
  clean.category = MemoryCategory::input;
  clean.threads = static_cast<std::int16_t>(threads);
  clean.team = context().team;
  return clean;
}

Batch make_batch(const Dataset& data, const LoaderOptions& options, const Part& part, int threads,
                 const Cancelled* cancelled) {
  const ContextScope in(data_context(threads));

  Batch batch;
  if (!options.transform) {
    batch = part.by_index ? read(data, part.indices) : read_range(data, part.first, part.count);
  } else {
    const bool none = part.count == 0;  // what a transform would make of rows is seen on one
    const std::span<const std::int64_t> indices = none ? std::span(&part.any_sample, 1) : std::span(part.indices);
    batch = map_samples(
        "Loader", read(data, indices), indices,
        [&](Sample sample, std::int64_t index) {
          Generator generator = sample_generator(options.seed, part.epoch, index);
          return options.transform(std::move(sample), generator);
        },
        cancelled);
    if (none) batch = {view_rows(batch.features, 0, 0), view_rows(batch.targets, 0, 0)};
  }
  batch.padding = part.padding;
  return batch;
}

}  // namespace everyo::data
