#include <nanobind/ndarray.h>

#include <fmt/format.h>

#include <array>

#include "common.h"

// A tensor's memory for others, and theirs for a tensor: NumPy's arrays, and anything by DLPack.
namespace everyo::python {
namespace {

constexpr nb::dlpack::dtype dlpack_dtype(DType dtype) {
  using Code = nb::dlpack::dtype_code;
  const auto bits = static_cast<std::uint8_t>(8 * size_of(dtype));
  auto code = Code::Float;
  if (dtype == bfloat16) code = Code::Bfloat;
  if (dtype == int64 || dtype == int32) code = Code::Int;
  if (dtype == uint8) code = Code::UInt;
  if (dtype == boolean) code = Code::Bool;
  return {static_cast<std::uint8_t>(code), bits, 1};
}

DType dtype_of_dlpack(nb::dlpack::dtype dtype) {
  for (std::size_t i = 0; i < dtype_count; ++i)
    if (const auto own = static_cast<DType>(i); dtype == dlpack_dtype(own)) return own;
  throw DTypeError(fmt::format("[from_dlpack] code {} with {} bits is no dtype of a tensor", dtype.code, dtype.bits));
}

// A view outside: it holds the memory, not the tensor. Of values that a graph may hold, writes are looked for.
struct OpenView {
  Ref<Storage> storage;
  bool watched;
  OpenView(Ref<Storage> memory, bool watch) : storage(std::move(memory)), watched(watch) {
    if (watched) storage->open_view();
  }
  ~OpenView() {
    if (watched) storage->close_view();
  }
  OpenView(const OpenView&) = delete;
  OpenView& operator=(const OpenView&) = delete;
};

template <class Framework>
nb::object view_of(const Tensor& value, bool watched = true) {
  std::array<std::size_t, static_cast<std::size_t>(Shape::max_rank)> sizes{};
  for (std::int64_t i = 0; i < value.rank(); ++i)
    sizes[static_cast<std::size_t>(i)] = static_cast<std::size_t>(value.shape()[i]);
  void* data = value.escape();
  const nb::capsule owner(new OpenView(value.body()->storage, watched),
                          [](void* p) noexcept { delete static_cast<OpenView*>(p); });
  return nb::cast(nb::ndarray<Framework, nb::device::cpu>(data, static_cast<std::size_t>(value.rank()), sizes.data(),
                                                          owner, nullptr, dlpack_dtype(value.dtype())),
                  nb::rv_policy::reference);
}

// Of the two C types that have 64 bits, nanobind's is not the one that numpy.int64 names.
nb::object array_over(const Tensor& value, bool watched = true) {
  nb::object array = view_of<nb::numpy>(value, watched);
  return value.dtype() == int64 ? array.attr("view")(numpy("int64")) : array;
}

// The capsule that a producer gives; the object itself when it has no __dlpack__ or does not give one so.
nb::object capsule_of(nb::handle object) {
  if (PyCapsule_CheckExact(object.ptr()) || !nb::hasattr(object, "__dlpack__")) return nb::borrow(object);
  const nb::object export_it = object.attr("__dlpack__");
  try {
    return export_it("max_version"_a = nb::make_tuple(1, 0));
  } catch (nb::python_error& e) {
    if (!e.matches(PyExc_TypeError) && !e.matches(PyExc_BufferError)) throw;
  }
  try {
    return export_it();  // of a producer older than versions
  } catch (nb::python_error& e) {
    if (!e.matches(PyExc_TypeError) && !e.matches(PyExc_BufferError)) throw;
    throw DTypeError(fmt::format("[from_dlpack] the object does not give its memory: {}", said_by(e)));
  }
}

Tensor from_dlpack(nb::handle object) {
  if (is_tensor(object)) return tensor_in(object).detach();
  const nb::object source = capsule_of(object);
  if (PyCapsule_CheckExact(source.ptr()) && !PyCapsule_IsValid(source.ptr(), "dltensor") &&
      !PyCapsule_IsValid(source.ptr(), "dltensor_versioned")) {
    const char* name = PyCapsule_GetName(source.ptr());
    if (name == nullptr) PyErr_Clear();
    throw StateError(
        fmt::format("[from_dlpack] the capsule is '{}'; one that was used once holds nothing more, a producer makes a "
                    "new one each time",
                    name != nullptr ? name : ""));
  }
  // Of a capsule, rather than of its producer, nanobind also notes in its name that it is used.
  using Array = nb::ndarray<nb::device::cpu>;
  auto array = std::make_unique<Array>();
  if (!nb::try_cast(source, *array))
    throw DTypeError("[from_dlpack] the object gives no writable array in this machine's memory by DLPack");
  Shape shape;
  std::vector<std::int64_t> strides;
  for (std::size_t i = 0; i < array->ndim(); ++i) {
    shape.push_back(static_cast<std::int64_t>(array->shape(i)));
    strides.push_back(array->stride(i));
  }
  const Spec spec{dtype_of_dlpack(array->dtype()), shape};
  Array* held = array.release();
  Tensor shared = Tensor::borrow(held->data(), spec, strides, [held] {
    if (!nb::is_alive()) return;
    const nb::gil_scoped_acquire acquire;
    delete held;
  });
  shared.body()->storage->watch_always();
  return shared;
}

nb::object to_dlpack(nb::handle self, const nb::kwargs& options) {
  const Tensor& value = tensor_in(self);
  if (value.requires_grad())
    raise(PyExc_BufferError,
          "[dlpack] the receiver would not see that this tensor requires gradients; detach() it first");
  const bool copies = options.contains("copy") && PyObject_IsTrue(options["copy"].ptr()) == 1;
  if (!copies) return view_of<nb::array_api>(value).attr("__dlpack__")(**options);
  nb::dict rest;
  for (const auto [key, option] : options)
    if (nb::cast<std::string_view>(key) != "copy") rest[key] = option;
  return view_of<nb::array_api>(value.copy(), false).attr("__dlpack__")(**rest);
}

}  // namespace

nb::object live_array(const Tensor& value) {
  if (value.dtype() == bfloat16)
    throw DTypeError("[numpy] NumPy has no bfloat16; use numpy(), which gives a float32 copy, or astype() first");
  return array_over(value);
}

nb::object gradient_array(const Tensor& gradient) {
  return gradient.dtype() == bfloat16 ? array_copy(gradient) : array_over(gradient, false);
}

nb::object array_copy(const Tensor& value) {
  const NoGrad no_grad;
  const Tensor own = value.dtype() == bfloat16 ? cast(value, float32) : value.copy();
  return array_over(own, false);
}

void bind_dlpack(nb::module_& m, nb::class_<PyTensor>& tensor) {
  m.def(
      "from_dlpack", [](nb::handle object) { return wrap(from_dlpack(object)); }, "object"_a,
      nb::sig("def from_dlpack(object: object) -> Tensor"),
      "A tensor over the memory of anything with __dlpack__, shared when it is contiguous.");
  tensor
      .def(
          "__dlpack__", [](nb::handle self, const nb::kwargs& options) { return to_dlpack(self, options); },
          nb::sig("def __dlpack__(self, **options: typing.Any) -> object"),
          "The values for another library, shared unless copy=True; BufferError on a tensor that requires gradients.")
      .def(
          "__dlpack_device__", [](nb::handle) { return nb::make_tuple(1, 0); },
          nb::sig("def __dlpack_device__(self) -> tuple[int, int]"), "(1, 0): this machine's memory.");
}

}  // namespace everyo::python
