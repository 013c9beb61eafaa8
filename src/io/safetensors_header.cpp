#include "io/safetensors_header.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <tuple>

#include "base/json.h"
#include "everyo/error.h"

namespace everyo::io {
namespace {

struct FormatName {
  DType dtype;
  std::string_view name;
};
/// In the order in which the format's own library sorts them.
constexpr std::array<FormatName, dtype_count> format_names{{{DType::int64, "I64"},
                                                            {DType::float64, "F64"},
                                                            {DType::float32, "F32"},
                                                            {DType::int32, "I32"},
                                                            {DType::bfloat16, "BF16"},
                                                            {DType::float16, "F16"},
                                                            {DType::uint8, "U8"},
                                                            {DType::boolean, "BOOL"}}};

std::size_t place_of(DType dtype) noexcept {
  return static_cast<std::size_t>(std::ranges::find(format_names, dtype, &FormatName::dtype) - format_names.begin());
}

constexpr std::string_view metadata_key = "__metadata__";

/// Takes the header's JSON event by event and accepts the one form it may have, so that neither depth nor odd values of
/// a hostile file cost memory: {"__metadata__": {text: text, …}, name: {"dtype": text, "shape": [n, …], "data_offsets":
/// [begin, end]}, …}. A false return stops the parser; the reason is in `problem`.
class HeaderReader final : public nlohmann::json_sax<nlohmann::json> {
 public:
  std::vector<HeaderEntry> entries;
  Metadata metadata;
  std::string problem;

  bool null() override { return unexpected("null"); }
  bool boolean(bool) override { return unexpected("a truth value"); }
  bool number_integer(std::int64_t value) override { return unexpected(fmt::format("the number {}", value)); }
  bool number_float(double, const std::string& text) override { return unexpected("the number " + text); }
  bool binary(nlohmann::json::binary_t&) override { return unexpected("binary data"); }

  bool number_unsigned(std::uint64_t value) override {
    if (place_ != Place::numbers) return unexpected(fmt::format("the number {}", value));
    if (value > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
      return fail(fmt::format("{} of '{}' holds {}, which no file can reach", key_, name_, value));
    }
    const std::size_t most = key_ == "shape" ? static_cast<std::size_t>(Shape::max_rank) : 2;
    if (numbers_.size() == most) {
      return fail(fmt::format("{} of '{}' has more than {} numbers", key_, name_, most));
    }
    numbers_.push_back(static_cast<std::int64_t>(value));
    return true;
  }

  bool string(std::string& text) override {
    if (place_ == Place::metadata && !key_.empty()) {
      const bool is_new = metadata.emplace(std::exchange(key_, {}).substr(1), std::move(text)).second;
      return is_new || fail("the metadata has a key twice");
    }
    if (place_ != Place::entry || key_ != "dtype") return unexpected(fmt::format("the text '{}'", text));
    const auto found = std::ranges::find(format_names, text, &FormatName::name);
    if (found == format_names.end()) {
      return fail(
          fmt::format("'{}' has dtype '{}'; I64, F64, F32, I32, BF16, F16, U8 and BOOL are read here", name_, text));
    }
    dtype_ = found->dtype;
    key_.clear();
    return true;
  }

  bool start_object(std::size_t) override {
    if (place_ == Place::nowhere) {
      place_ = Place::names;
    } else if (place_ == Place::names) {
      place_ = name_ == metadata_key ? Place::metadata : Place::entry;
      key_.clear();
      dtype_.reset();
      shape_.reset();
      offsets_.reset();
    } else {
      return unexpected("an object");
    }
    return true;
  }

  bool key(std::string& text) override {
    if (place_ == Place::names) {
      name_ = text;
      return names_.insert(std::move(text)).second || fail(fmt::format("the name '{}' is there twice", name_));
    }
    if (place_ == Place::metadata) {
      key_ = "=" + text;  // so that an empty key is one too
      return true;
    }
    const bool twice =
        (text == "dtype" && dtype_) || (text == "shape" && shape_) || (text == "data_offsets" && offsets_);
    if (twice) return fail(fmt::format("'{}' has {} twice", name_, text));
    if (text != "dtype" && text != "shape" && text != "data_offsets") {
      return fail(fmt::format("'{}' has a field '{}'; dtype, shape and data_offsets are known", name_, text));
    }
    key_ = std::move(text);
    return true;
  }

  bool start_array(std::size_t) override {
    if (place_ != Place::entry || (key_ != "shape" && key_ != "data_offsets")) return unexpected("a list");
    place_ = Place::numbers;
    numbers_.clear();
    return true;
  }

  bool end_array() override {
    place_ = Place::entry;
    if (key_ == "data_offsets") {
      if (numbers_.size() != 2) return fail(fmt::format("data_offsets of '{}' are not two numbers", name_));
      offsets_ = std::pair(static_cast<std::uint64_t>(numbers_[0]), static_cast<std::uint64_t>(numbers_[1]));
    } else {
      try {
        shape_ = Shape(std::span<const std::int64_t>(numbers_));
      } catch (const ShapeError& error) {
        return fail(fmt::format("the shape of '{}' is refused: {}", name_, error.what()));
      }
    }
    key_.clear();
    return true;
  }

