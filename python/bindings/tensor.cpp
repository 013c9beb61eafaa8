#include <fmt/format.h>

#include "common.h"

// The class Tensor: its attributes, conversions and Python's protocols. Operators are in arithmetic.cpp.
namespace everyo::python {
namespace {

PyTypeObject* tensor_type = nullptr;  // owned by the module

Extras& extras_of(PyTensor& self) {
  if (!self.extras) self.extras = std::make_unique<Extras>();
  return *self.extras;
}

void construct(PyTensor* self, nb::handle data, DTypeLike dtype, nb::handle device, bool requires_grad,
               nb::handle name) {
  check_device(device);
  Tensor value;
  {
    const NoGrad no_grad;
    value = as_tensor(data, dtype_in(dtype));
    if (is_tensor(data) && value.body() == tensor_in(data).body()) value = value.detach();
  }
  if (requires_grad) value.set_requires_grad();
  new (self) PyTensor{std::move(value)};
  set_name(*self, name);
}

Tensor gradient_of(const PyTensor& self) {
  if (self.extras && self.extras->retained) return *self.extras->retained;
  return self.value.grad();
}

void set_gradient(PyTensor& self, nb::handle value) {
  if (value.is_none()) {
    self.value.zero_grad();
    if (self.extras && self.extras->retained) *self.extras->retained = {};
    return;
  }
  const NoGrad no_grad;
  Tensor gradient = as_tensor(value, self.value.dtype());
  if (gradient.shape() != self.value.shape())
    throw StateError(fmt::format("[grad] the gradient has shape {}, the tensor {}; give one of the tensor's shape",
                                 to_string(gradient.shape()), to_string(self.value.shape())),
                     ErrorKind::gradient);
  if (self.extras && self.extras->retained) {
    *self.extras->retained = gradient.copy();
    return;
  }
  if (!self.value.body()->leaf)
    throw StateError("[grad] only a leaf that requires gradients has a place for one; use retain_grad()",
                     ErrorKind::gradient);
  // The array that grad gave out may be the very memory: `t.grad *= 2`.
  const Tensor old = self.value.grad();
  if (old.defined() && old.bytes() == gradient.bytes()) return;
  GradSlot& slot = self.value.body()->leaf->grad;
  self.value.zero_grad();
  if (slot.external)
    slot.value.assign(gradient);
  else
    slot.value = gradient.copy();
  slot.full = true;
}

void retain_gradient(PyTensor& self) {
  if (!self.value.requires_grad())
    throw StateError("[retain_grad] the tensor does not require gradients", ErrorKind::gradient);
  if (self.value.is_leaf() || extras_of(self).retained) return;
  const auto kept = std::make_shared<Tensor>();
  self.extras->retained = kept;
  on_gradient(self.value, [kept, output = self.value.body()->output](std::span<const Tensor> gradients) {
    const Tensor& gradient = gradients[output];
    if (!gradient.defined()) return;
    const NoGrad no_grad;
    *kept = kept->defined() ? add(*kept, gradient) : gradient.copy();
  });
}

std::string represent(nb::handle self) {
  const PyTensor& tensor = py_tensor(self);
  const Tensor& value = tensor.value;
  constexpr std::int64_t most_shown = 1000;
  std::string body = fmt::format("<{} elements>", value.size());
  if (value.is_meta()) body = "<meta>";
  if (!value.is_meta() && value.size() <= most_shown) {
    const nb::object text = nb::module_::import_("numpy").attr("array2string")(array_copy(value), "separator"_a = ", ");
    body = nb::cast<std::string>(text);
  }
  std::string text = fmt::format("{}({}, shape={}, dtype={}", nb::cast<std::string>(self.type().attr("__name__")), body,
                                 to_string(value.shape()), name_of(value.dtype()));
  if (value.requires_grad()) text += ", requires_grad=True";
  if (tensor.extras && !tensor.extras->name.empty()) text += fmt::format(", name='{}'", tensor.extras->name);
  return text + ")";
}

bool truth(const PyTensor& self) {
  if (self.value.size() != 1)
    throw ValueError(fmt::format("[bool] the truth of {} values is ambiguous; use a comparison and sum() or item()",
                                 self.value.size()));
  return self.value.item() != 0;
}

nb::object item(const PyTensor& self) {
  const double value = self.value.item();
  switch (self.value.dtype()) {
    case DType::boolean: return nb::bool_(value != 0);
    case DType::int64: return nb::int_(self.value.data<std::int64_t>()[0]);
    case DType::int32:
    case DType::uint8: return nb::int_(static_cast<std::int64_t>(value));
    default: return nb::float_(value);
  }
}

void set_item(const PyTensor& self, nb::handle key, nb::handle value) {
  if (self.value.requires_grad() && context().grad)
    throw StateError("[setitem] the tensor takes part in gradients; write inside no_grad(), or use where()",
                     ErrorKind::gradient);
  const nb::object right = is_tensor(value) ? live_array(tensor_in(value)) : nb::borrow(value);
  const nb::object at = is_tensor(key) ? live_array(tensor_in(key)) : nb::borrow(key);
  const nb::object array = live_array(self.value);
  if (PyObject_SetItem(array.ptr(), at.ptr(), right.ptr()) != 0) {
    nb::python_error error;
    if (error.matches(PyExc_IndexError)) throw ShapeError(fmt::format("[setitem] {}", said_by(error)));
    throw error;
  }
  self.value.body()->storage->bump_version();
}

nb::object moved(nb::handle self, nb::handle device, DTypeLike dtype) {
  check_device(device);
  const std::optional<DType> to = dtype_in(dtype);
  const Tensor& value = tensor_in(self);
  if (!to || *to == value.dtype()) return nb::borrow(self);
  return wrap(without_gil(value.size(), [&] { return cast(value, *to); }));
}

void bind_attributes(nb::class_<PyTensor>& tensor) {
  tensor
      .def_prop_rw(
          "data", [](const PyTensor& t) { return live_array(t.value); },
          [](const PyTensor& t, nb::handle value) {
            const NoGrad no_grad;
            t.value.assign(as_tensor(value, t.value.dtype()));
          },
          nb::for_getter(nb::sig("def data(self) -> Array")),
          nb::for_setter(nb::sig("def data(self, value: TensorLike, /) -> None")),
          "The values as a live NumPy array: writing there changes the tensor. Setting it writes values of the same "
          "shape, converted to the tensor's dtype.")
      .def_prop_rw(
          "grad",
          [](const PyTensor& t) -> nb::object {
            const Tensor gradient = gradient_of(t);
            return gradient.defined() ? gradient_array(gradient) : nb::none();
          },
          [](PyTensor& t, nb::handle value) { set_gradient(t, value); },
          nb::for_getter(nb::sig("def grad(self) -> typing.Optional[Array]")),
          nb::for_setter(nb::sig("def grad(self, value: typing.Optional[TensorLike], /) -> None")), nb::arg().none(),
          "The gradient as a live NumPy array, None until a backward has reached this tensor.")
      .def_prop_ro(
          "shape", [](const PyTensor& t) { return shape_tuple(t.value.shape()); },
          nb::sig("def shape(self) -> tuple[int, ...]"), "Sizes of the dimensions, outermost first.")
      .def_prop_ro(
          "ndim", [](const PyTensor& t) { return t.value.rank(); }, "Number of dimensions.")
      .def_prop_ro(
          "size", [](const PyTensor& t) { return t.value.size(); }, "Number of elements.")
      .def_prop_ro(
          "dtype", [](const PyTensor& t) { return name_string(t.value.dtype()); }, nb::sig("def dtype(self) -> str"),
          "Name of the element type, such as \"float32\".")
      .def_prop_ro(
          "device", [](const PyTensor&) { return nb::module_::import_("everyo.core.device").attr("CPU"); },
          nb::sig("def device(self) -> typing.Any"), "The device, always the CPU.")
      .def_prop_rw(
          "requires_grad", [](const PyTensor& t) { return t.value.requires_grad(); },
          [](const PyTensor& t, bool on) { t.value.set_requires_grad(on); },
          "Whether backward() gives this tensor, or what it was made from, a gradient. EveryOGradientError for "
          "integers and for what an op made.")
      .def_prop_ro(
          "is_leaf", [](const PyTensor& t) { return t.value.is_leaf(); }, "Was it made by no recorded op?")
      .def_prop_ro(
          "retains_grad", [](const PyTensor& t) { return t.extras && t.extras->retained != nullptr; },
          "Has retain_grad() been called?")
      .def_prop_rw(
          "name",
          [](const PyTensor& t) -> nb::object {
            if (!t.extras || t.extras->name.empty()) return nb::none();
            return nb::cast(t.extras->name);
          },
          [](PyTensor& t, nb::handle name) { set_name(t, name); },
          nb::for_getter(nb::sig("def name(self) -> typing.Optional[str]")),
          nb::for_setter(nb::sig("def name(self, value: typing.Optional[str], /) -> None")), nb::arg().none(),
          "What errors call the tensor.");
}

void bind_conversions(nb::class_<PyTensor>& tensor) {
  tensor
      .def(
          "numpy", [](const PyTensor& t) { return array_copy(t.value); }, nb::sig("def numpy(self) -> Array"),
          "A copy of the values as a NumPy array; bfloat16 becomes float32.")
      .def(
          "tolist", [](const PyTensor& t) { return array_copy(t.value).attr("tolist")(); },
          nb::sig("def tolist(self) -> typing.Any"), "The values as nested lists, a number for a scalar.")
      .def("item", &item, nb::sig("def item(self) -> typing.Any"),
           "The only element as a Python number. ValueError unless there is exactly one.")
      .def(
          "astype", [](nb::handle self, DTypeLike dtype) { return moved(self, nb::none(), dtype); }, "dtype"_a,
          nb::sig("def astype(self, dtype: DTypeLike) -> Tensor"),
          "The values in another dtype, differentiable between floating dtypes; itself when it has that dtype.")
      .def("to", &moved, "device"_a = nb::none(), nb::kw_only(), "dtype"_a = nb::none(),
           nb::sig("def to(self, device: typing.Any = None, *, dtype: DTypeLike = None) -> Tensor"),
           "The values on a device and in a dtype; itself when nothing changes.")
      .def(
          "cpu", [](nb::handle self) { return nb::borrow(self); }, nb::sig("def cpu(self) -> Tensor"), "Itself.")
      .def(
          "cuda",
          [](nb::handle self, bool strict) {
            nb::module_::import_("everyo.core.device").attr("device")("cuda", "strict"_a = strict);
            return nb::borrow(self);
          },
          nb::kw_only(), "strict"_a = false, nb::sig("def cuda(self, *, strict: bool = False) -> Tensor"),
          "Itself, with a logged warning: there is no CUDA. EveryODeviceError when strict.")
      .def(
          "detach", [](const PyTensor& t) { return wrap(t.value.detach()); }, nb::sig("def detach(self) -> Tensor"),
          "The same values outside the graph; shares the memory.")
      .def(
          "clone",
          [](const PyTensor& t) {
            Tensor copy = t.value.copy();
            if (t.value.requires_grad()) copy.set_requires_grad();
            return wrap(std::move(copy));
          },
          nb::sig("def clone(self) -> Tensor"), "A copy of the values as a new leaf.")
      .def(
          "__array__",
          [](const PyTensor& t, nb::handle dtype, nb::handle copy) {
            if (dtype.is_none() && (copy.is_none() || !nb::cast<bool>(copy)) && t.value.dtype() != bfloat16)
              return live_array(t.value);
            const nb::object array = array_copy(t.value);
            return dtype.is_none() ? array : array.attr("astype")(dtype, "copy"_a = false);
          },
          "dtype"_a = nb::none(), "copy"_a = nb::none(),
          nb::sig("def __array__(self, dtype: typing.Any = None, copy: typing.Optional[bool] = None) -> "
                  "Array"),
          "For NumPy: the live values, or a copy in another dtype.");
}

void bind_protocols(nb::class_<PyTensor>& tensor) {
  tensor.def("__repr__", &represent, nb::sig("def __repr__(self) -> str"))
      .def("__bool__", &truth)
      .def("__float__", [](const PyTensor& t) { return t.value.item(); })
      .def(
          "__int__", [](const PyTensor& t) { return nb::int_(item(t)); }, nb::sig("def __int__(self) -> int"))
      .def(
          "__hash__",
          [](nb::handle self) { return static_cast<Py_hash_t>(reinterpret_cast<std::uintptr_t>(self.ptr()) >> 4); },
          nb::sig("def __hash__(self) -> int"))
      .def("__len__",
           [](const PyTensor& t) {
             if (t.value.rank() == 0) raise(PyExc_TypeError, "[len] a tensor of no dimensions has no length");
             return static_cast<std::size_t>(t.value.shape()[0]);
           })
      .def(
          "__iter__",
          [](const PyTensor& t) {
            if (t.value.rank() == 0) raise(PyExc_TypeError, "[iter] a tensor of no dimensions cannot be iterated over");
            nb::list rows;
            for (std::int64_t i = 0; i < t.value.shape()[0]; ++i) rows.append(wrap(select(t.value, i)));
            return nb::steal(PyObject_GetIter(rows.ptr()));
          },
          nb::sig("def __iter__(self) -> collections.abc.Iterator[Tensor]"))
      .def(
          "__getitem__", [](const PyTensor& t, nb::handle key) { return wrap(index(t.value, key)); }, "key"_a.none(),
          nb::sig("def __getitem__(self, key: typing.Any, /) -> Tensor"),
          "As NumPy: integers, slices, ..., None, truth masks and integer arrays. Differentiable.")
      .def("__setitem__", &set_item, "key"_a.none(), "value"_a,
           nb::sig("def __setitem__(self, key: typing.Any, value: TensorLike, /) -> None"),
           "Writes values in place, outside the graph.");
}

}  // namespace

void set_name(PyTensor& self, nb::handle name) {
  if (name.is_none() && !self.extras) return;
  extras_of(self).name = name.is_none() ? std::string() : word_in(name, "name");
  // Errors and clipping name a slot by it.
  if (self.value.body()->leaf) self.value.body()->leaf->name = self.extras->name;
}

bool is_tensor(nb::handle object) noexcept { return PyObject_TypeCheck(object.ptr(), tensor_type) != 0; }
PyTensor& py_tensor(nb::handle object) {
  if (!nb::inst_ready(object)) [[unlikely]]
    throw StateError("[Tensor] a tensor is used before its __init__ has run; a subclass must call super().__init__()");
  return *nb::inst_ptr<PyTensor>(object);
}
nb::object wrap(Tensor value) { return nb::cast(PyTensor{std::move(value)}, nb::rv_policy::move); }
nb::object wrap(std::vector<Tensor> values) {
  nb::list list;
  for (Tensor& value : values) list.append(wrap(std::move(value)));
  return nb::object(list);
}

void check_device(nb::handle device) {
  if (device.is_none()) return;
  if (PyUnicode_Check(device.ptr()) && nb::cast<std::string_view>(device) == "cpu") return;
  nb::module_::import_("everyo.core.device").attr("device")(device);
}

nb::class_<PyTensor> bind_tensor(nb::module_& m) {
  nb::class_<PyTensor> tensor(m, "Tensor", nb::is_weak_referenceable(),
                              "Values of one dtype and shape, row-major, with the graph that made them.");
  tensor_type = reinterpret_cast<PyTypeObject*>(tensor.ptr());
  tensor.def("__init__", &construct, "data"_a.none(), nb::kw_only(), "dtype"_a = nb::none(), "device"_a = "cpu",
             "requires_grad"_a = false, "name"_a = nb::none(),
             nb::sig("def __init__(self, data: TensorLike, *, dtype: DTypeLike = None, device: typing.Any = 'cpu', "
                     "requires_grad: bool = False, name: typing.Optional[str] = None) -> None"),
             "From anything array-like. Python floats and all integers become float32, unless dtype says otherwise; "
             "floating arrays keep their precision. Shares the memory of a writable, contiguous array of that dtype.");
  bind_attributes(tensor);
  bind_conversions(tensor);
  bind_protocols(tensor);
  bind_pickle(tensor);
  tensor
      .def(
          "zero_grad", [](PyTensor& t) { set_gradient(t, nb::none()); }, "Forgets the gradient: grad becomes None.")
      .def(
          "retain_grad",
          [](nb::handle self) {
            retain_gradient(py_tensor(self));
            return nb::borrow(self);
          },
          nb::sig("def retain_grad(self) -> Tensor"),
          "Keeps the gradient of a tensor that an op made. Returns itself.");
  // NumPy leaves `array + tensor` to the tensor, so that the graph is not lost.
  tensor.attr("__array_priority__") = 1000;
  tensor.attr("__array_ufunc__") = nb::none();
  m.def(
      "as_tensor",
      [](nb::handle data, nb::handle device, DTypeLike dtype) {
        if (is_tensor(data)) return moved(data, device, dtype);
        check_device(device);
        return wrap(as_tensor(data, dtype_in(dtype)));
      },
      "data"_a.none(), nb::kw_only(), "device"_a = nb::none(), "dtype"_a = nb::none(),
      nb::sig("def as_tensor(data: TensorLike, *, device: typing.Any = None, dtype: DTypeLike = None) -> Tensor"),
      "A tensor of anything array-like; the same object when it is one already and nothing changes.");
  m.def(
      "dtype_name",
      [](nb::handle dtype) {
        if (is_tensor(dtype)) return std::string(name_of(tensor_in(dtype).dtype()));
        return std::string(name_of(dtype_in({dtype}).value_or(float32)));
      },
      "dtype"_a, nb::sig("def dtype_name(dtype: typing.Any) -> str"),
      "The name of a dtype given by name, NumPy dtype or type, or of a tensor's. EveryODTypeError for what is none.");
  m.def(
      "is_tensor", [](nb::handle object) { return is_tensor(object); }, "object"_a, "Is it a Tensor?");
  return tensor;
}

}  // namespace everyo::python
