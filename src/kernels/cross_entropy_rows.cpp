#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cross_entropy_rows.cpp"
#include "hwy/foreach_target.h"
// The one above must come first.
#include <algorithm>
#include <cstddef>

#include "everyo/half.h"
#include "kernels/cross_entropy_rows.h"
#include "kernels/isa.h"
#include "kernels/softmax-inl.h"

HWY_BEFORE_NAMESPACE();
namespace everyo::kernels::HWY_NAMESPACE {
namespace {

// norms.shift[r] = greatest logit, norms.log_sum[r] = log sum e^(logit - shift).
template <class T>
HWY_INLINE void normalise(const T* logits, std::int64_t rows, std::int64_t classes, const RowNorms& norms) {
  HWY_ALIGN float sums[block_rows] = {};  // a whole number of vectors
  for (std::int64_t r = 0; r < rows; ++r) {
    const T* x = logits + r * classes;
    norms.shift[r] = row_max(x, classes);
    const VF shift = constant(norms.shift[r]);
    sums[r] =
        row_sum(classes, [&](std::int64_t k, std::int64_t lanes) HWY_ATTR { return shifted_exp(x + k, shift, lanes); });
  }
  for (std::int64_t r = 0; r < rows; r += float_lanes) hn::Store(log(hn::Load(F32(), sums + r)), F32(), sums + r);
  std::copy_n(sums, rows, norms.log_sum);
}

// The same for short rows, keeping the exponentials and their sums. In stages, each of independent rows, so that their
// latencies overlap; exponentials are taken across the rows' ends, so that no lanes are wasted.
template <class T>
HWY_INLINE void normalise_short(const T* logits, std::int64_t rows, std::int64_t classes, const RowNorms& norms,
                                const KeptExponentials<float>& kept) {
  const std::int64_t count = rows * classes;
  for (std::int64_t r = 0; r < rows; ++r) {
    const std::int64_t first = r * classes;
    norms.shift[r] = row_max(logits + first, classes);
    const VF shift = constant(norms.shift[r]);
    for (std::int64_t k = 0; k < classes; k += float_lanes) {
      const VF x = hn::Sub(load_lanes(logits + first + k, std::min(float_lanes, classes - k)), shift);
      if (first + k + float_lanes <= count)
        hn::StoreU(x, F32(), kept.exps + first + k);  // the next row comes after
      else
        store_lanes(x, kept.exps + first + k, std::min(float_lanes, classes - k));
    }
  }
  for (std::int64_t i = 0; i < count; i += float_lanes) {
    const std::int64_t lanes = std::min(float_lanes, count - i);
    store_lanes(exp_nonpositive(load_lanes(kept.exps + i, lanes)), kept.exps + i, lanes);
  }
  HWY_ALIGN float sums[block_rows] = {};
  for (std::int64_t r = 0; r < rows; ++r) {
    const float* e = kept.exps + r * classes;
    sums[r] = row_sum(classes, [&](std::int64_t k, std::int64_t lanes) HWY_ATTR { return load_lanes(e + k, lanes); });
  }
  std::copy_n(sums, rows, kept.sums);
  for (std::int64_t r = 0; r < rows; r += float_lanes) hn::Store(log(hn::Load(F32(), sums + r)), F32(), sums + r);
  std::copy_n(sums, rows, norms.log_sum);
}

template <class T>
void forward_labels(const LabelBlock& block, const RowNorms& norms, const KeptExponentials<float>& kept, float* loss) {
  const T* logits = static_cast<const T*>(block.logits);
  if (kept.exps == nullptr)
    normalise(logits, block.rows, block.classes, norms);
  else
    normalise_short(logits, block.rows, block.classes, norms, kept);
  for (std::int64_t r = 0; r < block.rows; ++r) {
    const std::int64_t label = block.label[static_cast<std::size_t>(r)];
    loss[r] = label < 0 ? 0 : norms.log_sum[r] + (norms.shift[r] - widen(logits[r * block.classes + label]));
  }
}

template <class T>
void backward_short(const LabelBlock& block, const KeptExponentials<const float>& kept, const float* scale,
                    void* grad) {
  const std::int64_t classes = block.classes;
  for (std::int64_t r = 0; r < block.rows; ++r) {
    const std::int64_t label = block.label[static_cast<std::size_t>(r)];
    T* row = static_cast<T*>(grad) + r * classes;
    if (label < 0) {
      std::fill_n(row, classes, T{});
      continue;
    }
    const float* e = kept.exps + r * classes;
    const float factor = scale[r] / kept.sums[r];
    for (std::int64_t k = 0; k < classes; k += float_lanes) {
      const std::int64_t lanes = std::min(float_lanes, classes - k);
      store_lanes(hn::Mul(load_lanes(e + k, lanes), constant(factor)), row + k, lanes);
    }
    row[label] = narrow<T>((e[label] - kept.sums[r]) * factor);
  }
}

template <class T>
void backward_labels(const LabelBlock& block, const KeptNorms& norms, const float* scale, void* grad) {
  const T* logits = static_cast<const T*>(block.logits);
  const std::int64_t classes = block.classes;
  for (std::int64_t r = 0; r < block.rows; ++r) {
    const std::int64_t label = block.label[static_cast<std::size_t>(r)];
    T* row = static_cast<T*>(grad) + r * classes;
    if (label < 0) {
      std::fill_n(row, classes, T{});
      continue;
    }
    const VF shift = constant(norms.shift[r]), log_sum = constant(norms.log_sum[r]), s = constant(scale[r]);
    const auto softmax = [&](std::int64_t k, std::int64_t lanes) HWY_ATTR {
      const VF x = load_lanes(logits + r * classes + k, lanes);
      return exp_nonpositive(hn::Sub(hn::Sub(x, shift), log_sum));
    };
    for (std::int64_t k = 0; k < classes; k += float_lanes) {
      const std::int64_t lanes = std::min(float_lanes, classes - k);
      store_lanes(hn::Mul(softmax(k, lanes), s), row + k, lanes);
    }
    row[label] = narrow<T>((hn::GetLane(softmax(label, 1)) - 1) * scale[r]);
  }
}

template <class T>
void forward_soft(const SoftBlock& block, const RowNorms& norms, float* loss) {
  const T *logits = static_cast<const T*>(block.logits), *targets = static_cast<const T*>(block.targets);
  normalise(logits, block.rows, block.classes, norms);
  for (std::int64_t r = 0; r < block.rows; ++r) {
    const VF shift = constant(norms.shift[r]), log_sum = constant(norms.log_sum[r]);
    const std::int64_t row = r * block.classes;
    loss[r] = row_sum(block.classes, [&](std::int64_t k, std::int64_t lanes) HWY_ATTR {
      const VF t = load_lanes(targets + row + k, lanes);  // 0 in the lanes that are not there
      const VF product = hn::Mul(t, hn::Add(log_sum, hn::Sub(shift, load_lanes(logits + row + k, lanes))));
      return hn::IfThenElse(hn::Eq(t, hn::Zero(F32())), t, product);
    });
  }
}

template <class T>
void backward_soft(const SoftBlock& block, const KeptNorms& norms, const float* scale, void* grad_logits,
                   void* grad_targets) {
  const T *logits = static_cast<const T*>(block.logits), *targets = static_cast<const T*>(block.targets);
  const std::int64_t classes = block.classes;
  for (std::int64_t r = 0; r < block.rows; ++r) {
    const VF shift = constant(norms.shift[r]), log_sum = constant(norms.log_sum[r]), s = constant(scale[r]);
    const std::int64_t row = r * classes;
    const VF mass = constant(row_sum(
        classes, [&](std::int64_t k, std::int64_t lanes) HWY_ATTR { return load_lanes(targets + row + k, lanes); }));
    for (std::int64_t k = 0; k < classes; k += float_lanes) {
      const std::int64_t lanes = std::min(float_lanes, classes - k);
      const VF x = load_lanes(logits + row + k, lanes), t = load_lanes(targets + row + k, lanes);
      if (grad_logits != nullptr) {
        const VF g = hn::Sub(hn::Mul(exp_nonpositive(hn::Sub(hn::Sub(x, shift), log_sum)), mass), t);
        store_lanes(hn::Mul(g, s), static_cast<T*>(grad_logits) + row + k, lanes);
      }
      if (grad_targets != nullptr)
        store_lanes(hn::Mul(hn::Add(log_sum, hn::Sub(shift, x)), s), static_cast<T*>(grad_targets) + row + k, lanes);
    }
  }
}

void ForwardLabels(const LabelBlock& block, const RowNorms& norms, const KeptExponentials<float>& kept, float* loss) {
  if (block.dtype == float16)
    forward_labels<Float16>(block, norms, kept, loss);
  else if (block.dtype == bfloat16)
    forward_labels<BFloat16>(block, norms, kept, loss);
  else
    forward_labels<float>(block, norms, kept, loss);
}
void BackwardLabels(const LabelBlock& block, const KeptNorms& norms, const float* scale, void* grad) {
  if (block.dtype == float16)
    backward_labels<Float16>(block, norms, scale, grad);
  else if (block.dtype == bfloat16)
    backward_labels<BFloat16>(block, norms, scale, grad);
  else
    backward_labels<float>(block, norms, scale, grad);
}
void BackwardShort(const LabelBlock& block, const KeptExponentials<const float>& kept, const float* scale, void* grad) {
  if (block.dtype == float16)
    backward_short<Float16>(block, kept, scale, grad);
  else if (block.dtype == bfloat16)
    backward_short<BFloat16>(block, kept, scale, grad);
  else
    backward_short<float>(block, kept, scale, grad);
}
void ForwardSoft(const SoftBlock& block, const RowNorms& norms, float* loss) {
  if (block.dtype == float16)
    forward_soft<Float16>(block, norms, loss);
  else if (block.dtype == bfloat16)
    forward_soft<BFloat16>(block, norms, loss);
  else
    forward_soft<float>(block, norms, loss);
}
void BackwardSoft(const SoftBlock& block, const KeptNorms& norms, const float* scale, void* grad_logits,
                  void* grad_targets) {
  if (block.dtype == float16)
    backward_soft<Float16>(block, norms, scale, grad_logits, grad_targets);
  else if (block.dtype == bfloat16)
    backward_soft<BFloat16>(block, norms, scale, grad_logits, grad_targets);
  else
    backward_soft<float>(block, norms, scale, grad_logits, grad_targets);
}

}  // namespace
}  // namespace everyo::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace everyo::kernels {
namespace {
HWY_EXPORT(ForwardLabels);
HWY_EXPORT(BackwardLabels);
HWY_EXPORT(BackwardShort);
HWY_EXPORT(ForwardSoft);
HWY_EXPORT(BackwardSoft);
}  // namespace