  bool end_object() override {
    if (place_ == Place::names) {
      place_ = Place::done;
      return true;
    }
    if (std::exchange(place_, Place::names) == Place::metadata) return true;
    if (!dtype_ || !shape_ || !offsets_) {
      return fail(fmt::format("'{}' has no {}", name_, !dtype_ ? "dtype" : !shape_ ? "shape" : "data_offsets"));
    }
    entries.push_back({name_, {*dtype_, *shape_}, offsets_->first, offsets_->second});
    return true;
  }

  bool parse_error(std::size_t position, const std::string&, const nlohmann::json::exception& error) override {
    return fail(fmt::format("no valid JSON at byte {}: {}", position, error.what()));
  }

 private:
  enum class Place : std::uint8_t { nowhere, names, metadata, entry, numbers, done };

  bool fail(std::string reason) {
    problem = std::move(reason);
    return false;
  }
  bool unexpected(std::string_view what) {
    return fail(
        fmt::format("{} stands where it may not{}", what, name_.empty() ? "" : fmt::format(", at '{}'", name_)));
  }

  Place place_ = Place::nowhere;
  std::set<std::string, std::less<>> names_;
  std::string name_, key_;  // of the tensor, of its field
  std::vector<std::int64_t> numbers_;
  std::optional<DType> dtype_;
  std::optional<Shape> shape_;
  std::optional<std::pair<std::uint64_t, std::uint64_t>> offsets_;
};

/// Empty if the ordered entries fill `data_bytes` bytes exactly, else the reason.
std::string misplaced(std::span<const HeaderEntry> entries, std::uint64_t data_bytes) {
  std::uint64_t expected = 0;
  for (const HeaderEntry& entry : entries) {
    if (entry.begin != expected || entry.end < entry.begin || entry.end > data_bytes) {
      return fmt::format(
          "'{}' lies at {} to {}; it must begin at {}, where the tensor before it ends, and end by {}, where "
          "the file ends",
          entry.name, entry.begin, entry.end, expected, data_bytes);
    }
    if (entry.spec.bytes() != entry.end - entry.begin) {
      return fmt::format("'{}', {} {}, needs {} bytes; its data_offsets give {}", entry.name, name_of(entry.spec.dtype),
                         to_string(entry.spec.shape), entry.spec.bytes(), entry.end - entry.begin);
    }
    expected = entry.end;
  }
  if (expected == data_bytes) return {};
  return fmt::format("the tensors take {} bytes, the file has {} for them", expected, data_bytes);
}

std::string quoted(const std::string& text) {
  try {
    return nlohmann::json(text).dump();
  } catch (const nlohmann::json::type_error&) {
    throw ValueError("[save_safetensors] a name or the metadata is not UTF-8; the format knows UTF-8 only");
  }
}

}  // namespace

Header parse_header(std::string_view json, std::uint64_t data_bytes, std::string_view what) {
  HeaderReader reader;
  std::string problem;
  if (!json.starts_with('{')) {
    problem = "the header does not begin with '{'; is this a safetensors file?";
  } else if (json.find('\0') != std::string_view::npos) {
    problem = "the header is damaged: it has a zero byte";  // where the parser would stop, and others would not
  } else if (!nlohmann::json::sax_parse(json, &reader)) {
    problem = "the header is damaged: " + reader.problem;
  } else {
    std::ranges::stable_sort(reader.entries, {}, [](const HeaderEntry& e) { return std::tuple(e.begin, e.end); });
    problem = misplaced(reader.entries, data_bytes);
  }
  // A reason quotes the file, which may hold names of megabytes, and bytes that are no text.
  if (!problem.empty()) throw FileError(fmt::format("{}: {}", what, base::printable(problem, 400)));
  return {std::move(reader.entries), std::move(reader.metadata)};
}

std::string print_header(const Header& header) {
  std::vector<std::string> items;
  if (!header.metadata.empty()) {
    std::vector<std::string> pairs;
    for (const auto& [key, text] : header.metadata) pairs.push_back(quoted(key) + ":" + quoted(text));
    items.push_back(fmt::format("\"{}\":{{{}}}", metadata_key, fmt::join(pairs, ",")));
  }
  for (const HeaderEntry& entry : header.entries) {
    items.push_back(fmt::format(R"({}:{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})", quoted(entry.name),
                                format_names[place_of(entry.spec.dtype)].name, fmt::join(entry.spec.shape.sizes(), ","),
                                entry.begin, entry.end));
  }
  std::string json = fmt::format("{{{}}}", fmt::join(items, ","));
  json.append((8 - json.size() % 8) % 8, ' ');
  return json;
}

bool stored_before(const Spec& a, std::string_view a_name, const Spec& b, std::string_view b_name) noexcept {
  return std::tuple(place_of(a.dtype), a_name) < std::tuple(place_of(b.dtype), b_name);
}

}  // namespace everyo::io
