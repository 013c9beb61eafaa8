#pragma once
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "everyo/everyo.h"

// What the bindings share. Each room of the library has one file; none of them computes.
namespace everyo::python {

namespace nb = nanobind;
using namespace nb::literals;

// ---- errors ----
void bind_errors(nb::module_& m);
/// The Python class of an error of this kind, borrowed.
PyObject* exception_of(ErrorKind kind) noexcept;

// ---- tensors ----

/// What a Python tensor has beside the library's handle; most have none.
struct Extras {
  std::string name;
  std::shared_ptr<Tensor> retained;  ///< set by retain_grad(); its value is the gradient, undefined at first
};
/// `everyo.Tensor`.
struct PyTensor {
  Tensor value;
  std::unique_ptr<Extras> extras{};
};

/// An argument that may be a Tensor or anything NumPy takes for an array.
struct TensorLike {
  nb::handle object;
};
/// An argument that names a dtype: a name, a NumPy dtype or type, or None.
struct DTypeLike {
  nb::handle object;
};

bool is_tensor(nb::handle object) noexcept;
/// What a Python tensor holds; only after is_tensor(). Throws StateError when its __init__ has not run.
PyTensor& py_tensor(nb::handle object);
inline const Tensor& tensor_in(nb::handle object) { return py_tensor(object).value; }
/// None takes the name away. TypeError for what is no text.
void set_name(PyTensor& self, nb::handle name);
nb::object wrap(Tensor value);
nb::object wrap(std::vector<Tensor> values);

/// str(object)
std::string text_of(nb::handle object);

/// What becomes of integers that come without a dtype.
enum class Integers { to_float32, stay };
/// A tensor of anything array-like. Memory is shared when the dtype fits and the array is contiguous and writable.
/// Throws DTypeError for what is no array of numbers.
Tensor as_tensor(nb::handle object, std::optional<DType> dtype = {}, Integers integers = Integers::to_float32);
inline Tensor as_tensor(TensorLike like) { return as_tensor(like.object); }
/// The same, undefined for None.
inline Tensor as_tensor_or_none(TensorLike like) { return like.object.is_none() ? Tensor() : as_tensor(like.object); }
/// Labels, or rows of shares: integers stay integers. ShapeError for one that 64 bits do not hold.
Tensor as_targets(TensorLike like);
/// Labels and indices: integers stay integers; floating values must be whole numbers.
Tensor as_labels(TensorLike like);
/// None gives nothing. Throws DTypeError for a name that is no dtype.
std::optional<DType> dtype_in(DTypeLike like);

// ---- numbers ----

/// A Python or NumPy number, which is weak in promotion.
bool is_number(nb::handle object) noexcept;
/// A whole one, or a truth value.
bool is_whole(nb::handle number) noexcept;
double number_in(nb::handle object);
/// A number as a tensor of no dimensions that does not widen `other`'s dtype within its kind. OverflowError for a whole
/// number that the dtype does not hold.
Tensor weak_scalar(nb::handle number, DType other);
/// The same to be compared with: a whole number that the dtype does not hold is beyond every value of it.
Tensor compared_scalar(nb::handle number, DType other);
/// Throws OverflowError when an element of whole numbers is none of an integer dtype.
void check_fits(const Tensor& whole, DType dtype);
/// The value of a whole number; `what` names it. TypeError for another kind, ShapeError beyond 64 bits.
std::int64_t whole_in(nb::handle object, std::string_view what);
/// Values of one whole number or of a sequence of them. Throws as whole_in.
Axes wholes_in(nb::handle object, std::string_view what);
/// Sizes from one whole number or a sequence of them.
Shape shape_in(nb::handle object);
/// Sizes from `f(2, 3)` or `f((2, 3))`.
Shape shape_in(const nb::args& sizes);
/// None: all axes (empty); one whole number; or a sequence.
Axes axes_in(nb::handle object);

/// Throws a built-in exception.
[[noreturn]] void raise(PyObject* type, const std::string& message);
/// The name of an object's class.
std::string class_name(nb::handle object);
/// Class and message of an exception, without its traceback.
std::string said_by(const nb::python_error& error);
/// A word: text, or a TypeError that names it.
std::string word_in(nb::handle object, std::string_view what);

// ---- conversion ----

/// Throws the device error unless None, a Device or the name of a device that is there.
void check_device(nb::handle device);
/// Sizes as a tuple; a dtype's name as a str.
nb::object shape_tuple(const Shape& shape);
nb::object name_string(DType dtype);
/// A live NumPy array over the tensor's memory, which it keeps alive. Throws DTypeError for bfloat16.
nb::object live_array(const Tensor& value);
/// The same of a gradient, which no graph holds; a float32 copy of bfloat16.
nb::object gradient_array(const Tensor& gradient);
/// A NumPy array with a copy; bfloat16 becomes float32.
nb::object array_copy(const Tensor& value);
/// numpy.<name>
nb::object numpy(const char* name);
/// x[key] as NumPy does.
Tensor index(const Tensor& x, nb::handle key);
/// A generator from all that numpy.random.default_rng takes, with its bits. TypeError for another kind, and for a NumPy
/// generator whose bits are not PCG64's.
Generator generator_in(nb::handle seed);
/// Draws with one; a NumPy generator has then moved on.
void draw_with(nb::handle seed, const std::function<void(Generator&)>& draw);

/// Runs `work` with the interpreter given free, unless the work is too small for the exchange to pay.
template <class F>
auto without_gil(std::int64_t elements, F&& work) {
  constexpr std::int64_t small = 1 << 13;
  if (elements < small) return work();
  const nb::gil_scoped_release release;
  return work();
}

nb::class_<PyTensor> bind_tensor(nb::module_& m);
void bind_pickle(nb::class_<PyTensor>& tensor);
void bind_dlpack(nb::module_& m, nb::class_<PyTensor>& tensor);
/// Operators and methods of the class, too.
void bind_arithmetic(nb::module_& m, nb::class_<PyTensor>& tensor);
void bind_ops(nb::module_& m, nb::class_<PyTensor>& tensor);
void bind_creation(nb::module_& m);
void bind_layers(nb::module_& m);
void bind_autograd(nb::module_& m, nb::class_<PyTensor>& tensor);
void bind_node(nb::module_& m, nb::class_<PyTensor>& tensor);
void bind_random(nb::module_& m);
void bind_optim(nb::module_& m);
void bind_nn(nb::module_& m);
void bind_io(nb::module_& m);
void bind_onnx(nb::module_& m);
void bind_data(nb::module_& m);
void bind_precision(nb::module_& m);
void bind_profile(nb::module_& m);
void bind_verify(nb::module_& m);
void bind_distributed(nb::module_& m);
void bind_spawn(nb::module_& m);
void bind_data_parallel(nb::module_& m);
void bind_logging();

}  // namespace everyo::python

namespace nanobind::detail {

template <>
struct type_caster<everyo::python::TensorLike> {
  NB_TYPE_CASTER(everyo::python::TensorLike, const_name("TensorLike"))
  bool from_python(handle source, std::uint32_t, cleanup_list*) noexcept {
    value.object = source;
    return true;
  }
  static handle from_cpp(everyo::python::TensorLike like, rv_policy, cleanup_list*) noexcept {
    return like.object.inc_ref();
  }
};
template <>
struct type_caster<everyo::python::DTypeLike> {
  NB_TYPE_CASTER(everyo::python::DTypeLike, const_name("DTypeLike"))
  bool from_python(handle source, std::uint32_t, cleanup_list*) noexcept {
    value.object = source;
    return true;
  }
  static handle from_cpp(everyo::python::DTypeLike like, rv_policy, cleanup_list*) noexcept {
    return like.object.inc_ref();
  }
};

}  // namespace nanobind::detail
