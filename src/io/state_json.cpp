#include "io/state_json.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <map>

#include "base/json.h"
#include "everyo/error.h"

namespace everyo::io {
namespace {

using nlohmann::json;

constexpr int most_levels = 64;
constexpr const char *array_key = "$array", *number_key = "$number";

json number(double value) {
  if (std::isnan(value)) return {{number_key, std::signbit(value) ? "-nan" : "nan"}};
  if (std::isinf(value)) return {{number_key, value < 0 ? "-inf" : "inf"}};
  return value;
}

json sizes(const Shape& shape) { return std::vector<std::int64_t>(shape.sizes().begin(), shape.sizes().end()); }

class Splitter {
 public:
  json split(const StateTree& tree, const std::string& path) {
    if (tree.is<StateTree::Map>()) {
      json object = json::object();
      for (const auto& [key, entry] : tree.entries())
        object[key.starts_with('$') ? "$" + key : key] = split(entry, path.empty() ? key : path + "/" + key);
      return object;
    }
    if (tree.is<StateArray>()) return array(tree.as<StateArray>(), path);
    if (tree.is<double>()) return number(tree.as<double>());
    if (tree.is<std::int64_t>()) return tree.as<std::int64_t>();
    if (tree.is<bool>()) return tree.as<bool>();
    return tree.as<std::string>();
  }
  std::vector<NamedTensor> arrays;

 private:
  json array(const StateArray& array, const std::string& path) {
    array.check();
    // Paths are for people; two that read alike are told apart by a number.
    std::string name = path;
    for (int n = 2; names_.contains(name); ++n) name = fmt::format("{}#{}", path, n);
    names_[name] = true;
    arrays.emplace_back(name, Tensor::borrow(const_cast<std::byte*>(array.bytes.data()), array.spec));
    json entry = {{"name", name}};
    if (array.shard) {
      entry["full_shape"] = sizes(array.shard->full_shape);
      entry["offset"] = sizes(array.shard->offset);
    }
    return {{array_key, entry}};
  }
  std::map<std::string, bool> names_;
};

class Joiner {
 public:
  Joiner(std::vector<NamedTensor> arrays, std::string_view what) : what_(what) {
    for (auto& [name, tensor] : arrays) arrays_[name] = std::move(tensor);
  }
  StateTree join(const json& value, int level = 0) {
    if (level > most_levels) fail(fmt::format("values nest more than {} deep", most_levels));
    switch (value.type()) {
      case json::value_t::boolean: return value.get<bool>();
      case json::value_t::string: return value.get<std::string>();
      case json::value_t::number_float: return value.get<double>();
      case json::value_t::number_integer: return value.get<std::int64_t>();
      case json::value_t::number_unsigned:
        if (value.get<std::uint64_t>() > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()))
          fail("an integer is beyond 64 bits");
        return value.get<std::int64_t>();
      case json::value_t::object: return object(value, level);
      default: fail(fmt::format("a {} is no part of a state", value.type_name()));
    }
  }
  void all_taken() const {
    if (!arrays_.empty()) fail(fmt::format("array '{}' belongs to nothing", base::printable(arrays_.begin()->first)));
  }

 private:
  [[noreturn]] void fail(const std::string& why) const { throw FileError(fmt::format("{}: {}", what_, why)); }

  StateTree object(const json& value, int level) {
    if (value.size() == 1 && value.begin().key() == array_key) return array(value.begin().value());
    if (value.size() == 1 && value.begin().key() == number_key) return special(value.begin().value());
    StateTree tree;
    for (const auto& [key, entry] : value.items()) {
      if (key.starts_with('$') && !key.starts_with("$$"))
        fail(fmt::format("the name '{}' means nothing", base::printable(key)));
      tree[key.starts_with('$') ? key.substr(1) : key] = join(entry, level + 1);
    }
    return tree;
  }
  double special(const json& text) const {
    constexpr double infinity = std::numeric_limits<double>::infinity();
    constexpr double nan = std::numeric_limits<double>::quiet_NaN();
    if (text == "nan") return nan;
    if (text == "-nan") return -nan;
    if (text == "inf") return infinity;
    if (text == "-inf") return -infinity;
    fail("a number is none");
  }
  Shape shape(const json& list) const {
    if (!list.is_array()) fail("a shape is no list");
    Shape result;
    for (const json& size : list) {
      if (!size.is_number_integer()) fail("a size is no integer");
      result.push_back(size.get<std::int64_t>());
    }
    return result;
  }
  StateArray array(const json& entry) {
    if (!entry.is_object() || !entry.contains("name") || !entry["name"].is_string()) fail("an array has no name");
    const std::string name = entry["name"].get<std::string>();
    const auto found = arrays_.find(name);
    if (found == arrays_.end())
      fail(fmt::format("there is no array '{}', or two entries name it", base::printable(name)));
    const auto owner = std::make_shared<const Tensor>(std::move(found->second));
    arrays_.erase(found);
    StateArray result{owner->spec(), {owner->bytes(), owner->spec().bytes()}, owner, {}};
    if (entry.contains("full_shape"))
      result.shard = ShardInfo{shape(entry["full_shape"]), shape(entry.value("offset", json()))};
    result.check();
    return result;
  }

  std::string_view what_;
  std::map<std::string, Tensor> arrays_;
};

}  // namespace

SplitState split_state(const StateTree& state) {
  if (!state.is<StateTree::Map>()) throw ValueError("[save_state] the state is no map of names; give it one");
  Splitter splitter;
  json values = splitter.split(state, "");
  return {std::move(values), std::move(splitter.arrays)};
}

StateTree join_state(const json& values, std::vector<NamedTensor> arrays, std::string_view what) {
  Joiner joiner(std::move(arrays), what);
  try {
    StateTree tree = joiner.join(values);
    if (!tree.is<StateTree::Map>()) throw ValueError("the state is no map");
    joiner.all_taken();
    return tree;
  } catch (const FileError&) {
    throw;
  } catch (const Error& error) {  // a shape that cannot be, a shard outside its whole
    throw FileError(fmt::format("{}: {}", what, error.what()));
  }
}

}  // namespace everyo::io
