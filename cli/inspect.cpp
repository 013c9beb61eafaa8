#include <fmt/format.h>

#include <filesystem>
#include <memory>
#include <optional>

#include "cli/command.h"
#include "cli/run_folder.h"
#include "everyo/checkpoint.h"
#include "everyo/error.h"
#include "everyo/io.h"

namespace cli {
namespace {

using nlohmann::json;
using Path = std::filesystem::path;

bool is_file(const Path& path) {
  std::error_code ignored;
  return std::filesystem::is_regular_file(path, ignored);
}

std::string size_of(std::uint64_t bytes) {
  if (bytes < 10'000) return fmt::format("{} B", bytes);
  if (bytes < 10'000'000) return fmt::format("{:.1f} kB", static_cast<double>(bytes) / 1e3);
  return fmt::format("{:.1f} MB", static_cast<double>(bytes) / 1e6);
}

json array_of(const std::string& name, const everyo::Spec& spec) {
  return {{"name", name},
          {"dtype", everyo::name_of(spec.dtype)},
          {"shape", std::vector<std::int64_t>(spec.shape.sizes().begin(), spec.shape.sizes().end())},
          {"bytes", spec.bytes()}};
}

/// The arrays and the other values of a state, by their path in it.
void collect(const everyo::StateTree& tree, const std::string& path, json& arrays, json& values) {
  if (tree.is<everyo::StateTree::Map>())
    for (const auto& [key, entry] : tree.entries())
      collect(entry, path.empty() ? key : path + "/" + key, arrays, values);
  else if (tree.is<everyo::StateArray>())
    arrays.push_back(array_of(path, tree.as<everyo::StateArray>().spec));
  else
    std::visit(
        [&]<class T>(const T& value) {
          if constexpr (!std::is_same_v<T, everyo::StateTree::Map> && !std::is_same_v<T, everyo::StateArray>)
            values[path] = value;
        },
        tree.value());
}

/// A number at a path of a run's state; nothing in a state of another kind.
std::optional<std::int64_t> number_at(const json& values, const char* path) {
  if (!values.contains(path) || !values[path].is_number_integer()) return {};
  return values[path].get<std::int64_t>();
}

json describe(const everyo::StateTree& state) {
  json found{{"arrays", json::array()}, {"values", json::object()}, {"step", nullptr}, {"epoch", nullptr}};
  collect(state, "", found["arrays"], found["values"]);
  if (const auto step = number_at(found["values"], "trainer/trainer/step")) found["step"] = *step;
  if (const auto epoch = number_at(found["values"], "trainer/loader/epoch")) found["epoch"] = *epoch;
  return found;
}

json describe(const everyo::SafetensorsFile& file) {
  json found{{"arrays", json::array()}, {"values", json::object()}};
  for (const auto& [name, tensor] : file.tensors) found["arrays"].push_back(array_of(name, tensor.spec()));
  for (const auto& [key, value] : file.metadata) found["values"][key] = value;
  return found;
}

std::uint64_t bytes_of(const json& found) {
  std::uint64_t bytes = 0;
  for (const json& array : found["arrays"]) bytes += array["bytes"].get<std::uint64_t>();
  return bytes;
}

void print(const json& found) {
  std::size_t width = 0;
  for (const json& array : found["arrays"]) width = std::max(width, array["name"].get_ref<const std::string&>().size());
  for (const auto& [key, value] : found["values"].items()) width = std::max(width, key.size());
  for (const auto& [key, value] : found["values"].items())
    fmt::print("  {:<{}}  {}\n", key, width, value.dump(-1, ' ', false, json::error_handler_t::replace));
  for (const json& array : found["arrays"])
    fmt::print("  {:<{}}  {:<8}  {:<20}  {}\n", array["name"].get<std::string>(), width,
               array["dtype"].get<std::string>(), array["shape"].dump(), size_of(array["bytes"].get<std::uint64_t>()));
  fmt::print("{} arrays, {}\n", found["arrays"].size(), size_of(bytes_of(found)));
}

std::string where(const json& found) {
  const std::string step =
      found["step"].is_null() ? "no step" : fmt::format("step {}", found["step"].get<std::int64_t>());
  return found["epoch"].is_null() ? step : fmt::format("{}, {} epochs done", step, found["epoch"].get<std::int64_t>());
}

json inspect_file(const Path& path) {
  json found = describe(everyo::load_safetensors(path));
  fmt::print("{}: safetensors, read whole; the format has no sums\n", path.string());
  print(found);
  found["kind"] = "safetensors";
  return found;
}

json inspect_checkpoint(const Path& folder) {
  json found = describe(everyo::load_state(folder));
  fmt::print("{}: checkpoint, {}; all sums are right\n", folder.string(), where(found));
  print(found);
  found["kind"] = "checkpoint";
  return found;
}

/// A run's checkpoints, one a line; what the newest whole one holds; and the model, if the run has ended.
json inspect_run(const Path& folder, const everyo::CheckpointStore& store, bool& damaged) {
  json found{{"kind", "run"}, {"checkpoints", json::array()}};
  const std::optional<Path> latest = store.latest(), best = store.best();
  std::optional<json> newest;
  fmt::print("{}: run\n", folder.string());
  for (const Path& each : store.list()) {
    json row{{"name", each.filename().string()}, {"latest", each == latest}, {"best", each == best}};
    const char* mark = each == latest && each == best ? "  latest, best"
                       : each == latest               ? "  latest"
                       : each == best                 ? "  best"
                                                      : "";
    try {
      json state = describe(everyo::load_state(each));
      fmt::print("  {}  {}, {}, all sums are right{}\n", each.filename().string(), where(state),
                 size_of(bytes_of(state)), mark);
      row.update({{"whole", true}, {"step", state["step"]}, {"epoch", state["epoch"]}});
      newest = std::move(state);
    } catch (const everyo::FileError& error) {
      std::fflush(stdout);
      std::fprintf(stderr, "everyo: %s\n", error.what());
      damaged = true;
      row.update({{"whole", false}, {"error", error.what()}});
    }
    found["checkpoints"].push_back(std::move(row));
  }
  if (newest) {
    fmt::print("the newest holds\n");
    print(*newest);
    found["newest"] = std::move(*newest);
  }
  if (is_file(folder / "model.safetensors")) found["model"] = inspect_file(folder / "model.safetensors");
  return found;
}

int inspect(const Common& common, const std::string& name) {
  const Path path(name);
  std::error_code ignored;
  json found;
  bool damaged = false;
  if (is_file(path)) {
    found = inspect_file(path);
  } else if (!std::filesystem::is_directory(path, ignored)) {
    throw everyo::FileError(
        fmt::format("{}: not found; give a run's folder, a checkpoint, or a .safetensors file", name),
        everyo::ErrorKind::file_not_found);
  } else if (is_file(path / "manifest.json")) {
    found = inspect_checkpoint(path);
  } else {
    const everyo::CheckpointStore of_run = RunFolder::checkpoints(path), itself(path);
    const bool is_store = !itself.list().empty();
    if (!is_store && of_run.list().empty() && !is_file(path / "model.safetensors"))
      throw everyo::FileError(
          fmt::format("{} holds neither a checkpoint nor a model; give a run's folder, a checkpoint, or a .safetensors "
                      "file",
                      name));
    found = inspect_run(path, is_store ? itself : of_run, damaged);
  }
  if (common.json) print_json(found);
  return damaged ? failure : success;
}

}  // namespace

Command add_inspect(CLI::App& program, Common& common) {
  CLI::App* app =
      program.add_subcommand("inspect", "show and check what a run, a checkpoint or a safetensors file holds");
  const auto path = std::make_shared<std::string>();
  app->add_option("path", *path, "folder of a run or a checkpoint, or a .safetensors file")->required();
  return {app, [&common, path] { return inspect(common, *path); }};
}

}  // namespace cli
