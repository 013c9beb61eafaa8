#pragma once
#include <array>
#include <cstdint>

#include "kernels/cross_entropy.h"

// Between cross_entropy.cpp (blocks, sums over rows) and the code of one block: vectors for what is computed in
// float32, plain loops for float64.
namespace everyo::kernels {

/// Most rows of one block.
inline constexpr std::int64_t block_rows = 32;

/// What is kept of each row: its greatest logit, and the logarithm of the sum of e^(logit - greatest).
template <class F>
struct Norms {
  F *shift, *log_sum;
};
using RowNorms = Norms<float>;
using KeptNorms = Norms<const float>;

/// One block of at most block_rows rows. label[r] < 0: the row is ignored (its norms are still written).
struct LabelBlock {
  DType dtype;
  const void* logits;
  std::int64_t rows, classes;
  std::array<std::int64_t, block_rows> label;
};
/// What is kept of a block of short rows: e^(logit - greatest) [rows, classes], and the rows' sums of it.
template <class F>
struct KeptExponentials {
  F *exps, *sums;
};

/// Writes the norms, and loss[r] (0 for an ignored row); keeps the exponentials unless they are null.
void cross_entropy_block(const LabelBlock& block, const RowNorms& norms, const KeptExponentials<float>& kept,
                         float* loss);
void cross_entropy_block_backward(const LabelBlock& block, const KeptNorms& norms, const float* scale, void* grad);
/// Of short rows: the block's logits are not read.
void cross_entropy_block_backward(const LabelBlock& block, const KeptExponentials<const float>& kept,
                                  const float* scale, void* grad);

struct SoftBlock {
  DType dtype;
  const void *logits, *targets;
  std::int64_t rows, classes;
};
void cross_entropy_soft_block(const SoftBlock& block, const RowNorms& norms, float* loss);
void cross_entropy_soft_block_backward(const SoftBlock& block, const KeptNorms& norms, const float* scale,
                                       void* grad_logits, void* grad_targets);

}  // namespace everyo::kernels
