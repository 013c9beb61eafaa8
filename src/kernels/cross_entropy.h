#pragma once
#include <cstdint>

#include "everyo/dtype.h"
#include "everyo/shape.h"

// Softmax cross-entropy over rows of logits [N, K]. Forward keeps what backward needs, in float32 (float64 for
// float64 logits): norms [2, N], each row's greatest logit and then the logarithms of the rows' sums of
// e^(logit - greatest); or, for integer labels and few classes, those exponentials [N, K] and their sums [N], as [K +
// 1, N], so that the gradient of a small problem needs no second exponential. Halves are computed in float32.
namespace everyo::kernels {

/// Integer labels [N], int64 or int32; rows whose label is `ignored` (if `ignores`) count for nothing.
struct Labels {
  DType dtype;
  const void* data;
  bool ignores = false;
  std::int64_t ignored = 0;
};

/// The first row with a label that is neither ignored nor in 0..classes-1, or -1.
std::int64_t find_bad_label(const Labels& labels, std::int64_t rows, std::int64_t classes) noexcept;
/// Rows that are not ignored.
std::int64_t count_labels(const Labels& labels, std::int64_t rows) noexcept;

/// Logits [rows, classes].
struct LogitRows {
  DType dtype;
  const void* data;
  std::int64_t rows, classes;
};

/// Whether the exponentials are kept.
constexpr bool keeps_exponentials(DType logits, std::int64_t classes, bool soft) noexcept {
  return logits != float64 && !soft && classes <= 64;
}
/// What `kept` is.
constexpr Spec cross_entropy_kept(DType logits, std::int64_t rows, std::int64_t classes, bool soft) noexcept {
  if (keeps_exponentials(logits, classes, soft)) return {float32, {classes + 1, rows}};
  return {logits == float64 ? float64 : float32, {2, rows}};
}

/// Sum over the rows that count of -log softmax at the label, in float64 over rows. kept is written;
/// row_loss [rows] of the logits' dtype too, unless null. Labels are in range or ignored.
double cross_entropy(const LogitRows& logits, const Labels& labels, void* kept, void* row_loss);
/// The same for soft labels [rows, classes] of the logits' dtype: sum of -target * log softmax; a target of 0
/// counts 0 whatever the logit.
double cross_entropy_soft(const LogitRows& logits, const void* targets, void* kept, void* row_loss);

/// What the gradient of each row is multiplied by: `all`, or row [rows] of the logits' dtype when that is not null.
struct RowScale {
  double all = 1;
  const void* row = nullptr;
};
/// grad_logits [rows, classes] = (softmax - one at the label) * scale; 0 in ignored rows.
void cross_entropy_backward(const LogitRows& logits, const Labels& labels, const void* kept, const RowScale& scale,
                            void* grad_logits);
/// grad_logits = (softmax * sum of targets - target) * scale and grad_targets = -log softmax * scale; either may
/// be null.
void cross_entropy_soft_backward(const LogitRows& logits, const void* targets, const void* kept, const RowScale& scale,
                                 void* grad_logits, void* grad_targets);

}  // namespace everyo::kernels
