#include <fmt/format.h>

#include <array>
#include <limits>

#include "common.h"

// Ops of one tensor, reductions, and shapes: each is a function, many also a method.
namespace everyo::python {
namespace {

using Unary = Tensor (*)(const Tensor&);
using Reduction1 = Tensor (*)(const Tensor&, const Axes&, bool);

Tensor run(Unary op, const Tensor& x) {
  return without_gil(x.size(), [&] { return op(x); });
}

struct Named {
  const char* name;
  Unary op;
  const char* text;
  bool method;
};
// Whole numbers stay whole.
Tensor absolute(const Tensor& x) {
  if (x.dtype() == uint8 || x.dtype() == boolean) return x.copy();
  return is_floating(x.dtype()) ? abs(x) : maximum(x, negative(x));
}

constexpr std::array<Named, 9> elementwise{{
    {"exp", exp, "e ** a.", true},
    {"log", log, "Natural logarithm.", true},
    {"sqrt", sqrt, "Square root; the gradient's denominator is at least 1e-12.", true},
    {"abs", absolute, "Absolute value; gradient 0 at 0.", true},
    {"relu", relu, "max(a, 0); gradient 0 at 0.", false},
    {"sigmoid", sigmoid, "1 / (1 + exp(-a)).", false},
    {"tanh", tanh, "Hyperbolic tangent.", false},
    {"gelu", gelu, "a times the normal distribution function, exact.", false},
    {"silu", silu, "a sigmoid(a).", false},
}};
struct NamedReduction {
  const char* name;
  Reduction1 op;
  const char* text;
};
constexpr std::array<NamedReduction, 5> reductions{{
    {"sum", sum, "Sum over axes, all without `axis`; truth values and integers sum to int64."},
    {"mean", mean, "Mean over axes."},
    {"max", max, "Largest over axes; ties split the gradient equally."},
    {"min", min, "Smallest over axes; ties split the gradient equally."},
    {"variance", variance, "Population variance over axes."},
}};

constexpr double infinity = std::numeric_limits<double>::infinity();

Tensor reduce(Reduction1 op, const Tensor& x, nb::handle axis, bool keepdims) {
  const Axes axes = axes_in(axis);
  if (!axis.is_none() && axes.empty())  // as NumPy: each element is reduced by itself
    return reshape(op(reshape(x, {1, x.size()}), {0}, false), x.shape().sizes());
  return without_gil(x.size(), [&] { return op(x, axes, keepdims); });
}

nb::object arg_extreme(const Tensor& x, nb::handle axis, bool largest) {
  const NoGrad no_grad;
  Tensor keys = largest ? x : negative(x.dtype() == uint8 || x.dtype() == boolean ? cast(x, int64) : x);
  if (largest && x.dtype() == boolean) keys = cast(x, uint8);
  const Tensor places = axis.is_none() ? argmax(flatten(keys)) : argmax(keys, whole_in(axis, "axis"));
  return array_copy(places).attr("__getitem__")(nb::tuple());
}

// -1 stands for one size, so sizes are no Shape yet.
Tensor reshaped(const Tensor& x, nb::handle sizes) {
  Axes wanted;
  try {
    wanted = wholes_in(sizes, "shape");
  } catch (const ShapeError& beyond) {
    throw ShapeError(fmt::format("[reshape] Cannot reshape {}: {}", to_string(x.shape()), beyond.what()));
  }
  return reshape(x, wanted);
}

Tensor transposed(const Tensor& x, nb::handle axes) { return transpose(x, axes_in(axes)); }

// Whole numbers between whole bounds stay whole.
Tensor clipped_whole(const Tensor& x, nb::handle low, nb::handle high) {
  if (!low.is_none() && !high.is_none()) (void)clip(Tensor::scalar(0), number_in(low), number_in(high));  // checks
  Tensor y = x;
  // A bound that no value of the dtype reaches does nothing.
  const auto bound = [&](nb::handle number, bool below) {
    if (number.is_none()) return;
    const Tensor end = cast(compared_scalar(number, x.dtype()), float64);
    const Tensor far = cast(Tensor::scalar(below ? -infinity : infinity, float64), x.dtype());
    const Tensor idle = below ? less_equal(end, far) : greater_equal(end, far);
    if (idle.item() != 0) return;
    y = below ? maximum(y, weak_scalar(number, x.dtype())) : minimum(y, weak_scalar(number, x.dtype()));
  };
  bound(low, true);
  bound(high, false);
  return y.body() == x.body() ? x.copy() : y;
}

Tensor clipped(const Tensor& x, nb::handle low, nb::handle high) {
  const auto whole = [](nb::handle number) { return number.is_none() || is_whole(number); };
  if (!is_floating(x.dtype()) && x.dtype() != boolean && whole(low) && whole(high)) return clipped_whole(x, low, high);
  const double from = low.is_none() ? -infinity : number_in(low), to = high.is_none() ? infinity : number_in(high);
  return without_gil(x.size(), [&] { return clip(x, from, to); });
}

std::vector<Tensor> tensors_in(nb::handle list) {
  std::vector<Tensor> tensors;
  for (const nb::handle each : list) tensors.push_back(as_tensor(each));
  return tensors;
}

// Every place of `indices` with itself as index, but for one axis, whose index is the value there.
Tensor gathered(const Tensor& x, TensorLike like, std::int64_t axis) {
  const Tensor indices = as_labels(like);
  if (indices.rank() != x.rank())
    throw ShapeError(fmt::format("[gather] indices of shape {} for a tensor of shape {}; both need as many dimensions",
                                 to_string(indices.shape()), to_string(x.shape())));
  const std::int64_t at = axis_of("gather", axis, x.rank());
  const nb::object places = nb::module_::import_("numpy").attr("indices")(live_array(indices).attr("shape"));
  nb::list key;
  for (std::int64_t i = 0; i < x.rank(); ++i) key.append(i == at ? live_array(indices) : nb::object(places[i]));
  return index(x, nb::steal(PySequence_Tuple(key.ptr())));
}

void bind_unary(nb::module_& m, nb::class_<PyTensor>& tensor) {
  for (const Named& each : elementwise) {
    const Unary op = each.op;
    m.def(
        each.name, [op](TensorLike a) { return wrap(run(op, as_tensor(a))); }, "a"_a,
        nb::sig((std::string("def ") + each.name + "(a: TensorLike) -> Tensor").c_str()), each.text);
    if (each.method)
      tensor.def(
          each.name, [op](const PyTensor& t) { return wrap(run(op, t.value)); },
          nb::sig((std::string("def ") + each.name + "(self) -> Tensor").c_str()), each.text);
  }
  constexpr const char* clip_text = "Into [low, high], None for no bound; the gradient passes on the closed interval.";
  m.def(
      "clip", [](TensorLike a, nb::handle low, nb::handle high) { return wrap(clipped(as_tensor(a), low, high)); },
      "a"_a, "low"_a.none(), "high"_a.none(),
      nb::sig("def clip(a: TensorLike, low: typing.Optional[float], high: typing.Optional[float]) -> Tensor"),
      clip_text);
  tensor.def(
      "clip", [](const PyTensor& t, nb::handle low, nb::handle high) { return wrap(clipped(t.value, low, high)); },
      "low"_a.none(), "high"_a.none(),
      nb::sig("def clip(self, low: typing.Optional[float], high: typing.Optional[float]) -> Tensor"), clip_text);
  m.def(
      "where",
      [](TensorLike condition, nb::handle a, nb::handle b) {
        Tensor which = as_tensor(condition.object, {}, Integers::stay);
        if (which.dtype() != boolean) which = not_equal(which, Tensor::scalar(0, which.dtype()));
        const auto side = [](nb::handle x, nb::handle other) {
          if (is_number(x)) return weak_scalar(x, is_tensor(other) ? tensor_in(other).dtype() : float32);
          return as_tensor(x);
        };
        const Tensor yes = side(a, b), no = side(b, a);
        return wrap(without_gil(which.size(), [&] { return where(which, yes, no); }));
      },
      "condition"_a, "a"_a, "b"_a, nb::sig("def where(condition: TensorLike, a: TensorLike, b: TensorLike) -> Tensor"),
      "a where the condition holds, else b; all three broadcast.");
}

void bind_reductions(nb::module_& m, nb::class_<PyTensor>& tensor) {
  constexpr const char* arguments =
      "axis: typing.Union[int, collections.abc.Sequence[int], None] = None, "
      "keepdims: bool = False) -> Tensor";
  for (const NamedReduction& each : reductions) {
    const Reduction1 op = each.op;
    m.def(
        each.name,
        [op](TensorLike a, nb::handle axis, bool keepdims) { return wrap(reduce(op, as_tensor(a), axis, keepdims)); },
        "a"_a, "axis"_a = nb::none(), "keepdims"_a = false,
        nb::sig((std::string("def ") + each.name + "(a: TensorLike, " + arguments).c_str()), each.text);
    tensor.def(
        each.name,
        [op](const PyTensor& t, nb::handle axis, bool keepdims) { return wrap(reduce(op, t.value, axis, keepdims)); },
        "axis"_a = nb::none(), "keepdims"_a = false,
        nb::sig((std::string("def ") + each.name + "(self, " + arguments).c_str()), each.text);
  }
  tensor
      .def(
          "argmax", [](const PyTensor& t, nb::handle axis) { return arg_extreme(t.value, axis, true); },
          "axis"_a = nb::none(), nb::sig("def argmax(self, axis: typing.Optional[int] = None) -> IntArray"),
          "Places of the first largest along an axis, or in the flattened tensor.")
      .def(
          "argmin", [](const PyTensor& t, nb::handle axis) { return arg_extreme(t.value, axis, false); },
          "axis"_a = nb::none(), nb::sig("def argmin(self, axis: typing.Optional[int] = None) -> IntArray"),
          "Places of the first smallest along an axis, or in the flattened tensor.");
  const auto along = [&](const char* name, Tensor (*op)(const Tensor&, std::int64_t), const char* text) {
    m.def(
        name,
        [op](TensorLike a, nb::handle axis) {
          const Tensor x = as_tensor(a);
          const std::int64_t at = whole_in(axis, "axis");
          return wrap(without_gil(x.size(), [&] { return op(x, at); }));
        },
        "a"_a, "axis"_a = -1,
        nb::sig((std::string("def ") + name + "(a: TensorLike, axis: int = -1) -> Tensor").c_str()), text);
  };
  along("softmax", softmax, "exp(a) over its sum along an axis, shifted by the largest.");
  along("log_softmax", log_softmax, "log(softmax(a)).");
}

void bind_shapes(nb::module_& m, nb::class_<PyTensor>& tensor) {
  m.def(
      "reshape", [](TensorLike a, nb::handle shape) { return wrap(reshaped(as_tensor(a), shape)); }, "a"_a, "shape"_a,
      nb::sig("def reshape(a: TensorLike, shape: typing.Union[int, collections.abc.Sequence[int]]) -> Tensor"),
      "The same elements in another shape; one size may be -1.");
  tensor.def(
      "reshape",
      [](const PyTensor& t, const nb::args& shape) {
        return wrap(reshaped(t.value, shape.size() == 1 ? nb::handle(shape[0]) : nb::handle(shape)));
      },
      "shape"_a, nb::sig("def reshape(self, *shape: typing.Union[int, collections.abc.Sequence[int]]) -> Tensor"),
      "The same elements in another shape, reshape(2, 3) or reshape((2, 3)); one size may be -1.");
  m.def(
      "transpose", [](TensorLike a, nb::handle axes) { return wrap(transposed(as_tensor(a), axes)); }, "a"_a,
      "axes"_a = nb::none(),
      nb::sig("def transpose(a: TensorLike, axes: typing.Optional[collections.abc.Sequence[int]] = None) -> Tensor"),
      "Permutes the axes; reverses them without `axes`.");
  tensor.def(
      "transpose",
      [](const PyTensor& t, const nb::args& axes) {
        if (axes.size() == 1) return wrap(transposed(t.value, axes[0]));
        return wrap(transposed(t.value, axes));
      },
      "axes"_a, nb::sig("def transpose(self, *axes: typing.Union[int, collections.abc.Sequence[int], None]) -> Tensor"),
      "Permutes the axes; reverses them without any.");
  tensor.def_prop_ro(
      "T", [](const PyTensor& t) { return wrap(transpose(t.value)); }, nb::sig("def T(self) -> Tensor"),
      "The axes reversed.");
  m.def(
      "flatten",
      [](TensorLike a, nb::handle start) { return wrap(flatten(as_tensor(a), whole_in(start, "start_dim"))); }, "a"_a,
      "start_dim"_a = 0, nb::sig("def flatten(a: TensorLike, start_dim: int = 0) -> Tensor"),
      "Joins the axes from start_dim on.");
  tensor.def(
      "flatten",
      [](const PyTensor& t, nb::handle start) { return wrap(flatten(t.value, whole_in(start, "start_dim"))); },
      "start_dim"_a = 0, nb::sig("def flatten(self, start_dim: int = 0) -> Tensor"),
      "Joins the axes from start_dim on.");
  m.def(
      "squeeze", [](TensorLike a, nb::handle axis) { return wrap(squeeze(as_tensor(a), whole_in(axis, "axis"))); },
      "a"_a, "axis"_a, nb::sig("def squeeze(a: TensorLike, axis: int) -> Tensor"), "Drops an axis of size 1.");
  m.def(
      "expand_dims",
      [](TensorLike a, nb::handle axis) { return wrap(expand_dims(as_tensor(a), whole_in(axis, "axis"))); }, "a"_a,
      "axis"_a, nb::sig("def expand_dims(a: TensorLike, axis: int) -> Tensor"), "Adds an axis of size 1.");
  m.def(
      "broadcast_to", [](TensorLike a, nb::handle shape) { return wrap(broadcast_to(as_tensor(a), shape_in(shape))); },
      "a"_a, "shape"_a,
      nb::sig("def broadcast_to(a: TensorLike, shape: typing.Union[int, collections.abc.Sequence[int]]) -> Tensor"),
      "Repeats axes of size 1 to a shape.");
  m.def(
      "concatenate",
      [](nb::handle list, nb::handle axis) { return wrap(concatenate(tensors_in(list), whole_in(axis, "axis"))); },
      "tensors"_a, "axis"_a = 0,
      nb::sig("def concatenate(tensors: collections.abc.Sequence[TensorLike], axis: int = 0) -> Tensor"),
      "Joins tensors along an axis they have.");
  m.def(
      "stack", [](nb::handle list, nb::handle axis) { return wrap(stack(tensors_in(list), whole_in(axis, "axis"))); },
      "tensors"_a, "axis"_a = 0,
      nb::sig("def stack(tensors: collections.abc.Sequence[TensorLike], axis: int = 0) -> Tensor"),
      "Joins tensors of one shape along a new axis.");
  m.def(
      "slice_", [](TensorLike a, nb::handle key) { return wrap(index(as_tensor(a), key)); }, "a"_a, "key"_a,
      nb::sig("def slice_(a: TensorLike, key: typing.Any) -> Tensor"), "a[key].");
  m.def(
      "take",
      [](TensorLike a, TensorLike indices, nb::handle axis) {
        return wrap(take(as_tensor(a), as_labels(indices), whole_in(axis, "axis")));
      },
      "a"_a, "indices"_a, "axis"_a = 0,
      nb::sig("def take(a: TensorLike, indices: TensorLike, axis: int = 0) -> Tensor"),
      "Rows of a along an axis; indices' dimensions [..] stand in place of it. Gradients touch the rows used.");
  m.def(
      "gather",
      [](TensorLike a, TensorLike indices, nb::handle axis) {
        return wrap(gathered(as_tensor(a), indices, whole_in(axis, "axis")));
      },
      "a"_a, "indices"_a, "axis"_a, nb::sig("def gather(a: TensorLike, indices: TensorLike, axis: int) -> Tensor"),
      "a's elements at indices along an axis, as numpy.take_along_axis; elsewhere each place stays. indices [..] has "
      "a's dimensions; the result has its shape.");
  m.def(
      "one_hot",
      [](TensorLike indices, nb::handle classes, DTypeLike dtype) {
        return wrap(
            one_hot(flatten(as_labels(indices)), whole_in(classes, "num_classes"), dtype_in(dtype).value_or(float32)));
      },
      "indices"_a, "num_classes"_a, nb::kw_only(), "dtype"_a = nb::none(),
      nb::sig("def one_hot(indices: TensorLike, num_classes: int, *, dtype: DTypeLike = None) -> Tensor"),
      "Indices, flattened, as rows [n, num_classes] of 0 and 1.");
  m.def(
      "cast", [](TensorLike a, DTypeLike dtype) { return wrap(as_tensor(a.object, dtype_in(dtype), Integers::stay)); },
      "a"_a, "dtype"_a, nb::sig("def cast(a: TensorLike, dtype: DTypeLike) -> Tensor"), "The values in another dtype.");
}

}  // namespace

void bind_ops(nb::module_& m, nb::class_<PyTensor>& tensor) {
  bind_unary(m, tensor);
  bind_reductions(m, tensor);
  bind_shapes(m, tensor);
  const auto bind_product = [&](const char* name) {
    tensor.def(
        name,
        [](const PyTensor& t, TensorLike other) {
          const Tensor y = as_tensor(other);
          return wrap(without_gil(t.value.size() + y.size(), [&] { return matmul(t.value, y); }));
        },
        "other"_a, nb::sig((std::string("def ") + name + "(self, other: TensorLike) -> Tensor").c_str()),
        "matmul(self, other).");
  };
  bind_product("matmul");
  bind_product("dot");
}

}  // namespace everyo::python
