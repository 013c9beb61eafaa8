#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "everyo/op.h"
#include "everyo/tensor.h"
#include "everyo/window.h"

// Ops on tensors. Letters: N batch, D and K widths, M x K x N a matrix product; "[..]" any leading dimensions.
// Unless a line says otherwise: any floating dtype; halves are computed in float32 and rounded once; NaN propagates;
// two operands broadcast as in NumPy and promote as promote() says; a C++ number is weak and takes the tensor's
// dtype. Shapes that do not fit throw ShapeError, dtypes DTypeError.
namespace everyo::inline v1 {

/// Every op the library has, one record each.
EVERYO_API std::span<const Op* const> ops();
/// The op of that name, or null.
EVERYO_API const Op* find_op(std::string_view name);

// ---- arithmetic (all dtypes; division of integers gives float32) ----
EVERYO_API Tensor add(const Tensor& a, const Tensor& b);
EVERYO_API Tensor subtract(const Tensor& a, const Tensor& b);
EVERYO_API Tensor multiply(const Tensor& a, const Tensor& b);
EVERYO_API Tensor divide(const Tensor& a, const Tensor& b);
EVERYO_API Tensor maximum(const Tensor& a, const Tensor& b);  ///< ties split the gradient equally
EVERYO_API Tensor minimum(const Tensor& a, const Tensor& b);
/// x * factor + offset, the scalar forms of the four above.
EVERYO_API Tensor scale(const Tensor& x, double factor, double offset = 0);
/// numerator / x
EVERYO_API Tensor reciprocal(const Tensor& x, double numerator = 1);
EVERYO_API Tensor negative(const Tensor& x);

inline Tensor operator+(const Tensor& a, const Tensor& b) { return add(a, b); }
inline Tensor operator-(const Tensor& a, const Tensor& b) { return subtract(a, b); }
inline Tensor operator*(const Tensor& a, const Tensor& b) { return multiply(a, b); }
inline Tensor operator/(const Tensor& a, const Tensor& b) { return divide(a, b); }
inline Tensor operator+(const Tensor& x, double y) { return scale(x, 1, y); }
inline Tensor operator+(double y, const Tensor& x) { return scale(x, 1, y); }
inline Tensor operator-(const Tensor& x, double y) { return scale(x, 1, -y); }
inline Tensor operator-(double y, const Tensor& x) { return scale(x, -1, y); }
inline Tensor operator*(const Tensor& x, double y) { return scale(x, y); }
inline Tensor operator*(double y, const Tensor& x) { return scale(x, y); }
EVERYO_API Tensor operator/(const Tensor& x, double y);
inline Tensor operator/(double y, const Tensor& x) { return reciprocal(x, y); }
inline Tensor operator-(const Tensor& x) { return negative(x); }

// ---- comparison (all dtypes): bool, no gradient ----
EVERYO_API Tensor equal(const Tensor& a, const Tensor& b);
EVERYO_API Tensor not_equal(const Tensor& a, const Tensor& b);
EVERYO_API Tensor less(const Tensor& a, const Tensor& b);
EVERYO_API Tensor less_equal(const Tensor& a, const Tensor& b);
EVERYO_API Tensor greater(const Tensor& a, const Tensor& b);
EVERYO_API Tensor greater_equal(const Tensor& a, const Tensor& b);
/// condition ? a : b, elementwise; condition is bool, all three broadcast.
EVERYO_API Tensor where(const Tensor& condition, const Tensor& a, const Tensor& b);

// ---- elementwise ----
EVERYO_API Tensor exp(const Tensor& x);
EVERYO_API Tensor log(const Tensor& x);
EVERYO_API Tensor sqrt(const Tensor& x);  ///< the gradient's denominator is at least 1e-12
EVERYO_API Tensor abs(const Tensor& x);   ///< gradient 0 at 0
/// Into [low, high]; the gradient passes on the closed interval. ShapeError unless low <= high.
EVERYO_API Tensor clip(const Tensor& x, double low, double high);
/// x ^ exponent, a scalar exponent.
EVERYO_API Tensor power(const Tensor& x, double exponent);

enum class Activation : std::uint8_t { none, relu, sigmoid, tanh, gelu, silu };
EVERYO_API std::string_view name_of(Activation activation) noexcept;
EVERYO_API Tensor relu(const Tensor& x);  ///< gradient 0 at 0
EVERYO_API Tensor sigmoid(const Tensor& x);
EVERYO_API Tensor tanh(const Tensor& x);
EVERYO_API Tensor gelu(const Tensor& x);  ///< x times the normal distribution function, exact (erf)
EVERYO_API Tensor silu(const Tensor& x);  ///< x sigmoid(x)
/// One of the above by value; none is the identity.
EVERYO_API Tensor activate(const Tensor& x, Activation activation);

/// To another dtype: nearest, ties to even; to integers towards zero, saturating, NaN to 0. The gradient comes back
/// in x's dtype. The same dtype gives x itself.
EVERYO_API Tensor cast(const Tensor& x, DType dtype);
/// Zeroes each element with probability p in [0, 1) and multiplies the others by 1 / (1 - p). Draws are keyed by the
/// Context's (seed, step, module path, rank, micro_batch), `site` and the element's index, never a stream: two calls in
/// one module's forward draw the same mask unless their sites differ. ValueError: "[0, 1)".
EVERYO_API Tensor dropout(const Tensor& x, double p, std::uint32_t site = 0);

// ---- matrix products ----
/// NumPy's matmul of any ranks from 1 up: a [.., M, K], b [.., K, N] -> [.., M, N], leading dimensions broadcast.
EVERYO_API Tensor matmul(const Tensor& a, const Tensor& b);
/// activation(x W + b) as one op: x [.., D], weight [D, K], bias [K] or undefined -> [.., K]. The bits of the separate
/// ops: in halves the product, the sum and the activation are rounded each.
EVERYO_API Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias = {},
                         Activation activation = Activation::none);

