#include "state.h"

#include <fmt/format.h>
#include <nanobind/stl/filesystem.h>

#include <cstring>
#include <filesystem>

// States as dicts, and the checkpoints that hold them.
namespace everyo::python {

nb::object python_of(const StateTree& tree) {
  if (tree.is<StateTree::Map>()) {
    nb::dict dict;
    for (const auto& [key, entry] : tree.entries()) dict[nb::cast(key)] = python_of(entry);
    return nb::object(dict);
  }
  if (tree.is<std::int64_t>()) return nb::cast(tree.as<std::int64_t>());
  if (tree.is<double>()) return nb::cast(tree.as<double>());
  if (tree.is<bool>()) return nb::cast(tree.as<bool>());
  if (tree.is<std::string>()) return nb::cast(tree.as<std::string>());
  const StateArray& array = tree.as<StateArray>();
  Tensor copy = Tensor::empty(array.spec);
  if (!array.bytes.empty()) std::memcpy(copy.bytes(), array.bytes.data(), array.bytes.size());
  return copy.dtype() == bfloat16 ? wrap(std::move(copy)) : gradient_array(copy);
}

StateTree tree_of(nb::handle value) {
  if (PyDict_Check(value.ptr())) {
    StateTree tree;
    for (const auto [key, entry] : nb::borrow<nb::dict>(value)) {
      if (!PyUnicode_Check(key.ptr()))
        throw FileError(fmt::format("[state] a key is of type {}; keys are text", class_name(key)));
      tree[word_in(key, "state")] = tree_of(entry);
    }
    return tree;
  }
  if (PyBool_Check(value.ptr())) return {nb::cast<bool>(value)};
  if (PyLong_Check(value.ptr())) return {whole_in(value, "state")};
  if (PyFloat_Check(value.ptr())) return {nb::cast<double>(value)};
  if (PyUnicode_Check(value.ptr())) return {nb::cast<std::string>(value)};
  const Tensor tensor = as_tensor(value, {}, Integers::stay);
  return {StateArray::copy_of(tensor.spec(), {tensor.bytes(), tensor.spec().bytes()})};
}

void bind_state(nb::module_& m) {
  nb::class_<Checkpoint>(m, "Checkpoint", "A checkpoint that was found whole.")
      .def_ro("step", &Checkpoint::step, "The step it was saved at.")
      .def_ro("folder", &Checkpoint::folder, nb::sig("def folder(self) -> pathlib.Path"), "Where it lies.")
      .def_prop_ro(
          "state", [](const Checkpoint& c) { return python_of(c.state); },
          nb::sig("def state(self) -> dict[str, typing.Any]"), "What was saved.");
  nb::class_<CheckpointStore>(m, "CheckpointStore",
                              "The checkpoints of one run in one folder, each whole or not there, with what is latest "
                              "and best. Nothing is written over; the last `keep_last` stay, and the best.")
      .def(
          "__init__",
          [](CheckpointStore* self, const std::filesystem::path& folder, std::int64_t keep_last) {
            new (self) CheckpointStore(folder, {.keep_last = keep_last});
          },
          "folder"_a, nb::kw_only(), "keep_last"_a = CheckpointOptions().keep_last,
          nb::sig("def __init__(self, folder: typing.Union[str, os.PathLike[str]], *, keep_last: int = 3) -> None"))
      .def(
          "save",
          [](CheckpointStore& store, const nb::dict& state, std::int64_t step, bool is_best) {
            const StateTree tree = tree_of(state);
            const nb::gil_scoped_release release;
            return store.save(tree, step, is_best);
          },
          "state"_a, "step"_a, nb::kw_only(), "is_best"_a = false,
          nb::sig("def save(self, state: dict[str, typing.Any], step: int, *, is_best: bool = False) -> pathlib.Path"),
          "Saves a state of nested dicts, numbers, words and arrays; its folder. What was there before is whole, "
          "whatever happens.")
      .def("load_latest", &CheckpointStore::load_latest,
           nb::sig("def load_latest(self) -> typing.Optional[Checkpoint]"),
           "The newest that is whole, every byte checked; None when there is none.")
      .def("load_best", &CheckpointStore::load_best, nb::sig("def load_best(self) -> typing.Optional[Checkpoint]"),
           "The best, or None. EveryOSerializationError when it is damaged.")
      .def("list", &CheckpointStore::list, nb::sig("def list(self) -> list[pathlib.Path]"),
           "Folders of checkpoints, oldest first, whole or not.")
      .def_prop_ro("folder", &CheckpointStore::folder, nb::sig("def folder(self) -> pathlib.Path"), "Where they lie.");
}

}  // namespace everyo::python
