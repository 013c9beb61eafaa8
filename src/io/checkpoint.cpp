#include "everyo/checkpoint.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <system_error>

#include "base/digest.h"
#include "base/files.h"
#include "base/json.h"
#include "everyo/error.h"
#include "everyo/isa.h"
#include "everyo/logging.h"
#include "io/state_json.h"

namespace everyo::inline v1 {
namespace {

using nlohmann::json;
using Path = std::filesystem::path;

constexpr std::int64_t format_version = 1;
constexpr std::uint64_t most_manifest_bytes = std::uint64_t{1} << 28;
constexpr const char *kind = "everyo checkpoint", *arrays_file = "state.safetensors", *manifest_file = "manifest.json",
                     *step_prefix = "step-", *part_suffix = ".part";

std::string digest_of_file(const Path& path) {
  constexpr std::size_t piece = std::size_t{1} << 20;
  const base::InputFile file(path);
  base::Sha256 sum;
  std::vector<std::byte> bytes(static_cast<std::size_t>(std::min<std::uint64_t>(piece, file.size())));
  for (std::uint64_t at = 0; at < file.size(); at += bytes.size()) {
    const std::span part =
        std::span(bytes).first(static_cast<std::size_t>(std::min<std::uint64_t>(bytes.size(), file.size() - at)));
    file.read(at, part);
    sum.update(part);
  }
  return sum.finish();
}

// A folder in the making: removed again unless it was renamed into place.
class NewFolder {
 public:
  explicit NewFolder(const Path& target)
      : target_(target),
        temporary_(target.parent_path() /
                   fmt::format(".{}.{}-0{}", target.filename().string(), getpid(), part_suffix)) {
    std::filesystem::remove_all(temporary_, ignored_);
    base::make_directories(temporary_);
  }
  ~NewFolder() {
    if (!in_place_) std::filesystem::remove_all(temporary_, ignored_);
  }
  NewFolder(const NewFolder&) = delete;
  NewFolder& operator=(const NewFolder&) = delete;

  [[nodiscard]] const Path& path() const noexcept { return temporary_; }
  void put_in_place() {
    base::sync_directory(temporary_);
    if (std::rename(temporary_.c_str(), target_.c_str()) != 0)
      throw FileError(
          fmt::format("[save_state] cannot make '{}': {}", target_.string(), std::generic_category().message(errno)));
    in_place_ = true;
    base::sync_directory(target_.has_parent_path() ? target_.parent_path() : Path("."));
  }

