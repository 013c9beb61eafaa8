#include "kernels/cross_entropy.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "everyo/half.h"
#include "kernels/cross_entropy_rows.h"
#include "kernels/parallel.h"

namespace everyo::kernels {
namespace {

constexpr std::int64_t parts_elements = 16384;  // the least work worth a part of its own
constexpr std::int64_t most_parts = 64;

template <class F>
decltype(auto) with_labels(const Labels& labels, F&& f) {
  return labels.dtype == int32 ? f(static_cast<const std::int32_t*>(labels.data))
                               : f(static_cast<const std::int64_t*>(labels.data));
}

/// The label of a row, -1 for an ignored one.
std::int64_t label_of(const Labels& labels, std::int64_t row) {
  const std::int64_t label = with_labels(labels, [=](const auto* p) -> std::int64_t { return p[row]; });
  return labels.ignores && label == labels.ignored ? -1 : label;
}

/// Rows of a part: fixed by the problem, whole blocks, at most most_parts parts.
std::int64_t rows_of_a_part(std::int64_t rows, std::int64_t classes) {
  if (rows * classes <= parts_elements && rows <= parts_elements) return std::max<std::int64_t>(1, rows);
  const std::int64_t enough =
      std::max(parts_elements / std::max<std::int64_t>(1, classes), (rows + most_parts - 1) / most_parts);
  return std::max<std::int64_t>(1, (enough + block_rows - 1) / block_rows) * block_rows;
}

const void* row_at(DType dtype, const void* data, std::int64_t element) {
  return data == nullptr ? nullptr
                         : static_cast<const std::byte*>(data) + static_cast<std::size_t>(element) * size_of(dtype);
}
void* row_at(DType dtype, void* data, std::int64_t element) {
  return data == nullptr ? nullptr : static_cast<std::byte*>(data) + static_cast<std::size_t>(element) * size_of(dtype);
}

double scale_of(const RowScale& scale, DType dtype, std::int64_t row) {
  if (scale.row == nullptr) return scale.all;
  switch (dtype) {
    case DType::float64: return scale.all * static_cast<const double*>(scale.row)[row];
    case DType::float16: return scale.all * static_cast<double>(to_float(static_cast<const Float16*>(scale.row)[row]));
    case DType::bfloat16:
      return scale.all * static_cast<double>(to_float(static_cast<const BFloat16*>(scale.row)[row]));
    default: return scale.all * static_cast<double>(static_cast<const float*>(scale.row)[row]);
  }
}

void store_losses(DType dtype, const float* loss, std::int64_t count, void* out, std::int64_t first) {
  for (std::int64_t r = 0; r < count; ++r) {
    if (dtype == float16)
      static_cast<Float16*>(out)[first + r] = to_float16(loss[r]);
    else if (dtype == bfloat16)
      static_cast<BFloat16*>(out)[first + r] = to_bfloat16(loss[r]);
    else
      static_cast<float*>(out)[first + r] = loss[r];
  }
}

RowNorms norms_of(const LogitRows& logits, void* norms, std::int64_t first) {
  float* shift = static_cast<float*>(norms) + first;
  return {shift, shift + logits.rows};
}
KeptNorms norms_of(const LogitRows& logits, const void* norms, std::int64_t first) {
  const float* shift = static_cast<const float*>(norms) + first;
  return {shift, shift + logits.rows};
}
template <class F>
KeptExponentials<F> exponentials_of(const LogitRows& logits, F* kept, std::int64_t first) {
  return {kept + first * logits.classes, kept + logits.rows * logits.classes + first};
}
LabelBlock label_block(const LogitRows& logits, const Labels& labels, std::int64_t first, std::int64_t end) {
  LabelBlock block;
  block.dtype = logits.dtype;
  block.logits = row_at(logits.dtype, logits.data, first * logits.classes);
  block.rows = std::min(block_rows, end - first);
  block.classes = logits.classes;
  with_labels(labels, [&](const auto* label) {
    for (std::int64_t r = 0; r < block.rows; ++r) {
      const std::int64_t value = label[first + r];
      block.label[static_cast<std::size_t>(r)] = labels.ignores && value == labels.ignored ? -1 : value;
    }
  });
  return block;
}
SoftBlock soft_block(const LogitRows& logits, const void* targets, std::int64_t first, std::int64_t end) {
  const std::int64_t at = first * logits.classes;
  return {logits.dtype, row_at(logits.dtype, logits.data, at), row_at(logits.dtype, targets, at),
          std::min(block_rows, end - first), logits.classes};
}

/// Of integer labels: else exponentials are kept.
bool keeps_norms(const LogitRows& logits) { return !keeps_exponentials(logits.dtype, logits.classes, false); }

/// Sum of part(begin, end) over parts of the rows, in order; they run side by side.
template <class Part>
double sum_parts(const LogitRows& logits, const Part& part) {
  const std::int64_t size = rows_of_a_part(logits.rows, logits.classes);
  if (logits.rows <= size) return part(0, logits.rows);
  double partial[most_parts] = {};
  parallel_for(logits.rows, size,
               [&](std::int64_t begin, std::int64_t end) { partial[begin / size] = part(begin, end); });
  double total = 0;
  for (const double sum : partial) total += sum;
  return total;
}

/// Sum over all rows of what `block_losses(first, end, loss)` writes for the block at `first`.
template <class BlockLosses>
double sum_blocks(const LogitRows& logits, void* row_loss, const BlockLosses& block_losses) {
  return sum_parts(logits, [&](std::int64_t begin, std::int64_t end) {
    double sum = 0;
    for (std::int64_t first = begin; first < end; first += block_rows) {
      float loss[block_rows];
      const std::int64_t count = std::min(block_rows, end - first);
      block_losses(first, end, loss);
      for (std::int64_t r = 0; r < count; ++r) sum += static_cast<double>(loss[r]);
      if (row_loss != nullptr) store_losses(logits.dtype, loss, count, row_loss, first);
    }
    return sum;
  });
}

/// body(first, end, scale) for every block, side by side.
template <class Body>
void for_each_block(const LogitRows& logits, const RowScale& scale, const Body& body) {
  parallel_for(logits.rows, rows_of_a_part(logits.rows, logits.classes), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t first = begin; first < end; first += block_rows) {
      float scales[block_rows];
      for (std::int64_t r = 0; r < std::min(block_rows, end - first); ++r)
        scales[r] = static_cast<float>(scale_of(scale, logits.dtype, first + r));
      body(first, end, scales);
    }
  });
}

