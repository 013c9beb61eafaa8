#include "onnx/runtime.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <link.h>
#include <onnxruntime/onnxruntime_c_api.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <map>
#include <mutex>
#include <optional>
#include <utility>

#include "base/json.h"
#include "everyo/error.h"
#include "everyo/logging.h"

namespace everyo::onnx_runtime {
namespace {

namespace fs = std::filesystem;

constexpr const char* library_name = "libonnxruntime.so.1";
constexpr const char* variable = "EVERYO_ONNXRUNTIME";

[[noreturn]] void fail(const std::string& why) {
  throw StateError(fmt::format("[run_onnx] {}", why), ErrorKind::backend);
}

/// The value of an environment variable; empty: not set.
std::string environment_value(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string() : std::string(value);
}

struct Close {
  void operator()(void* handle) const noexcept { dlclose(handle); }
};
using Library = std::unique_ptr<void, Close>;

/// What a folder holds that begins with `prefix`; nothing where there is none.
std::vector<fs::path> entries(const fs::path& folder, std::string_view prefix) {
  std::vector<fs::path> found;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    if (at->path().filename().string().starts_with(prefix)) found.push_back(at->path());
  }
  std::ranges::sort(found, std::greater());
  return found;
}

/// Libraries in the packages of the Python environment that is active, the newest first.
std::vector<fs::path> in_python() {
  std::vector<fs::path> found;
  const std::string environment = environment_value("VIRTUAL_ENV");
  if (environment.empty()) return found;
  for (const fs::path& python : entries(fs::path(environment) / "lib", "python3")) {
    std::ranges::copy(entries(python / "site-packages/onnxruntime/capi", library_name), std::back_inserter(found));
  }
  return found;
}

/// The first library that can be opened. Throws with what was tried.
Library open_library(const OnnxRuntimeOptions& options) {
  std::string tried;
  for (const Candidate& candidate : candidates(options)) {
    if (Library library{dlopen(candidate.name.c_str(), RTLD_NOW | RTLD_LOCAL)}) return library;
    const char* why = dlerror();
    tried += fmt::format("{}{}: {}", tried.empty() ? "" : "; ", base::printable(candidate.words, 300),
                         base::printable(why == nullptr ? "unknown" : why, 300));
  }
  fail(fmt::format(
      "ONNX Runtime was not found; install it (pip install onnxruntime) or name its library by {}=/…/{}. Tried {}",
      variable, library_name, tried));
}

std::string path_of(void* library) {
  struct link_map* map = nullptr;
  if (dlinfo(library, RTLD_DI_LINKMAP, &map) != 0 || map == nullptr) return library_name;
  return map->l_name;
}

/// What the runtime logs goes to our own sink; what fails is reported by a status, too.
void ORT_API_CALL take_log(void*, OrtLoggingLevel, const char*, const char*, const char*, const char* message) {
  if (log_enabled(LogLevel::debug)) log(LogLevel::debug, message);
}

/// Keeps the runtime from writing a database about this machine below the user's home and from sending it to its maker.
/// It looks at this variable when its environment is made; a value that is set stays.
void switch_telemetry_off() noexcept { setenv("ORT_DISABLE_TELEMETRY", "1", 0); }

/// Libraries that are loaded, by the loader's handle. Never destroyed, since the runtime's own static objects are by
/// then.
struct Loaded {
  std::mutex mutex;
  std::map<void*, Runtime> runtimes;
};
Loaded& loaded() {
  static Loaded* const all = std::make_unique<Loaded>().release();
  return *all;
}

}  // namespace

std::vector<Candidate> candidates(const OnnxRuntimeOptions& options) {
  // A path without a folder is a file here, not a name for the loader.
  const auto named = [](const fs::path& path, std::string_view source) -> Candidate {
    return {path.has_parent_path() ? path.string() : "./" + path.string(),
            fmt::format("{} ({})", path.string(), source)};
  };
  if (!options.library.empty()) return {named(options.library, "given in the call")};
  if (const std::string path = environment_value(variable); !path.empty()) return {named(path, variable)};
  std::vector<Candidate> all{{library_name, fmt::format("{} (where the loader looks)", library_name)}};
  for (const fs::path& path : in_python()) all.push_back(named(path, "the active Python environment"));
  return all;
}

std::string words_of(const OrtApi& api, OrtStatus* status) {
  const std::unique_ptr<OrtStatus, void (*)(OrtStatus*)> owner(status, api.ReleaseStatus);
  return base::printable(api.GetErrorMessage(status), 600);
}

const OrtApi* interface_of(const OrtApiBase* base, const std::string& path) {
  if (base == nullptr) fail(fmt::format("'{}' gives no interface; it is no ONNX Runtime", path));
  // Asked for an interface that it has not, the runtime would print.
  const std::string_view version = base->GetVersionString();
  const std::size_t dot = version.find('.');
  int minor = -1;
  if (version.substr(0, dot) == "1") std::from_chars(version.data() + dot + 1, version.data() + version.size(), minor);
  const OrtApi* api = minor >= ORT_API_VERSION ? base->GetApi(ORT_API_VERSION) : nullptr;
  if (api == nullptr) {
    fail(fmt::format(
        "'{}' is ONNX Runtime {}; 1.{} and above, below 2, are used here (pip install --upgrade onnxruntime)", path,
        base::printable(version), ORT_API_VERSION));
  }
  return api;
}

const Runtime& load(const OnnxRuntimeOptions& options) {
  Loaded& all = loaded();
  const std::lock_guard lock(all.mutex);
  Library library = open_library(options);
  if (const auto found = all.runtimes.find(library.get()); found != all.runtimes.end()) return found->second;
  Runtime runtime{.path = path_of(library.get())};
  // A symbol is a function when its name says so.
  const auto entry = reinterpret_cast<decltype(&OrtGetApiBase)>(dlsym(library.get(), "OrtGetApiBase"));
  if (entry == nullptr)
    fail(fmt::format("'{}' is a library, but not ONNX Runtime: it has no OrtGetApiBase", runtime.path));
  runtime.api = interface_of(entry(), runtime.path);
  runtime.version = entry()->GetVersionString();
  switch_telemetry_off();
  const OrtApi& api = *runtime.api;
  const auto check = [&](OrtStatus* status) {
    if (status != nullptr) fail(fmt::format("ONNX Runtime says: {}", words_of(api, status)));
  };
  check(api.CreateEnvWithCustomLogger(take_log, nullptr, ORT_LOGGING_LEVEL_WARNING, "everyo", &runtime.environment));
  check(api.DisableTelemetryEvents(runtime.environment));
  const Runtime& kept = all.runtimes.emplace(library.get(), std::move(runtime)).first->second;
  library.release();  // never unloaded: it has threads and static objects
  return kept;
}

}  // namespace everyo::onnx_runtime
