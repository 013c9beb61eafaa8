#include "everyo/archive.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

#include "base/files.h"
#include "base/json.h"
#include "data/npy.h"
#include "everyo/error.h"
#include "io/zip.h"

namespace everyo::inline v1 {
namespace {

using nlohmann::json;

constexpr std::int64_t format_version = 1;
constexpr std::uint64_t largest_file = std::uint64_t{1} << 32, most_manifest_bytes = std::uint64_t{1} << 26;
constexpr const char *manifest_name = "manifest.json", *parameters_name = "parameters.npz";
constexpr std::string_view npy_suffix = ".npy";

// One deflated byte makes 1032 at most; only archives packed twice, to be small and unpack to much, make more.
std::uint64_t most_unpacked(std::uint64_t file_bytes) { return (std::uint64_t{64} << 20) + 1100 * file_bytes; }

std::span<const std::byte> bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }

std::string content_of(const std::filesystem::path& path) {
  try {
    return base::read_file(path, largest_file);
  } catch (const FileError& error) {  // of one kind, whatever is wrong with an archive
    throw FileError(error.what());
  }
}

class Reader {
 public:
  explicit Reader(const std::filesystem::path& path)
      : what_(fmt::format("[load_archive] '{}' is not a valid everyo archive", path.string())),
        content_(content_of(path)),
        left_(most_unpacked(content_.size())) {}

  ModelArchive read() {
    const io::ZipReader zip(bytes_of(content_), what_);
    const json manifest = base::parse_json(extract(zip, manifest_name, most_manifest_bytes), what_ + ": manifest.json");
    if (!manifest.is_object()) fail("manifest.json is no object");
    const json& version = entry(manifest, "format_version", &json::is_number_integer, "an integer");
    if (version != format_version)
      fail(fmt::format("it has format version {}, this library reads {}; a newer one is needed", version.dump(),
                       format_version));

    ModelArchive archive;
    const json& architecture = entry(manifest, "architecture", &json::is_object, "an object");
    archive.class_name = entry(architecture, "class_name", &json::is_string, "a text").get<std::string>();
    archive.config = optional(architecture, "config", &json::is_object, "an object", json::object()).dump();
    archive.metadata = optional(manifest, "metadata", &json::is_object, "an object", json::object()).dump();
    archive.everyo_version = optional(manifest, "everyo_version", &json::is_string, "a text", "").get<std::string>();
    archive.created_at = optional(manifest, "created_at", &json::is_string, "a text", "").get<std::string>();
    archive.parameters = read_parameters(extract(zip, parameters_name, left_));
    compare(entry(manifest, "parameters", &json::is_object, "an object"), archive.parameters);
    return archive;
  }

 private:
  using Test = bool (json::*)() const noexcept;

  [[noreturn]] void fail(std::string_view why) const { throw FileError(fmt::format("{}: {}", what_, why)); }

  std::string extract(const io::ZipReader& zip, std::string_view name, std::uint64_t most) {
    std::string content = zip.extract(name, std::min(most, left_));
    left_ -= content.size();
    return content;
  }
  const json& entry(const json& object, const char* name, Test test, const char* kind) const {
    const auto found = object.find(name);
    if (found == object.end() || !((*found).*test)())
      fail(fmt::format("manifest.json has no {}, or it is not {}", name, kind));
    return *found;
  }
  json optional(const json& object, const char* name, Test test, const char* kind, json otherwise) const {
    const auto found = object.find(name);
    return found == object.end() || found->is_null() ? std::move(otherwise) : entry(object, name, test, kind);
  }