// ---- images (channels last): x [N, H, W, C], N images of H x W cells with C channels ----
struct Conv2dOptions {
  Size2D stride = 1;
  Padding padding{};
  Size2D dilation = 1;                       ///< cells from one tap of the kernel to the next
  std::int64_t groups = 1;                   ///< output o sees the C / G channels of group o / (O / G)
  Activation activation = Activation::none;  ///< the same bits as that activation of the plain result
};
/// Cross-correlation, as in every framework: weight [KH, KW, C / G, O], bias [O] or undefined, O outputs, G groups,
/// -> [N, OH, OW, O] with OH = floor((H + padding - extent) / stride) + 1, extent (KH - 1) dilation + 1, or
/// ceil(H / stride) with "same" padding. The bias joins the sum before it is rounded. ShapeError: "4-D tensor",
/// "4-D kernel", "<n> channel(s)" and "expects <m>", "does not fit", "bias must have shape", "must be positive".
EVERYO_API Tensor conv2d(const Tensor& x, const Tensor& weight, const Tensor& bias = {},
                         const Conv2dOptions& options = {});
struct MaxPoolOptions {
  std::optional<Size2D> stride{};  ///< unset: the window's sizes
  Padding padding{};               ///< cells that never win
  Size2D dilation = 1;             ///< distance between a window's neighbouring cells
  bool ceil_mode = false;          ///< also a last window that reaches behind the padding, if it starts in front of it
};
struct AvgPoolOptions {
  std::optional<Size2D> stride{};
  Padding padding{};
  bool ceil_mode = false;
  bool count_padding = false;  ///< divide by the cells of image and padding, not of the image alone
};
/// Greatest of each window's cells: [N, H, W, C] -> [N, OH, OW, C]. The first cell in row order that has it takes the
/// gradient; NaN is greater than any number. ShapeError: "4-D"; sizes "must be positive"; a window "larger than the
/// padded" image, or that could lie wholly in the padding.
EVERYO_API Tensor max_pool2d(const Tensor& x, Size2D window = 2, const MaxPoolOptions& options = {});
/// Mean of each window's cells in the image. Errors as max_pool2d.
EVERYO_API Tensor avg_pool2d(const Tensor& x, Size2D window = 2, const AvgPoolOptions& options = {});
/// [N, H, W, C] -> [N, OH, OW, C] for any OH and OW: row i is the mean of rows floor(i H / OH) to
/// ceil((i + 1) H / OH) - 1, columns alike. ShapeError: "4-D", "must be positive".
EVERYO_API Tensor adaptive_avg_pool2d(const Tensor& x, Size2D output);
/// Mean of each channel: [N, H, W, C] -> [N, C], summed in float64.
EVERYO_API Tensor global_avg_pool2d(const Tensor& x);

