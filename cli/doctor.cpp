#include <fmt/format.h>

#include <memory>

#include "cli/command.h"
#include "everyo/error.h"
#include "everyo/onnx.h"
#include "everyo/profile.h"

namespace cli {
namespace {

nlohmann::json to_json(const everyo::Versions& versions, const everyo::Machine& machine) {
  return {{"versions",
           {{"everyo", versions.everyo},
            {"onednn", versions.onednn},
            {"highway", versions.highway},
            {"compiler", versions.compiler}}},
          {"processor", machine.processor},
          {"threads", machine.threads},
          {"isa", {{"detected", everyo::name_of(machine.detected)}, {"used", everyo::name_of(machine.used)}}}};
}

// The ONNX Runtime that export and run-onnx would use, or why there is none.
nlohmann::json find_onnx_runtime() {
  try {
    return {{"version", everyo::onnx_runtime_version()}};
  } catch (const everyo::StateError& error) {
    return {{"missing", error.what()}};
  }
}

int doctor(const Common& common, double seconds) {
  const everyo::Versions versions = everyo::versions();
  const everyo::Machine machine = everyo::describe_machine();
  const auto line = [](std::string_view name, const std::string& value) { fmt::print("{:<16} {}\n", name, value); };
  line("everyo", versions.everyo);
  line("oneDNN", versions.onednn);
  line("Highway", versions.highway);
  line("compiler", versions.compiler);
  line("processor", machine.processor.empty() ? "unknown" : machine.processor);
  line("instructions",
       fmt::format("{} used, {} detected", everyo::name_of(machine.used), everyo::name_of(machine.detected)));
  line("threads", std::to_string(machine.threads));
  nlohmann::json figures = to_json(versions, machine);
  figures["onnx_runtime"] = find_onnx_runtime();
  for (const auto& [found, words] : figures["onnx_runtime"].items())
    line("ONNX Runtime", found == "version" ? words.get<std::string>() : "none: " + words.get<std::string>());
  std::fflush(stdout);

  for (const auto& [dtype, gflops] : everyo::measure_peak_flops({.seconds = seconds})) {
    line(fmt::format("matmul {}", everyo::name_of(dtype)), fmt::format("{:.1f} GFLOP/s", gflops));
    figures["peak_gflops"][std::string(everyo::name_of(dtype))] = gflops;
  }
  const double bandwidth = everyo::measure_memory_bandwidth({.seconds = seconds});
  line("memory copy", fmt::format("{:.1f} GB/s", bandwidth));
  figures["memory_bandwidth_gbs"] = bandwidth;
  if (common.json) print_json(figures);
  return success;
}

}  // namespace

Command add_doctor(CLI::App& program, Common& common) {
  CLI::App* app = program.add_subcommand("doctor", "show versions and instruction sets, measure peak speed and memory");
  const auto seconds = std::make_shared<double>(0.3);
  app->add_option("--seconds", *seconds, "time for each figure")->check(number_above_zero())->capture_default_str();
  return {app, [&common, seconds] { return doctor(common, *seconds); }};
}

}  // namespace cli