void cross_entropy_block(const LabelBlock& block, const RowNorms& norms, const KeptExponentials<float>& kept,
                         float* loss) {
  use_isa();
  HWY_DYNAMIC_DISPATCH(ForwardLabels)(block, norms, kept, loss);
}
void cross_entropy_block_backward(const LabelBlock& block, const KeptNorms& norms, const float* scale, void* grad) {
  use_isa();
  HWY_DYNAMIC_DISPATCH(BackwardLabels)(block, norms, scale, grad);
}
void cross_entropy_block_backward(const LabelBlock& block, const KeptExponentials<const float>& kept,
                                  const float* scale, void* grad) {
  use_isa();
  HWY_DYNAMIC_DISPATCH(BackwardShort)(block, kept, scale, grad);
}
void cross_entropy_soft_block(const SoftBlock& block, const RowNorms& norms, float* loss) {
  use_isa();
  HWY_DYNAMIC_DISPATCH(ForwardSoft)(block, norms, loss);
}
void cross_entropy_soft_block_backward(const SoftBlock& block, const KeptNorms& norms, const float* scale,
                                       void* grad_logits, void* grad_targets) {
  use_isa();
  HWY_DYNAMIC_DISPATCH(BackwardSoft)(block, norms, scale, grad_logits, grad_targets);
}

}  // namespace everyo::kernels
#endif