// ---- reductions (over `axes`, empty: all; negative axes count from the last) ----
using Axes = std::vector<std::int64_t>;
/// Sum; bool and integers sum to int64.
EVERYO_API Tensor sum(const Tensor& x, const Axes& axes = {}, bool keep_dims = false);
EVERYO_API Tensor mean(const Tensor& x, const Axes& axes = {}, bool keep_dims = false);
EVERYO_API Tensor max(const Tensor& x, const Axes& axes = {}, bool keep_dims = false);  ///< ties split the gradient
EVERYO_API Tensor min(const Tensor& x, const Axes& axes = {}, bool keep_dims = false);
/// Population variance (divides by the count), composed of the above.
EVERYO_API Tensor variance(const Tensor& x, const Axes& axes = {}, bool keep_dims = false);
/// Index of the first largest element along an axis, int64.
EVERYO_API Tensor argmax(const Tensor& x, std::int64_t axis = -1);

EVERYO_API Tensor softmax(const Tensor& x, std::int64_t axis = -1);
EVERYO_API Tensor log_softmax(const Tensor& x, std::int64_t axis = -1);

// ---- norms: y = weight (x - mean) / sqrt(variance + eps) + bias ----
// Weight and bias may be undefined (1 and 0), and have a dtype of their own: y has x's. Statistics are float32 or
// wider, sums float64. With an activation: the same bits as that activation of the plain result; ReLU costs no pass of
// its own. ValueError: "eps".
struct NormOptions {
  double eps = 1e-5;  ///< positive
  Activation activation = Activation::none;
};
struct BatchNormResult {
  Tensor y;
  Tensor mean, variance;  ///< of the batch, [C], outside the graph; float32, of a float64 x float64. n - 1 divides
};
/// Batch norm in training: x [.., C] by the mean and the biased variance of each channel over all other axes; weight
/// and bias [C]. One value a channel has no variance: ShapeError. Of an empty batch mean and variance are 0.
EVERYO_API BatchNormResult batch_norm(const Tensor& x, const Tensor& weight = {}, const Tensor& bias = {},
                                      const NormOptions& options = {});
/// Batch norm in evaluation: by the mean and variance [C] given, which get no gradient.
EVERYO_API Tensor batch_norm(const Tensor& x, const Tensor& mean, const Tensor& variance, const Tensor& weight,
                             const Tensor& bias, const NormOptions& options = {});
/// Layer norm of x [.., D] by the mean and variance of each D, which stands for trailing axes of `normalized_shape`, as
/// weight and bias are. ShapeError: "positive normalized_shape", "trailing axes".
EVERYO_API Tensor layer_norm(const Tensor& x, const Shape& normalized_shape, const Tensor& weight = {},
                             const Tensor& bias = {}, const NormOptions& options = {});
/// Group norm of x [N, .., C] by the mean and variance of each sample's groups of C / groups neighbouring channels;
/// weight and bias [C]. ShapeError unless groups divide C.
EVERYO_API Tensor group_norm(const Tensor& x, std::int64_t groups, const Tensor& weight = {}, const Tensor& bias = {},
                             const NormOptions& options = {});

// ---- losses ----
enum class Reduction : std::uint8_t { mean, sum, none };
/// "mean", "sum", "none". Throws ValueError "Unknown reduction".
EVERYO_API Reduction reduction_of(std::string_view name);
EVERYO_API std::string_view name_of(Reduction reduction) noexcept;