// float64 rows, one at a time.
struct DoubleNorm {
  double shift, log_sum;
  [[nodiscard]] double log_softmax(double logit) const { return logit - shift - log_sum; }
};
DoubleNorm norm_of(const double* x, std::int64_t classes) {
  double greatest = x[0], sum = 0;
  for (std::int64_t k = 1; k < classes; ++k) greatest = std::max(greatest, x[k]);
  for (std::int64_t k = 0; k < classes; ++k) sum += std::exp(x[k] - greatest);
  return {greatest, std::log(sum)};
}
DoubleNorm keep_norm(const LogitRows& logits, std::int64_t row, void* norms) {
  const DoubleNorm norm = norm_of(static_cast<const double*>(logits.data) + row * logits.classes, logits.classes);
  static_cast<double*>(norms)[row] = norm.shift;
  static_cast<double*>(norms)[logits.rows + row] = norm.log_sum;
  return norm;
}
DoubleNorm kept_norm(const LogitRows& logits, std::int64_t row, const void* norms) {
  const double* kept = static_cast<const double*>(norms);
  return {kept[row], kept[logits.rows + row]};
}

/// Sum over the rows of loss(row), which also lands in row_loss.
template <class Loss>
double sum_double_rows(const LogitRows& logits, void* row_loss, const Loss& loss) {
  return sum_parts(logits, [&](std::int64_t begin, std::int64_t end) {
    double sum = 0;
    for (std::int64_t r = begin; r < end; ++r) {
      const double value = loss(r);
      if (row_loss != nullptr) static_cast<double*>(row_loss)[r] = value;
      sum += value;
    }
    return sum;
  });
}
template <class Body>
void for_each_double_row(const LogitRows& logits, const Body& body) {
  parallel_for(logits.rows, rows_of_a_part(logits.rows, logits.classes), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) body(r);
  });
}

}  // namespace

std::int64_t find_bad_label(const Labels& labels, std::int64_t rows, std::int64_t classes) noexcept {
  return with_labels(labels, [&](const auto* p) -> std::int64_t {
    for (std::int64_t r = 0; r < rows; ++r)
      if ((p[r] < 0 || p[r] >= classes) && !(labels.ignores && p[r] == labels.ignored)) return r;
    return -1;
  });
}

std::int64_t count_labels(const Labels& labels, std::int64_t rows) noexcept {
  if (!labels.ignores) return rows;
  return with_labels(labels, [&](const auto* p) -> std::int64_t {
    std::int64_t count = 0;
    for (std::int64_t r = 0; r < rows; ++r) count += p[r] != labels.ignored;
    return count;
  });
}

