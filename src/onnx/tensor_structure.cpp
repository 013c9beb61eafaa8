#include "onnx/tensor_structure.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <utility>

#include "everyo/shape.h"
#include "onnx/messages.h"

namespace everyo::onnx_export {
namespace {

using onnx_file::SparseTensorProto;
using onnx_file::TensorProto;

enum class Field : std::uint8_t { none, floats, int32s, int64s, doubles, uint64s, strings };
constexpr std::array<std::string_view, 7> field_names{"raw_data",    "float_data",  "int32_data", "int64_data",
                                                      "double_data", "uint64_data", "string_data"};

/// How a type of the format lies in a file.
struct Layout {
  Field field = Field::none;  ///< beside raw_data; none: the type is unknown
  std::uint64_t bits = 0;     ///< of an element in raw_data
  std::uint64_t entries = 1;  ///< of the field, an element
};
/// By the type's number. Those above 16 are newer than the definition this is built with: floats of 8 bits, integers
/// and floats of 4, of 2.
constexpr std::array<Layout, 27> layouts{{{},
                                          {Field::floats, 32},
                                          {Field::int32s, 8},
                                          {Field::int32s, 8},
                                          {Field::int32s, 16},
                                          {Field::int32s, 16},
                                          {Field::int32s, 32},
                                          {Field::int64s, 64},
                                          {Field::strings, 0},
                                          {Field::int32s, 8},
                                          {Field::int32s, 16},
                                          {Field::doubles, 64},
                                          {Field::uint64s, 32},
                                          {Field::uint64s, 64},
                                          {Field::floats, 64, 2},
                                          {Field::doubles, 128, 2},
                                          {Field::int32s, 16},
                                          {Field::int32s, 8},
                                          {Field::int32s, 8},
                                          {Field::int32s, 8},
                                          {Field::int32s, 8},
                                          {Field::int32s, 4},
                                          {Field::int32s, 4},
                                          {Field::int32s, 4},
                                          {Field::int32s, 8},
                                          {Field::int32s, 2},
                                          {Field::int32s, 2}}};

Layout layout_of(const TensorProto& tensor, const Place& place) {
  const std::int32_t type = tensor.data_type();
  const bool known = type > 0 && static_cast<std::size_t>(type) < layouts.size();
  if (!known) place.fail(fmt::format("its data type is {}; the format has 1 to {}", type, layouts.size() - 1));
  return layouts[static_cast<std::size_t>(type)];
}

/// Elements of a tensor of these sizes.
template <class Sizes>
std::uint64_t elements_of(const Sizes& sizes, const Place& place) {
  std::uint64_t product = 1;
  bool none = false;
  for (const std::int64_t size : sizes) {
    if (size < 0) place.fail(fmt::format("a size of {}; sizes are not negative", size));
    none = none || size == 0;
    const std::uint64_t factor = std::max<std::uint64_t>(static_cast<std::uint64_t>(size), 1);
    if (factor > static_cast<std::uint64_t>(Shape::max_elements) / product) {
      place.fail(fmt::format("more than {} elements", Shape::max_elements));
    }
    product *= factor;
  }
  return none ? 0 : product;
}

std::uint64_t number_of(std::string_view key, const std::string& text, const Place& place) {
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool fits = number <= static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
  if (error != std::errc() || end != text.data() + text.size() || !fits) {
    place.fail(
        fmt::format("the {} of its external data is '{}', which is no number of bytes", key, base::printable(text)));
  }
  return number;
}

void check_location(const std::string& location, const Place& place) {
  const std::filesystem::path path = location;
  // "*/…" is how ONNX Runtime marks an address in memory.
  const bool inside = !location.empty() && path.is_relative() && location.find('\0') == std::string::npos &&
                      location.find('\\') == std::string::npos && !location.starts_with("*/") &&
                      std::ranges::none_of(path, [](const auto& part) { return part == ".."; });
  if (!inside) {
    place.fail(
        fmt::format("its data lie in '{}'; a path inside the model's folder is wanted", base::printable(location)));
  }
}

void check_external(const TensorProto& tensor, std::uint64_t bytes, const Place& place,
                    std::vector<ExternalData>& external) {
  ExternalData data{tensor.name(), {}, 0, bytes};
  std::vector<std::string_view> seen;
  for (const auto& entry : tensor.external_data()) {
    if (std::ranges::count(seen, entry.key()) > 0) {
      place.fail(fmt::format("'{}' of its external data is there twice", base::printable(entry.key())));
    }
    seen.push_back(entry.key());
    if (entry.key() == "location") data.location = entry.value();
    if (entry.key() == "offset") data.offset = number_of("offset", entry.value(), place);
    if (entry.key() != "length") continue;
    const std::uint64_t length = number_of("length", entry.value(), place);
    if (length != bytes) place.fail(fmt::format("its sizes make {} bytes; its external data have {}", bytes, length));
  }
  check_location(data.location, place);
  external.push_back(std::move(data));
}

/// What a tensor has in each field, raw_data first.
std::array<std::uint64_t, 7> counts_of(const TensorProto& tensor) {
  const auto count = [](int size) { return static_cast<std::uint64_t>(size); };
  return {tensor.raw_data().size(),        count(tensor.float_data_size()),  count(tensor.int32_data_size()),
          count(tensor.int64_data_size()), count(tensor.double_data_size()), count(tensor.uint64_data_size()),
          count(tensor.string_data_size())};
}

/// The field that the values are in; the others are empty.
std::size_t field_in_use(const TensorProto& tensor, Layout layout, const Place& place) {
  const std::array<std::uint64_t, 7> counts = counts_of(tensor);
  const auto own = static_cast<std::size_t>(layout.field);
  const bool external = tensor.data_location() == TensorProto::EXTERNAL;
  const bool raw = tensor.has_raw_data() && layout.field != Field::strings;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    const bool wanted = !external && i == (raw ? 0 : own);
    if (wanted || counts[i] == 0) continue;
    place.fail(fmt::format("its {} is not empty; a tensor of type {} has its values in {}", field_names[i],
                           tensor.data_type(),
                           external ? "another file"
                           : raw    ? "raw_data alone"
                                    : field_names[own]));
  }
  return raw ? 0 : own;
}

/// Integers of a tensor that has passed check_tensor.
std::vector<std::int64_t> integers_of(const TensorProto& tensor) {
  std::vector<std::int64_t> values(tensor.int64_data().begin(), tensor.int64_data().end());
  if (!tensor.has_raw_data()) return values;
  values.resize(tensor.raw_data().size() / sizeof(std::int64_t));
  if (!values.empty()) std::memcpy(values.data(), tensor.raw_data().data(), values.size() * sizeof(std::int64_t));
  return values;
}

}  // namespace