struct CrossEntropyOptions {
  Reduction reduction = Reduction::mean;       ///< mean: over the rows that count
  std::optional<std::int64_t> ignore_index{};  ///< rows with this label count for nothing; any value
};
/// Softmax cross-entropy: logits [N, K]; targets [N] or [N, 1] integers in 0..K-1, or [N, K] soft labels. Rows all
/// ignored: loss 0, gradient 0. ValueError names the first label out of range and its row.
EVERYO_API Tensor cross_entropy(const Tensor& logits, const Tensor& targets, const CrossEntropyOptions& options = {});
/// Losses of a prediction and a target of the same shape; "same shape" otherwise.
EVERYO_API Tensor mse_loss(const Tensor& prediction, const Tensor& target, Reduction reduction = Reduction::mean);
EVERYO_API Tensor mae_loss(const Tensor& prediction, const Tensor& target, Reduction reduction = Reduction::mean);
/// Of logits.
EVERYO_API Tensor bce_with_logits_loss(const Tensor& logits, const Tensor& target,
                                       Reduction reduction = Reduction::mean);
/// Of probabilities in [0, 1], clipped to [1e-7, 1 - 1e-7].
EVERYO_API Tensor bce_loss(const Tensor& probability, const Tensor& target, Reduction reduction = Reduction::mean);

// ---- shape (reshape, flatten, squeeze, expand_dims: views of the same values) ----
/// One size may be -1.
EVERYO_API Tensor reshape(const Tensor& x, std::span<const std::int64_t> sizes);
inline Tensor reshape(const Tensor& x, std::initializer_list<std::int64_t> sizes) {
  return reshape(x, std::span(sizes.begin(), sizes.size()));
}
/// All axes from `start_axis` on as one: from 0 on the batch, too; 1 keeps it, as the module Flatten does.
EVERYO_API Tensor flatten(const Tensor& x, std::int64_t start_axis = 0);
EVERYO_API Tensor squeeze(const Tensor& x, std::int64_t axis);
EVERYO_API Tensor expand_dims(const Tensor& x, std::int64_t axis);
/// Permutes the axes; empty: reverses them. A copy.
EVERYO_API Tensor transpose(const Tensor& x, const Axes& axes = {});
EVERYO_API Tensor broadcast_to(const Tensor& x, const Shape& shape);

// ---- index ----
/// start, stop, step of one axis as Python's slice; step may be negative, stop is exclusive, and without them the slice
/// goes from one end to the other.
struct Slice {
  std::optional<std::int64_t> start{};
  std::optional<std::int64_t> stop{};
  std::int64_t step = 1;
  bool drop = false;  ///< one index, after which the axis goes away: see at

  /// The element at `index`, negative: from the last, as x[index] of Python: the axis goes away.
  [[nodiscard]] static constexpr Slice at(std::int64_t index) { return {index, {}, 1, true}; }
};
/// One Slice an axis from the first on, the rest whole. A view when the rows stay together, else a copy. Throws
/// ValueError for a step of 0, ShapeError for more slices than axes, and for an index that an axis has not.
EVERYO_API Tensor slice(const Tensor& x, std::span<const Slice> slices);
inline Tensor slice(const Tensor& x, std::initializer_list<Slice> slices) {
  return slice(x, std::span(slices.begin(), slices.size()));
}
/// x[index] along an axis, which goes away. A view for axis 0.
EVERYO_API Tensor select(const Tensor& x, std::int64_t index, std::int64_t axis = 0);
/// Rows of x along an axis at int32 or int64 indices [..]: shape has indices' dimensions in place of the axis. The
/// gradient adds up repeated rows in order. ShapeError names an index out of range.
EVERYO_API Tensor take(const Tensor& x, const Tensor& indices, std::int64_t axis = 0);
EVERYO_API Tensor concatenate(std::span<const Tensor> tensors, std::int64_t axis = 0);
EVERYO_API Tensor stack(std::span<const Tensor> tensors, std::int64_t axis = 0);
/// indices [..] -> [.., classes] of 0 and 1; no gradient. ShapeError names an index out of range.
EVERYO_API Tensor one_hot(const Tensor& indices, std::int64_t classes, DType dtype = float32);

}  // namespace everyo::inline v1