double cross_entropy(const LogitRows& logits, const Labels& labels, void* kept, void* row_loss) {
  if (logits.dtype == float64) {
    return sum_double_rows(logits, row_loss, [&](std::int64_t r) {
      const double* x = static_cast<const double*>(logits.data) + r * logits.classes;
      const DoubleNorm norm = keep_norm(logits, r, kept);
      const std::int64_t label = label_of(labels, r);
      return label < 0 ? 0 : -norm.log_softmax(x[label]);
    });
  }
  return sum_blocks(logits, row_loss, [&](std::int64_t first, std::int64_t end, float* loss) {
    const LabelBlock block = label_block(logits, labels, first, end);
    if (keeps_norms(logits)) return cross_entropy_block(block, norms_of(logits, kept, first), {nullptr, nullptr}, loss);
    float shift[block_rows], log_sum[block_rows];
    cross_entropy_block(block, {shift, log_sum}, exponentials_of(logits, static_cast<float*>(kept), first), loss);
  });
}

double cross_entropy_soft(const LogitRows& logits, const void* targets, void* norms, void* row_loss) {
  if (logits.dtype == float64) {
    return sum_double_rows(logits, row_loss, [&](std::int64_t r) {
      const double* x = static_cast<const double*>(logits.data) + r * logits.classes;
      const double* t = static_cast<const double*>(targets) + r * logits.classes;
      const DoubleNorm norm = keep_norm(logits, r, norms);
      double loss = 0;
      for (std::int64_t k = 0; k < logits.classes; ++k) loss += t[k] == 0 ? 0 : -t[k] * norm.log_softmax(x[k]);
      return loss;
    });
  }
  return sum_blocks(logits, row_loss, [&](std::int64_t first, std::int64_t end, float* loss) {
    cross_entropy_soft_block(soft_block(logits, targets, first, end), norms_of(logits, norms, first), loss);
  });
}

void cross_entropy_backward(const LogitRows& logits, const Labels& labels, const void* kept, const RowScale& scale,
                            void* grad_logits) {
  if (logits.dtype == float64) {
    return for_each_double_row(logits, [&](std::int64_t r) {
      const double* x = static_cast<const double*>(logits.data) + r * logits.classes;
      double* grad = static_cast<double*>(grad_logits) + r * logits.classes;
      const std::int64_t label = label_of(labels, r);
      const double factor = scale_of(scale, float64, r);
      const DoubleNorm norm = kept_norm(logits, r, kept);
      for (std::int64_t k = 0; k < logits.classes; ++k)
        grad[k] = label < 0 ? 0 : (std::exp(norm.log_softmax(x[k])) - (k == label ? 1 : 0)) * factor;
    });
  }
  for_each_block(logits, scale, [&](std::int64_t first, std::int64_t end, const float* scales) {
    const LabelBlock block = label_block(logits, labels, first, end);
    void* const grad = row_at(logits.dtype, grad_logits, first * logits.classes);
    if (keeps_norms(logits))
      cross_entropy_block_backward(block, norms_of(logits, kept, first), scales, grad);
    else
      cross_entropy_block_backward(block, exponentials_of(logits, static_cast<const float*>(kept), first), scales,
                                   grad);
  });
}

void cross_entropy_soft_backward(const LogitRows& logits, const void* targets, const void* norms, const RowScale& scale,
                                 void* grad_logits, void* grad_targets) {
  const std::int64_t classes = logits.classes;
  if (logits.dtype == float64) {
    return for_each_double_row(logits, [&](std::int64_t r) {
      const double* x = static_cast<const double*>(logits.data) + r * classes;
      const double* t = static_cast<const double*>(targets) + r * classes;
      const double factor = scale_of(scale, float64, r);
      const DoubleNorm norm = kept_norm(logits, r, norms);
      double mass = 0;
      for (std::int64_t k = 0; k < classes; ++k) mass += t[k];
      for (std::int64_t k = 0; k < classes; ++k) {
        if (grad_logits != nullptr)
          static_cast<double*>(grad_logits)[r * classes + k] =
              (std::exp(norm.log_softmax(x[k])) * mass - t[k]) * factor;
        if (grad_targets != nullptr)
          static_cast<double*>(grad_targets)[r * classes + k] = -norm.log_softmax(x[k]) * factor;
      }
    });
  }
  for_each_block(logits, scale, [&](std::int64_t first, std::int64_t end, const float* scales) {
    cross_entropy_soft_block_backward(soft_block(logits, targets, first, end), norms_of(logits, norms, first), scales,
                                      row_at(logits.dtype, grad_logits, first * classes),
                                      row_at(logits.dtype, grad_targets, first * classes));
  });
}

}  // namespace everyo::kernels
