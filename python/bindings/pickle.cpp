#include <fmt/format.h>

#include <cstring>

#include "common.h"

// Copies and pickles of tensors.
namespace everyo::python {
namespace {

// What makes an equal tensor elsewhere: dtype, sizes, bytes, whether it requires gradients, its name, and the
// attributes of a class derived in Python.
nb::tuple pickled(nb::handle self) {
  const PyTensor& tensor = py_tensor(self);
  const Tensor& value = tensor.value;
  if (!value.is_leaf())
    throw StateError(
        "[copy] an op made the tensor, and a copy would not know it; only leaves are copied and pickled: detach() it",
        ErrorKind::gradient);
  return nb::make_tuple(name_string(value.dtype()), shape_tuple(value.shape()),
                        nb::bytes(value.bytes(), value.spec().bytes()), value.requires_grad() && value.is_leaf(),
                        tensor.extras ? tensor.extras->name : std::string(), nb::getattr(self, "__dict__", nb::none()));
}

void unpickle(PyTensor& self, const nb::tuple& state) {
  const Spec spec{dtype_of(nb::cast<std::string_view>(state[0])), shape_in(nb::handle(state[1]))};
  const auto bytes = nb::cast<nb::bytes>(state[2]);
  if (bytes.size() != spec.bytes())
    throw FileError(fmt::format("[pickle] {} bytes for a tensor of {}", bytes.size(), spec.bytes()));
  Tensor value = Tensor::empty(spec);
  if (bytes.size() != 0) std::memcpy(value.bytes(), bytes.data(), bytes.size());
  if (nb::cast<bool>(state[3])) value.set_requires_grad();
  const nb::object own = nb::find(self);
  new (&self) PyTensor{std::move(value)};
  set_name(self, state[4]);
  if (state.size() > 5 && !state[5].is_none()) own.attr("__dict__").attr("update")(state[5]);
}

}  // namespace

void bind_pickle(nb::class_<PyTensor>& tensor) {
  tensor.def("__getstate__", &pickled, nb::sig("def __getstate__(self) -> tuple[typing.Any, ...]"))
      .def("__setstate__", &unpickle, nb::sig("def __setstate__(self, state: tuple[typing.Any, ...]) -> None"));
}

}  // namespace everyo::python