  std::vector<NamedTensor> read_parameters(const std::string& npz) {
    const std::string what = fmt::format("{}: {}", what_, parameters_name);
    const io::ZipReader zip(bytes_of(npz), what);
    std::vector<NamedTensor> parameters;
    for (const std::string& name : zip.names()) {
      if (!name.ends_with(npy_suffix)) fail(fmt::format("'{}' of its arrays is no .npy file", base::printable(name)));
      const std::string npy = extract(zip, name, left_);
      const auto read = [&](std::uint64_t at, std::span<std::byte> out) {
        if (at > npy.size() || npy.size() - at < out.size()) fail("an array is cut short");
        if (!out.empty()) std::memcpy(out.data(), npy.data() + at, out.size());
      };
      try {
        parameters.emplace_back(name.substr(0, name.size() - npy_suffix.size()),
                                data::read_npy({npy.size(), read}, base::printable(name)));
      } catch (const FileError& error) {
        fail(error.what());
      }
    }
    return parameters;
  }
  // What the manifest says of each array is so.
  void compare(const json& listed, const std::vector<NamedTensor>& parameters) const {
    for (const auto& [name, said] : listed.items()) {
      const std::string shown = base::printable(name);
      const auto found = std::ranges::find(parameters, name, &NamedTensor::first);
      if (found == parameters.end()) fail(fmt::format("it has no values of '{}'", shown));
      const Spec spec = found->second.spec();
      const json shape = std::vector<std::int64_t>(spec.shape.sizes().begin(), spec.shape.sizes().end());
      if (!said.is_object() || !said.contains("shape") || said["shape"] != shape || !said.contains("dtype") ||
          said["dtype"] != name_of(spec.dtype))
        fail(fmt::format("manifest.json says of '{}' {}, its values are {} {}", shown, base::printable(said.dump()),
                         name_of(spec.dtype), to_string(spec.shape)));
    }
  }

  std::string what_, content_;
  std::uint64_t left_;  // to be unpacked
};

json object_of(const std::string& text, const char* what) {
  try {
    if (json object = base::parse_json(text, "it"); object.is_object()) return object;
  } catch (const FileError&) {
  }
  throw ValueError(fmt::format("[save_archive] the {} is no JSON object", what));
}

}  // namespace

ModelArchive load_archive(const std::filesystem::path& path) { return Reader(path).read(); }

void save_archive(const std::filesystem::path& path, const ModelArchive& archive, bool overwrite) {
  if (std::error_code ignored; !overwrite && std::filesystem::exists(path, ignored))
    throw FileError(fmt::format("[save_archive] '{}' already exists; give overwrite, or another name", path.string()));
  json listed = json::object();
  std::int64_t elements = 0;
  io::ZipWriter npz;
  for (const auto& [name, tensor] : archive.parameters) {
    if (!tensor.defined() || tensor.is_meta())
      throw StateError(fmt::format("[save_archive] tensor '{}' has no data; save it where it has", name));
    const Spec spec = tensor.spec();
    std::string npy = data::npy_header(spec);
    npy.append(reinterpret_cast<const char*>(tensor.bytes()), spec.bytes());
    npz.add(name + std::string(npy_suffix), bytes_of(npy), false);
    listed[name] = {{"shape", std::vector<std::int64_t>(spec.shape.sizes().begin(), spec.shape.sizes().end())},
                    {"dtype", name_of(spec.dtype)}};
    elements += spec.shape.elements();
  }
  const auto now = fmt::gmtime(std::chrono::system_clock::now());
  const json manifest = {
      {"format_version", format_version},
      {"everyo_version", EVERYO_VERSION},
      {"created_at", archive.created_at.empty() ? fmt::format("{:%FT%T}+00:00", now) : archive.created_at},
      {"architecture", {{"class_name", archive.class_name}, {"config", object_of(archive.config, "config")}}},
      {"parameters", std::move(listed)},
      {"num_parameters", elements},
      {"metadata", object_of(archive.metadata, "metadata")}};
  std::string text;
  try {
    text = manifest.dump(2);
  } catch (const json::exception&) {
    throw ValueError("[save_archive] a name or a text is not UTF-8");
  }
  io::ZipWriter zip;
  zip.add(manifest_name, bytes_of(text), true);
  zip.add(parameters_name, bytes_of(std::move(npz).finish()), true);
  base::write_file(path, std::move(zip).finish());
}

}  // namespace everyo::inline v1
