#include <nanobind/stl/filesystem.h>

#include <algorithm>

#include "common.h"

// ONNX files: export and running.
namespace everyo::python {
namespace {

std::vector<OnnxInput> inputs_in(const nb::list& list) {
  std::vector<OnnxInput> inputs;
  for (const nb::handle each : list) {
    const auto input = nb::cast<nb::tuple>(each);
    inputs.push_back({nb::cast<std::string>(input[0]),
                      {dtype_of(nb::cast<std::string>(input[1])), shape_in(nb::handle(input[2]))},
                      whole_in(input[3], "[export_onnx] integers_below")});
  }
  return inputs;
}

OnnxOptions options_in(const nb::dict& given) {
  OnnxOptions options;
  for (const auto [key_object, value] : given) {
    const auto key = nb::cast<std::string>(key_object);
    if (key == "opset")
      options.opset = static_cast<int>(std::clamp<std::int64_t>(whole_in(value, "[export_onnx] opset"), -1, 10'000));
    if (key == "output_name") options.output_name = word_in(value, "[export_onnx] output_name");
    if (key == "model_name") options.model_name = word_in(value, "[export_onnx] model_name");
    if (key == "batch_name") options.batch_name = word_in(value, "[export_onnx] batch_name");
    if (key == "autocast" && !value.is_none()) options.autocast = dtype_of(word_in(value, "[export_onnx] autocast"));
    if (key == "external_data_above")
      options.external_data_above =
          static_cast<std::uint64_t>(std::max<std::int64_t>(whole_in(value, "[export_onnx] external_data_above"), 0));
    if (key == "check") options.check = nb::cast<bool>(value);
    if (key == "tolerance") options.tolerance = number_in(value);
    if (key == "library") options.runtime.library = nb::cast<std::string>(value);
    if (key == "metadata")
      for (const auto [name, text] : nb::cast<nb::dict>(value))
        options.metadata.emplace_back(word_in(name, "[export_onnx] a name of metadata"),
                                      word_in(text, "[export_onnx] metadata"));
    if (key == "symbolic")
      for (const nb::handle each : nb::cast<nb::list>(value)) {
        const auto axis = nb::cast<nb::tuple>(each);
        options.symbolic.push_back({word_in(axis[0], "[export_onnx] dynamic_axes"),
                                    whole_in(axis[1], "[export_onnx] an axis of dynamic_axes"),
                                    word_in(axis[2], "[export_onnx] a name of dynamic_axes")});
      }
  }
  return options;
}

nb::dict described(const std::vector<OnnxAgreement>& agreements) {
  nb::dict dict;
  for (const OnnxAgreement& agreement : agreements)
    dict[nb::cast(agreement.output)] = nb::make_tuple(agreement.absolute, agreement.relative);
  return dict;
}

nb::dict described(const OnnxReport& report) {
  nb::dict dict;
  dict["path"] = report.path;
  dict["data"] = report.data ? nb::cast(*report.data) : nb::none();
  dict["opset"] = report.opset;
  dict["nodes"] = report.nodes;
  dict["initializers"] = report.initializers;
  dict["bytes"] = report.bytes;
  dict["loaded"] = report.loaded;
  dict["agreements"] = described(report.agreements);
  return dict;
}

std::vector<Tensor> results_in(nb::object result) {
  if (is_tensor(result)) return {tensor_in(result)};
  if (!nb::isinstance<nb::tuple>(result) && !nb::isinstance<nb::list>(result))
    throw ValueError(
        "[export_onnx] the function returned a " + class_name(result) + "; return a Tensor, or a tuple of them",
        ErrorKind::type);
  std::vector<Tensor> values;
  for (const nb::handle each : result) {
    if (!is_tensor(each))
      throw ValueError(
          "[export_onnx] the function returned a " + class_name(each) + " among its outputs; return Tensors",
          ErrorKind::type);
    values.push_back(tensor_in(each));
  }
  return values;
}

OnnxFunction function_of(const nb::callable& function) {
  return [&function](std::span<const Tensor> values) {
    nb::list arguments;
    for (const Tensor& value : values) arguments.append(wrap(value));
    return results_in(function(*arguments));
  };
}

NamedTensors values_in(const nb::dict& inputs) {
  NamedTensors values;
  for (const auto [name, value] : inputs)
    values.emplace_back(word_in(name, "[run_onnx] a name of inputs"), as_tensor(value, {}, Integers::stay).detach());
  return values;
}

StateDict state_in(const nb::dict& named) {
  StateDict state;
  for (const auto [name, value] : named)
    state.emplace_back(nb::cast<std::string>(name), as_tensor(value, {}, Integers::stay));
  return state;
}

nb::list described(const std::vector<OnnxValue>& values) {
  nb::list list;
  for (const OnnxValue& value : values) {
    nb::list shape;
    for (std::size_t axis = 0; axis < value.shape.size(); ++axis) {
      if (value.shape[axis] >= 0)
        shape.append(value.shape[axis]);
      else if (value.sizes[axis].empty())
        shape.append(nb::none());
      else
        shape.append(value.sizes[axis]);
    }
    list.append(nb::make_tuple(value.name, std::string(name_of(value.dtype)), nb::tuple(shape)));
  }
  return list;
}

}  // namespace

void bind_onnx(nb::module_& m) {
  m.def(
      "export_onnx",
      [](const nb::callable& function, const std::filesystem::path& path, const nb::list& inputs, const nb::dict& names,
         const nb::dict& options) {
        return described(
            export_onnx_traced(function_of(function), path, inputs_in(inputs), options_in(options), state_in(names)));
      },
      "function"_a, "path"_a, "inputs"_a, "names"_a, "options"_a,
      nb::sig("def export_onnx(function: collections.abc.Callable[..., typing.Any], path: typing.Union[str, "
              "os.PathLike[str]], inputs: "
              "list[tuple[str, str, tuple[int, ...], int]], names: dict[str, typing.Any], options: dict[str, "
              "typing.Any]) -> dict[str, typing.Any]"),
      "Traces a function and writes it as an ONNX file; what was written.");
  nb::class_<OnnxModel>(m, "OnnxModel", "An ONNX file in ONNX Runtime.")
      .def(
          "__init__",
          [](OnnxModel* self, const std::filesystem::path& path, const std::string& library, std::int64_t threads) {
            OnnxRuntimeOptions options{.library = library,
                                       .threads = static_cast<int>(std::clamp<std::int64_t>(threads, -1, 1 << 20))};
            const nb::gil_scoped_release release;
            new (self) OnnxModel(path, options);
          },
          "path"_a, "library"_a = "", "threads"_a = 0,
          nb::sig("def __init__(self, path: typing.Union[str, os.PathLike[str]], library: str = '', threads: int = 0) "
                  "-> None"))
      .def_prop_ro(
          "inputs", [](const OnnxModel& self) { return described(self.inputs()); },
          nb::sig("def inputs(self) -> list[tuple[str, str, tuple[typing.Any, ...]]]"),
          "Name, dtype, and sizes or their names.")
      .def_prop_ro(
          "outputs", [](const OnnxModel& self) { return described(self.outputs()); },
          nb::sig("def outputs(self) -> list[tuple[str, str, tuple[typing.Any, ...]]]"), "As inputs.")
      .def_prop_ro(
          "metadata",
          [](const OnnxModel& self) {
            nb::dict dict;
            for (const auto& [key, value] : self.metadata()) dict[nb::cast(key)] = value;
            return dict;
          },
          nb::sig("def metadata(self) -> dict[str, str]"), "Texts that the file keeps.")
      .def(
          "run",
          [](const OnnxModel& self, const nb::dict& inputs) {
            const NamedTensors values = values_in(inputs);
            NamedTensors outputs;
            {
              const nb::gil_scoped_release release;
              outputs = self.run(values);
            }
            nb::dict dict;
            for (auto& [name, value] : outputs) dict[nb::cast(name)] = wrap(std::move(value));
            return dict;
          },
          "inputs"_a, nb::sig("def run(self, inputs: dict[str, typing.Any]) -> dict[str, Tensor]"),
          "All outputs by name.");
  m.def(
      "compare_onnx",
      [](const nb::callable& function, const OnnxModel& file, const nb::list& batches) {
        std::vector<NamedTensors> values;
        for (const nb::handle batch : batches) values.push_back(values_in(nb::cast<nb::dict>(batch)));
        return described(compare_onnx(function_of(function), file, values));
      },
      "function"_a, "file"_a, "batches"_a,
      nb::sig("def compare_onnx(function: collections.abc.Callable[..., typing.Any], file: OnnxModel, batches: "
              "list[dict[str, typing.Any]]) -> dict[str, tuple[float, float]]"),
      "Largest differences of a file's outputs, absolute and relative.");
  m.def(
      "onnx_available", [](const std::string& library) { return onnx_available({.library = library}); },
      "library"_a = "");
  m.def(
      "onnx_runtime_version", [](const std::string& library) { return onnx_runtime_version({.library = library}); },
      "library"_a = "");
}

}  // namespace everyo::python