void check_tensor(const TensorProto& tensor, const Place& place, std::vector<ExternalData>& external) {
  const Layout layout = layout_of(tensor, place);
  const std::uint64_t elements = elements_of(tensor.dims(), place);
  const std::uint64_t bytes = elements / 8 * layout.bits + (elements % 8 * layout.bits + 7) / 8;
  if (tensor.has_segment()) place.fail("it is a segment of a tensor; no runtime reads those");
  const std::size_t field = field_in_use(tensor, layout, place);
  if (tensor.data_location() == TensorProto::EXTERNAL) {
    if (layout.field == Field::strings) place.fail("texts cannot lie in another file");
    return check_external(tensor, bytes, place, external);
  }
  // Elements of less than a byte share one, and a byte has an entry of its own.
  const std::uint64_t entries = layout.bits > 0 && layout.bits < 8 ? bytes : elements * layout.entries;
  const std::uint64_t wanted = field == 0 ? bytes : entries, found = counts_of(tensor)[field];
  if (wanted != found) {
    const char* unit = field == 0 ? "bytes" : "entries";
    place.fail(fmt::format("its sizes make {} {} of {}; it has {}", wanted, unit, field_names[field], found));
  }
}

void check_sparse_tensor(const SparseTensorProto& tensor, const Place& place, std::vector<ExternalData>& external) {
  const TensorProto &values = tensor.values(), &indices = tensor.indices();
  const Place at_indices = place.inner("indices", {});
  const std::uint64_t elements = elements_of(tensor.dims(), place);
  check_tensor(values, place.inner("values", {}), external);
  check_tensor(indices, at_indices, external);
  if (values.dims_size() != 1) place.fail(fmt::format("its values have {} axes; one is wanted", values.dims_size()));
  const std::int64_t count = values.dims(0), rank = tensor.dims_size();
  const bool linear = indices.dims_size() == 1 && indices.dims(0) == count;
  const bool by_axis = indices.dims_size() == 2 && indices.dims(0) == count && indices.dims(1) == rank;
  if (indices.data_type() != TensorProto::INT64 || !(linear || by_axis)) {
    at_indices.fail(
        fmt::format("they are not of type int64 and shape ({0},) or ({0}, {1}), as those of {0} values in a tensor "
                    "of {1} axes are",
                    count, rank));
  }
  if (indices.data_location() == TensorProto::EXTERNAL)
    at_indices.fail("they lie in another file; no runtime reads that");
  const std::vector<std::int64_t> places = integers_of(indices);
  for (std::size_t i = 0; i < places.size(); ++i) {
    const std::int64_t size = linear ? static_cast<std::int64_t>(elements)
                                     : tensor.dims(static_cast<int>(i % static_cast<std::size_t>(rank)));
    if (places[i] < 0 || places[i] >= size)
      at_indices.fail(fmt::format("index {} is outside of 0 to {}", places[i], size - 1));
  }
}

}  // namespace everyo::onnx_export
