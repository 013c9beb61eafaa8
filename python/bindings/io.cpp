#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/map.h>

#include "common.h"

// Files that hold tensors.
namespace everyo::python {
namespace {

std::vector<NamedTensor> named_in(const nb::dict& tensors) {
  std::vector<NamedTensor> list;
  for (const auto [name, value] : tensors)
    list.emplace_back(nb::cast<std::string>(name), as_tensor(value, {}, Integers::stay).detach());
  return list;
}

}  // namespace

void bind_io(nb::module_& m) {
  m.def(
      "save_safetensors",
      [](const std::filesystem::path& path, const nb::dict& tensors, const std::optional<Metadata>& metadata) {
        const std::vector<NamedTensor> list = named_in(tensors);
        save_safetensors(path, list, metadata.value_or(Metadata()));
      },
      "path"_a, "tensors"_a, "metadata"_a = nb::none(),
      nb::sig("def save_safetensors(path: typing.Union[str, os.PathLike[str]], tensors: "
              "collections.abc.Mapping[str, TensorLike], metadata: typing.Optional[dict[str, str]] = None) -> None"),
      "Writes tensors as a safetensors file, replaced at once.");
  m.def(
      "load_safetensors",
      [](const std::filesystem::path& path) {
        SafetensorsFile file = load_safetensors(path);
        nb::dict tensors;
        for (auto& [name, value] : file.tensors) tensors[nb::cast(name)] = wrap(std::move(value));
        return nb::make_tuple(tensors, file.metadata);
      },
      "path"_a,
      nb::sig("def load_safetensors(path: typing.Union[str, os.PathLike[str]]) -> "
              "tuple[dict[str, Tensor], dict[str, str]]"),
      "Tensors by name and the metadata of a safetensors file. EveryOSerializationError for a damaged one.");
  m.def(
      "save_archive",
      [](const std::filesystem::path& path, const std::string& class_name, const std::string& config,
         const nb::dict& parameters, const std::string& metadata, bool overwrite) {
        save_archive(path, {class_name, config, named_in(parameters), metadata, {}, {}}, overwrite);
      },
      "path"_a, "class_name"_a, "config"_a, "parameters"_a, "metadata"_a, "overwrite"_a,
      nb::sig("def save_archive(path: typing.Union[str, os.PathLike[str]], class_name: str, config: str, parameters: "
              "collections.abc.Mapping[str, TensorLike], metadata: str, overwrite: bool) -> None"),
      "Writes a .evo archive; config and metadata are JSON.");
  m.def(
      "load_archive",
      [](const std::filesystem::path& path) {
        ModelArchive archive = load_archive(path);
        nb::dict parameters;
        for (auto& [name, value] : archive.parameters) parameters[nb::cast(name)] = wrap(std::move(value));
        return nb::make_tuple(archive.class_name, archive.config, parameters, archive.metadata);
      },
      "path"_a,
      nb::sig("def load_archive(path: typing.Union[str, os.PathLike[str]]) -> "
              "tuple[str, str, dict[str, Tensor], str]"),
      "Class name, config, parameters and metadata of a .evo archive.");
  m.def(
      "digest", [](const nb::dict& tensors) { return digest(named_in(tensors)); }, "tensors"_a,
      nb::sig("def digest(tensors: collections.abc.Mapping[str, TensorLike]) -> str"),
      "SHA-256 over names, dtypes, shapes and bytes, in order; equal digests mean equal bits.");
}

}  // namespace everyo::python