 private:
  Path target_, temporary_;
  std::error_code ignored_;
  bool in_place_ = false;
};

[[noreturn]] void damaged(const Path& folder, std::string_view why) {
  throw FileError(fmt::format("[load_state] '{}' is no whole checkpoint: {}", folder.string(), why));
}

// The manifest, once its own sum holds.
json read_manifest(const Path& folder) {
  const json manifest =
      base::parse_json(base::read_file(folder / manifest_file, most_manifest_bytes),
                       fmt::format("[load_state] '{}' is no whole checkpoint: its manifest", folder.string()));
  if (!manifest.is_object() || !manifest.contains("body") || !manifest.contains("sha256"))
    damaged(folder, "its manifest is damaged");
  const json& body = manifest["body"];
  if (body.is_object() && body.contains("format_version") && body["format_version"].is_number_integer() &&
      body["format_version"].get<std::int64_t>() > format_version)
    damaged(folder, fmt::format("it has format version {}; this library reads up to {}",
                                body["format_version"].get<std::int64_t>(), format_version));
  const std::string text = body.dump();
  if (manifest["sha256"] != base::sha256(std::as_bytes(std::span(text)))) damaged(folder, "its manifest was changed");
  if (body.value("kind", "") != kind || !body.contains("state") || !body.contains("files"))
    damaged(folder, "its manifest is of something else");
  return body;
}

void check_file(const Path& folder, const json& files) {
  if (!files.is_object() || files.size() != 1 || !files.contains(arrays_file))
    damaged(folder, "its manifest names other files");
  const json& entry = files[arrays_file];
  const Path path = folder / arrays_file;
  const std::uint64_t size = base::InputFile(path).size();
  if (entry.value("bytes", std::uint64_t{0}) != size)
    damaged(folder, fmt::format("{} has {} bytes, its manifest says {}", arrays_file, size, entry.value("bytes", 0)));
  if (entry.value("sha256", "") != digest_of_file(path)) damaged(folder, fmt::format("{} was changed", arrays_file));
}

// The number in "step-000000120" or "step-000000120.2"; -1 for other names.
struct Place {
  std::int64_t step = -1, attempt = 0;
  friend auto operator<=>(const Place&, const Place&) = default;
};
Place place_of(const Path& folder) {
  const std::string name = folder.filename().string();
  Place place;
  int used = 0;
  long long step = 0, attempt = 1;
  if (std::sscanf(name.c_str(), "step-%lld%n", &step, &used) == 1 && step >= 0) {
    const std::string rest = name.substr(static_cast<std::size_t>(used));
    if (rest.empty() || (std::sscanf(rest.c_str(), ".%lld%n", &attempt, &used) == 1 &&
                         static_cast<std::size_t>(used) == rest.size() && attempt > 1))
      place = {step, attempt};
  }
  return place;
}

}  // namespace

void save_state(const Path& folder, const StateTree& state) {
  if (std::filesystem::exists(std::filesystem::symlink_status(folder)))
    throw StateError(fmt::format("[save_state] '{}' exists; a checkpoint is never written over", folder.string()));
  const io::SplitState parts = io::split_state(state);
  NewFolder fresh(folder);
  save_safetensors(fresh.path() / arrays_file, parts.arrays);
  const json body = {{"kind", kind},
                     {"format_version", format_version},
                     {"everyo_version", EVERYO_VERSION},
                     {"isa", name_of(isa())},
                     {"files",
                      {{arrays_file,
                        {{"bytes", base::InputFile(fresh.path() / arrays_file).size()},
                         {"sha256", digest_of_file(fresh.path() / arrays_file)}}}}},
                     {"state", parts.values}};
  std::string text;
  try {
    text = body.dump();
  } catch (const json::exception&) {
    throw ValueError("[save_state] a name or a text of the state is not UTF-8");
  }
  base::write_file(fresh.path() / manifest_file, fmt::format("{{\"body\":{},\"sha256\":\"{}\"}}\n", text,
                                                             base::sha256(std::as_bytes(std::span(text)))));
  fresh.put_in_place();
}

StateTree load_state(const Path& folder) {
  try {
    const json body = read_manifest(folder);
    check_file(folder, body["files"]);
    const std::string what = fmt::format("[load_state] '{}' is no whole checkpoint", folder.string());
    return io::join_state(body["state"], load_safetensors(folder / arrays_file).tensors, what);
  } catch (const json::exception& error) {
    damaged(folder, error.what());
  }
}

CheckpointStore::CheckpointStore(Path folder, const CheckpointOptions& options)
    : folder_(std::move(folder)), options_(options) {
  if (options.keep_last < 0)
    throw ValueError(fmt::format("[CheckpointStore] keep_last is {}; it must be 0 or more", options.keep_last));
}

namespace {
// What a process that was killed left in the making.
void remove_abandoned(const Path& store) {
  std::error_code code;
  std::vector<Path> abandoned;
  for (std::filesystem::directory_iterator each(store, code), end; !code && each != end; each.increment(code)) {
    const std::string name = each->path().filename().string();
    // ".NAME.PROCESS-NUMBER.part", as write_file names its own.
    const std::size_t dash = name.rfind('-'), dot = name.rfind('.', dash);
    int process = 0;
    if (!name.starts_with('.') || !name.ends_with(part_suffix) || dash == std::string::npos) continue;
    if (std::sscanf(name.c_str() + dot, ".%d-", &process) == 1 && process > 0 && kill(process, 0) != 0 &&
        errno == ESRCH)
      abandoned.push_back(each->path());
  }
  for (const Path& folder : abandoned) std::filesystem::remove_all(folder, code);
}
}  // namespace

std::vector<Path> CheckpointStore::list() const {
  std::vector<Path> folders;
  std::error_code code;
  for (std::filesystem::directory_iterator each(folder_, code), end; !code && each != end; each.increment(code))
    if (place_of(each->path()).step >= 0) folders.push_back(each->path());
  std::ranges::sort(folders, {}, place_of);
  return folders;
}

Path CheckpointStore::save(const StateTree& state, std::int64_t step, bool is_best) {
  if (step < 0) throw ValueError(fmt::format("[CheckpointStore] step {} is negative", step));
  base::make_directories(folder_);
  const std::string name = fmt::format("{}{:09}", step_prefix, step);
  Path folder = folder_ / name;
  for (int attempt = 2; std::filesystem::exists(folder); ++attempt)
    folder = folder_ / fmt::format("{}.{}", name, attempt);
  save_state(folder, state);
  base::write_file(folder_ / "latest", folder.filename().string() + "\n");
  if (is_best) base::write_file(folder_ / "best", folder.filename().string() + "\n");

  // Only now that the new one is safe.
  remove_abandoned(folder_);
  const std::string best = std::filesystem::exists(folder_ / "best") ? base::read_file(folder_ / "best", 4096) : "";
  std::vector<Path> all = list();
  std::erase(all, folder);
  std::error_code ignored;
  if (options_.keep_last > 0)
    for (std::int64_t left = std::ssize(all) + 1; const Path& old : all) {
      if (left-- <= options_.keep_last) break;
      if (old.filename().string() + "\n" != best) std::filesystem::remove_all(old, ignored);
    }
  return folder;
}

namespace {
// The checkpoint that a pointer file names; nothing when there is no such file.
std::optional<Path> named_by(const Path& store, const char* pointer) {
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(store / pointer, ignored)) return {};
  std::string name = base::read_file(store / pointer, 4096);
  while (name.ends_with('\n')) name.pop_back();
  if (place_of(name).step < 0 || name.find('/') != std::string::npos)
    throw FileError(fmt::format("[CheckpointStore] '{}' names no checkpoint", (store / pointer).string()));
  return store / name;
}
}  // namespace

std::optional<Path> CheckpointStore::latest() const { return named_by(folder_, "latest"); }
std::optional<Path> CheckpointStore::best() const { return named_by(folder_, "best"); }

std::optional<Checkpoint> CheckpointStore::load_latest() const {
  std::vector<Path> order = list();  // oldest first
  try {
    if (const std::optional<Path> newest = latest()) {
      std::erase(order, *newest);
      order.push_back(*newest);
    }
  } catch (const FileError& error) {
    log(LogLevel::warning, error.what());
  }
  for (; !order.empty(); order.pop_back()) {
    const Path& folder = order.back();
    try {
      return Checkpoint{place_of(folder).step, folder, load_state(folder)};
    } catch (const FileError& error) {
      log(LogLevel::warning, fmt::format("{}; an older checkpoint is taken if there is one", error.what()));
    }
  }
  return {};
}

std::optional<Checkpoint> CheckpointStore::load_best() const {
  const std::optional<Path> folder = best();
  if (!folder) return {};
  return Checkpoint{place_of(*folder).step, *folder, load_state(*folder)};
}

}  // namespace everyo::inline v1
