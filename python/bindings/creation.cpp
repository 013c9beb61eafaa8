#include <string>

#include "common.h"

// Tensors of a shape: filled with one value, or NumPy's sequences.
namespace everyo::python {
namespace {

Tensor made(Tensor value, nb::handle device, bool requires_grad) {
  check_device(device);
  if (requires_grad) value.set_requires_grad();
  return value;
}

// A whole number keeps all its digits in an integer dtype.
Tensor full_of(const Shape& shape, nb::handle value, DType dtype) {
  if (is_floating(dtype) || dtype == boolean || !is_whole(value)) return Tensor::full(shape, number_in(value), dtype);
  return broadcast_to(weak_scalar(value, dtype), shape).copy();
}

}  // namespace

void bind_creation(nb::module_& m) {
  constexpr const char* options =
      "dtype: DTypeLike = None, device: typing.Any = 'cpu', requires_grad: bool = False) -> Tensor";
  const auto filled = [&](const char* name, double value, const char* text) {
    m.def(
        name,
        [value](const nb::args& shape, DTypeLike dtype, nb::handle device, bool requires_grad) {
          return wrap(
              made(Tensor::full(shape_in(shape), value, dtype_in(dtype).value_or(float32)), device, requires_grad));
        },
        "shape"_a, nb::kw_only(), "dtype"_a = nb::none(), "device"_a = "cpu", "requires_grad"_a = false,
        nb::sig((std::string("def ") + name + "(*shape: typing.Union[int, collections.abc.Sequence[int]], " + options)
                    .c_str()),
        text);
  };
  filled("zeros", 0, "Zeros of a shape, zeros(2, 3) or zeros((2, 3)).");
  filled("ones", 1, "Ones of a shape, ones(2, 3) or ones((2, 3)).");
  m.def(
      "full",
      [](nb::handle shape, nb::handle value, DTypeLike dtype, nb::handle device, bool requires_grad) {
        return wrap(made(full_of(shape_in(shape), value, dtype_in(dtype).value_or(float32)), device, requires_grad));
      },
      "shape"_a, "value"_a, nb::kw_only(), "dtype"_a = nb::none(), "device"_a = "cpu", "requires_grad"_a = false,
      nb::sig(
          (std::string("def full(shape: typing.Union[int, collections.abc.Sequence[int]], value: float, *, ") + options)
              .c_str()),
      "One value everywhere.");
  const auto like = [&](const char* name, double value, const char* text) {
    m.def(
        name,
        [value](TensorLike reference, DTypeLike dtype, bool requires_grad) {
          const Tensor as = as_tensor(reference);
          return wrap(
              made(Tensor::full(as.shape(), value, dtype_in(dtype).value_or(as.dtype())), nb::none(), requires_grad));
        },
        "reference"_a, nb::kw_only(), "dtype"_a = nb::none(), "requires_grad"_a = false,
        nb::sig((std::string("def ") + name +
                 "(reference: TensorLike, *, dtype: DTypeLike = None, requires_grad: bool = False) -> Tensor")
                    .c_str()),
        text);
  };
  like("zeros_like", 0, "Zeros of another's shape and dtype.");
  like("ones_like", 1, "Ones of another's shape and dtype.");
  // Sequences are NumPy's to the bit.
  const auto from_numpy = [](const char* function, const nb::tuple& arguments, DTypeLike dtype) {
    const nb::object array = nb::module_::import_("numpy").attr(function)(*arguments);
    return as_tensor(array, dtype_in(dtype).value_or(float32));
  };
  m.def(
      "arange",
      [=](nb::handle start, nb::handle stop, nb::handle step, DTypeLike dtype, nb::handle device, bool requires_grad) {
        // Whole numbers between whole numbers are counted as such, though the default step is written 1.0.
        const bool whole = PyIndex_Check(start.ptr()) && (stop.is_none() || PyIndex_Check(stop.ptr()));
        const bool by_one = PyFloat_CheckExact(step.ptr()) && number_in(step) == 1;
        const nb::object by = whole && by_one ? nb::cast(1) : nb::borrow(step);
        const nb::tuple range = stop.is_none() ? nb::make_tuple(0, start, by) : nb::make_tuple(start, stop, by);
        return wrap(made(from_numpy("arange", range, dtype), device, requires_grad));
      },
      "start"_a, "stop"_a = nb::none(), "step"_a = 1.0, nb::kw_only(), "dtype"_a = nb::none(), "device"_a = "cpu",
      "requires_grad"_a = false,
      nb::sig((std::string("def arange(start: float, stop: typing.Optional[float] = None, step: float = 1.0, *, ") +
               options)
                  .c_str()),
      "start, start + step, .. below stop; from 0 with one argument.");
  m.def(
      "linspace",
      [=](double start, double stop, nb::handle num, DTypeLike dtype, nb::handle device, bool requires_grad) {
        const nb::tuple range = nb::make_tuple(start, stop, shape_in(num).elements());
        return wrap(made(from_numpy("linspace", range, dtype), device, requires_grad));
      },
      "start"_a, "stop"_a, "num"_a = 50, nb::kw_only(), "dtype"_a = nb::none(), "device"_a = "cpu",
      "requires_grad"_a = false,
      nb::sig((std::string("def linspace(start: float, stop: float, num: int = 50, *, ") + options).c_str()),
      "num values from start to stop, both included.");
  m.def(
      "eye",
      [=](nb::handle n, nb::handle columns, DTypeLike dtype, nb::handle device, bool requires_grad) {
        const Shape shape{whole_in(n, "n"), whole_in(columns.is_none() ? n : columns, "m")};
        const nb::tuple sizes = nb::make_tuple(shape[0], shape[1]);
        return wrap(made(from_numpy("eye", sizes, dtype), device, requires_grad));
      },
      "n"_a, "m"_a = nb::none(), nb::kw_only(), "dtype"_a = nb::none(), "device"_a = "cpu", "requires_grad"_a = false,
      nb::sig((std::string("def eye(n: int, m: typing.Optional[int] = None, *, ") + options).c_str()),
      "Ones on the diagonal, [n, m].");
}

}  // namespace everyo::python
