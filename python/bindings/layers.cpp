#include <nanobind/stl/pair.h>

#include <fmt/format.h>

#include "common.h"

// Ops of layers: products with a bias, windows over images, norms, dropout, losses.
namespace everyo::python {
namespace {

Activation activation_in(nb::handle name) {
  if (name.is_none()) return Activation::none;
  const std::string word = word_in(name, "activation");
  if (word == "relu") return Activation::relu;
  if (word == "sigmoid") return Activation::sigmoid;
  if (word == "tanh") return Activation::tanh;
  if (word == "gelu") return Activation::gelu;
  if (word == "silu") return Activation::silu;
  throw ValueError(fmt::format("[activation] '{}'; relu, sigmoid, tanh, gelu or silu", word));
}

// A whole number, or a pair of them.
Size2D size_in(const char* what, nb::handle size) {
  const Axes sizes = wholes_in(size, what);
  if (sizes.size() == 1) return {sizes[0]};
  if (sizes.size() == 2) return {sizes[0], sizes[1]};
  throw ShapeError(fmt::format("[{}] {} sizes; give one, or a pair", what, sizes.size()));
}

Padding padding_in(nb::handle padding) {
  if (PyUnicode_Check(padding.ptr())) return {std::string_view(word_in(padding, "padding"))};
  if (PyIndex_Check(padding.ptr())) return {whole_in(padding, "padding")};
  throw ShapeError(fmt::format("[padding] Unknown padding {}; give 'valid', 'same' or one number of cells",
                               nb::cast<std::string>(nb::repr(padding))));
}

std::optional<Size2D> stride_in(const char* what, nb::handle stride) {
  if (stride.is_none()) return {};
  return size_in(what, stride);
}

void bind_images(nb::module_& m) {
  m.def(
      "conv2d",
      [](TensorLike x, TensorLike weight, TensorLike bias, nb::handle stride, nb::handle padding, nb::handle dilation,
         nb::handle groups, nb::handle activation) {
        const Tensor image = as_tensor(x), kernel = as_tensor(weight), offset = as_tensor_or_none(bias);
        const Conv2dOptions options{.stride = size_in("conv2d", stride),
                                    .padding = padding_in(padding),
                                    .dilation = size_in("conv2d", dilation),
                                    .groups = whole_in(groups, "groups"),
                                    .activation = activation_in(activation)};
        const nb::gil_scoped_release release;
        return PyTensor{conv2d(image, kernel, offset, options)};
      },
      "x"_a, "weight"_a, "bias"_a = nb::none(), nb::kw_only(), "stride"_a = 1, "padding"_a = "valid", "dilation"_a = 1,
      "groups"_a = 1, "activation"_a = nb::none(),
      nb::sig("def conv2d(x: TensorLike, weight: TensorLike, bias: typing.Optional[TensorLike] = None, *, "
              "stride: typing.Union[int, tuple[int, int]] = 1, padding: typing.Union[str, int] = 'valid', "
              "dilation: typing.Union[int, tuple[int, int]] = 1, groups: int = 1, "
              "activation: typing.Optional[str] = None) -> Tensor"),
      "Cross-correlation: x [N, H, W, C], weight [KH, KW, C / groups, O], bias [O] -> [N, OH, OW, O].");
  m.def(
      "max_pool2d",
      [](TensorLike x, nb::handle size, nb::handle stride, nb::handle padding) {
        const Tensor image = as_tensor(x);
        const Size2D window = size_in("max_pool2d", size);
        const MaxPoolOptions options{.stride = stride_in("max_pool2d", stride), .padding = padding_in(padding)};
        const nb::gil_scoped_release release;
        return PyTensor{max_pool2d(image, window, options)};
      },
      "x"_a, "pool_size"_a = 2, nb::kw_only(), "stride"_a = nb::none(), "padding"_a = "valid",
      nb::sig("def max_pool2d(x: TensorLike, pool_size: typing.Union[int, tuple[int, int]] = 2, *, "
              "stride: typing.Union[int, tuple[int, int], None] = None, padding: typing.Union[str, int] = 'valid') "
              "-> Tensor"),
      "Largest of each window: [N, H, W, C] -> [N, OH, OW, C]; the stride is the window's size unless given.");
  m.def(
      "avg_pool2d",
      [](TensorLike x, nb::handle size, nb::handle stride, nb::handle padding) {
        const Tensor image = as_tensor(x);
        const Size2D window = size_in("avg_pool2d", size);
        const AvgPoolOptions options{.stride = stride_in("avg_pool2d", stride), .padding = padding_in(padding)};
        const nb::gil_scoped_release release;
        return PyTensor{avg_pool2d(image, window, options)};
      },
      "x"_a, "pool_size"_a = 2, nb::kw_only(), "stride"_a = nb::none(), "padding"_a = "valid",
      nb::sig("def avg_pool2d(x: TensorLike, pool_size: typing.Union[int, tuple[int, int]] = 2, *, "
              "stride: typing.Union[int, tuple[int, int], None] = None, padding: typing.Union[str, int] = 'valid') "
              "-> Tensor"),
      "Mean of each window's cells in the image: [N, H, W, C] -> [N, OH, OW, C].");
  m.def(
      "adaptive_avg_pool2d",
      [](TensorLike x, nb::handle output) {
        return wrap(adaptive_avg_pool2d(as_tensor(x), size_in("adaptive_avg_pool2d", output)));
      },
      "x"_a, "output_size"_a,
      nb::sig("def adaptive_avg_pool2d(x: TensorLike, output_size: typing.Union[int, tuple[int, int]]) -> Tensor"),
      "Means of as many windows as the output has cells: [N, H, W, C] -> [N, OH, OW, C].");
  m.def(
      "global_avg_pool2d", [](TensorLike x) { return wrap(global_avg_pool2d(as_tensor(x))); }, "x"_a,
      nb::sig("def global_avg_pool2d(x: TensorLike) -> Tensor"), "Mean of each channel: [N, H, W, C] -> [N, C].");
}

// Running statistics move once a training forward, when the Context says: at once, queued, or never.
void post(const Tensor& buffer, const Tensor& observed, double momentum) {
  const Context& c = context();
  if (c.recompute || c.meta || !buffer.defined()) return;
  const Tensor values = observed.dtype() == buffer.dtype() ? observed : cast(observed, buffer.dtype());
  if (c.buffers != nullptr) {
    c.buffers->add({buffer, values, momentum});
    return;
  }
  BufferUpdates now;
  now.add({buffer, values, momentum});
  apply_updates({&now, 1});
}

void bind_norms(nb::module_& m) {
  m.def(
      "batch_norm",
      [](TensorLike x, TensorLike running_mean, TensorLike running_var, TensorLike weight, TensorLike bias,
         bool training, double momentum, double eps, nb::handle activation) {
        const Tensor input = as_tensor(x), mean = as_tensor_or_none(running_mean), var = as_tensor_or_none(running_var),
                     scale = as_tensor_or_none(weight), offset = as_tensor_or_none(bias);
        const NormOptions options{.eps = eps, .activation = activation_in(activation)};
        const nb::gil_scoped_release release;
        if (!training && mean.defined()) return PyTensor{batch_norm(input, mean, var, scale, offset, options)};
        BatchNormResult result = batch_norm(input, scale, offset, options);
        if (training && input.size() != 0) {
          const NoGrad no_grad;
          post(mean, result.mean, momentum);
          post(var, result.variance, momentum);
        }
        return PyTensor{std::move(result.y)};
      },
      "x"_a, "running_mean"_a = nb::none(), "running_var"_a = nb::none(), "weight"_a = nb::none(),
      "bias"_a = nb::none(), nb::kw_only(), "training"_a = true, "momentum"_a = 0.1, "eps"_a = 1e-5,
      "activation"_a = nb::none(),
      nb::sig("def batch_norm(x: TensorLike, running_mean: typing.Optional[Tensor] = None, "
              "running_var: typing.Optional[Tensor] = None, weight: typing.Optional[TensorLike] = None, "
              "bias: typing.Optional[TensorLike] = None, *, training: bool = True, momentum: float = 0.1, "
              "eps: float = 1e-05, activation: typing.Optional[str] = None) -> Tensor"),
      "x [.., C] by the mean and variance of each channel. In training those of the batch, and the running ones [C], "
      "tensors, move by momentum; else the running ones, or the batch's when there are none.");
  m.def(
      "layer_norm",
      [](TensorLike x, nb::handle shape, TensorLike weight, TensorLike bias, double eps, nb::handle activation) {
        const Tensor input = as_tensor(x);
        return wrap(layer_norm(input, shape_in(shape), as_tensor_or_none(weight), as_tensor_or_none(bias),
                               {.eps = eps, .activation = activation_in(activation)}));
      },
      "x"_a, "normalized_shape"_a, "weight"_a = nb::none(), "bias"_a = nb::none(), nb::kw_only(), "eps"_a = 1e-5,
      "activation"_a = nb::none(),
      nb::sig("def layer_norm(x: TensorLike, normalized_shape: typing.Union[int, collections.abc.Sequence[int]], "
              "weight: typing.Optional[TensorLike] = None, bias: typing.Optional[TensorLike] = None, *, "
              "eps: float = 1e-05, activation: typing.Optional[str] = None) -> Tensor"),
      "x [.., D] by the mean and variance of each D, the trailing axes normalized_shape.");
  m.def(
      "group_norm",
      [](TensorLike x, nb::handle groups, TensorLike weight, TensorLike bias, double eps, nb::handle activation) {
        return wrap(group_norm(as_tensor(x), whole_in(groups, "groups"), as_tensor_or_none(weight),
                               as_tensor_or_none(bias), {.eps = eps, .activation = activation_in(activation)}));
      },
      "x"_a, "groups"_a, "weight"_a = nb::none(), "bias"_a = nb::none(), nb::kw_only(), "eps"_a = 1e-5,
      "activation"_a = nb::none(),
      nb::sig("def group_norm(x: TensorLike, groups: int, weight: typing.Optional[TensorLike] = None, "
              "bias: typing.Optional[TensorLike] = None, *, eps: float = 1e-05, "
              "activation: typing.Optional[str] = None) -> Tensor"),
      "x [N, .., C] by the mean and variance of each sample's groups of neighbouring channels.");
  m.def(
      "dropout", [](TensorLike x, double p, std::uint32_t site) { return wrap(dropout(as_tensor(x), p, site)); }, "x"_a,
      "p"_a = 0.5, nb::kw_only(), "site"_a = 0,
      nb::sig("def dropout(x: TensorLike, p: float = 0.5, *, site: int = 0) -> Tensor"),
      "Zeroes each element with probability p in [0, 1) and multiplies the others by 1 / (1 - p). The mask is a "
      "function of (seed, step, module path, micro-batch, site).");
  m.def(
      "linear",
      [](TensorLike x, TensorLike weight, TensorLike bias, nb::handle activation) {
        const Tensor input = as_tensor(x), w = as_tensor(weight), b = as_tensor_or_none(bias);
        const Activation then = activation_in(activation);
        return wrap(without_gil(input.size() + w.size(), [&] { return linear(input, w, b, then); }));
      },
      "x"_a, "weight"_a, "bias"_a = nb::none(), nb::kw_only(), "activation"_a = nb::none(),
      nb::sig("def linear(x: TensorLike, weight: TensorLike, bias: typing.Optional[TensorLike] = None, *, "
              "activation: typing.Optional[str] = None) -> Tensor"),
      "x [.., D] weight [D, K] + bias [K], then an activation, as one op: the bits of the separate ones.");
}

using Loss = Tensor (*)(const Tensor&, const Tensor&, Reduction);
void bind_loss(nb::module_& m, const char* name, Loss loss, const char* text) {
  m.def(
      name,
      [loss](TensorLike prediction, TensorLike target, std::string_view reduction) {
        return wrap(loss(as_tensor(prediction), as_tensor(target), reduction_of(reduction)));
      },
      "prediction"_a, "target"_a, "reduction"_a = "mean",
      nb::sig((std::string("def ") + name +
               "(prediction: TensorLike, target: TensorLike, reduction: str = 'mean') -> Tensor")
                  .c_str()),
      text);
}

void bind_losses(nb::module_& m) {
  bind_loss(m, "mse_loss", mse_loss, "Squared differences of tensors of the same shape.");
  bind_loss(m, "mae_loss", mae_loss, "Absolute differences of tensors of the same shape.");
  bind_loss(m, "binary_cross_entropy", bce_loss, "Of probabilities in [0, 1], clipped to [1e-7, 1 - 1e-7].");
  bind_loss(m, "binary_cross_entropy_with_logits", bce_with_logits_loss, "Of logits; stable at any size.");
  m.def(
      "cross_entropy",
      [](TensorLike prediction, TensorLike target, std::string_view reduction, nb::handle ignore) {
        const Tensor logits = as_tensor(prediction);
        Tensor targets = as_targets(target);
        // [N] and [N, 1] are class numbers, whatever their dtype; so are whole rows of integers.
        const bool numbers = targets.rank() == 1 || (targets.rank() == 2 && targets.shape()[1] == 1 &&
                                                     logits.rank() == 2 && logits.shape()[1] != 1);
        if (numbers) targets = as_labels(target);
        if (!numbers && !is_floating(targets.dtype())) targets = cast(targets, float32);
        return wrap(cross_entropy(
            logits, targets,
            {.reduction = reduction_of(reduction),
             .ignore_index = ignore.is_none() ? std::optional<std::int64_t>() : whole_in(ignore, "ignore_index")}));
      },
      "prediction"_a, "target"_a, "reduction"_a = "mean", nb::kw_only(), "ignore_index"_a = nb::none(),
      nb::sig("def cross_entropy(prediction: TensorLike, target: TensorLike, reduction: str = 'mean', *, "
              "ignore_index: typing.Optional[int] = None) -> Tensor"),
      "Of logits [N, K] and classes [N] or [N, 1], or soft labels [N, K].");
  m.def(
      "accuracy",
      [](TensorLike prediction, TensorLike target) { return accuracy(as_targets(prediction), as_targets(target)); },
      "prediction"_a, "target"_a, nb::sig("def accuracy(prediction: TensorLike, target: TensorLike) -> float"),
      "Fraction of rows whose class is right; each side scores [N, K] or class numbers [N] or [N, 1].");
  m.def(
      "confusion_matrix",
      [](TensorLike prediction, TensorLike target, nb::handle classes) {
        return array_copy(
            confusion_matrix(as_targets(prediction), as_targets(target), whole_in(classes, "num_classes")));
      },
      "prediction"_a, "target"_a, "num_classes"_a,
      nb::sig("def confusion_matrix(prediction: TensorLike, target: TensorLike, num_classes: int) -> "
              "IntArray"),
      "How often each class (row) was taken for each (column).");
}

}  // namespace

void bind_layers(nb::module_& m) {
  bind_images(m);
  bind_norms(m);
  bind_losses(m);
}

}  // namespace everyo::python
