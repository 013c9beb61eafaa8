#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <unordered_map>
#include <unordered_set>

#include "nn/collect.h"
#include "nn/materialise.h"

namespace everyo::inline v1 {
namespace {

[[noreturn]] void refuse(const std::string& what) {
  throw StateError("[load_state_dict] " + what, ErrorKind::serialization);
}

std::string quoted(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += fmt::format("{}'{}'", text.empty() ? "" : ", ", name);
  return text;
}

// Values by key, each to be taken once.
class Values {
 public:
  explicit Values(std::span<const std::pair<std::string, Tensor>> state) {
    for (const auto& [key, value] : state) {
      if (!value.defined() || value.is_meta()) refuse(fmt::format("'{}' has no values; load what was saved", key));
      if (!values_.try_emplace(key, &value).second) refuse(fmt::format("'{}' is given twice", key));
    }
  }
  const Tensor* take(const std::string& key) {
    const auto it = values_.find(key);
    if (it == values_.end()) return nullptr;
    const Tensor* value = it->second;
    values_.erase(it);
    return value;
  }
  [[nodiscard]] std::vector<std::string> left() const {
    std::vector<std::string> keys;
    for (const auto& [key, value] : values_) keys.push_back(key);
    std::ranges::sort(keys);
    return keys;
  }

 private:
  std::unordered_map<std::string, const Tensor*> values_;
};

void check_shape(const char* kind, const std::string& key, const Tensor& to, const Tensor& from) {
  if (from.shape() != to.shape())
    refuse(fmt::format("{} '{}' expects shape {}, got {}; load the state of the same architecture", kind, key,
                       to_string(to.shape()), to_string(from.shape())));
}

// Two values of one parameter, which is tied to stand in both places.
void check_equal(const std::string& key, const Tensor& a, const std::string& other_key, const Tensor& b) {
  const auto bytes = [](const Tensor& t) { return std::span<const std::byte>(t.bytes(), t.spec().bytes()); };
  if (a.spec() != b.spec() || !std::ranges::equal(bytes(a), bytes(b)))
    refuse(
        fmt::format("'{}' and '{}' are one parameter and have different values; load the state of a model in which "
                    "they are tied, or leave one out",
                    key, other_key));
}

}  // namespace

StateDict ModuleBase::state_dict() const {
  Collected all;
  collect(*this, all);
  StateDict state;
  for (const Collected::Slot& slot : all.slots) state.emplace_back(all.key_of(slot), slot.tensor);
  for (const auto& [path, buffer] : all.buffers) state.emplace_back(path, buffer->tensor());
  return state;
}

LoadReport ModuleBase::load_state_dict(std::span<const std::pair<std::string, Tensor>> state,
                                       const LoadOptions& options) {
  Collected all;
  collect(*this, all);
  Values values(state);
  LoadReport report;
  std::vector<std::pair<Tensor, const Tensor*>> writes;
  const auto match = [&](const char* kind, const std::string& key, const Tensor& to, const Tensor* from) {
    if (!from) {
      report.missing.push_back(key);
      return;
    }
    check_shape(kind, key, to, *from);
    if (to.is_meta() && to.body()->leaf && to.body()->leaf->released)
      refuse(fmt::format("parameter '{}' is released; restore it first", key));
    writes.emplace_back(to, from);
  };
  for (const Collected::Slot& slot : all.slots) {
    // A file may hold a tied parameter under any of its places, or under all of them.
    const std::string key = all.key_of(slot);
    const Tensor* from = values.take(key);
    for (const std::string& path : slot.paths) {
      const Tensor* also = values.take(path);
      if (from && also) check_equal(key, *from, path, *also);
      if (!from) from = also;
    }
    match("parameter", key, slot.tensor, from);
  }
  for (const auto& [path, buffer] : all.buffers) match("Buffer", path, buffer->tensor(), values.take(path));
  report.unexpected = values.left();
  if (options.strict && !(report.missing.empty() && report.unexpected.empty())) {
    std::string what;
    if (!report.missing.empty()) what = "Missing keys: " + quoted(report.missing);
    if (!report.unexpected.empty())
      what += (what.empty() ? "" : "; ") + std::string("Unexpected keys: ") + quoted(report.unexpected);
    refuse(what + "; load the state of the same architecture, or with .strict = false");
  }
  // A source that lies in the module's own memory could be overwritten before it is read.
  std::unordered_set<const Storage*> written;
  for (const auto& [to, from] : writes) written.insert(to.body()->storage.get());
  std::vector<Tensor> sources;
  for (const auto& [to, from] : writes) {
    const Storage* storage = from->body()->storage.get();
    const bool aliased = storage && storage != to.body()->storage.get() && written.contains(storage);
    sources.push_back(aliased ? from->copy() : *from);
  }
  for (std::size_t i = 0; i < writes.size(); ++i) {
    const Tensor& to = writes[i].first;
    if (to.is_meta()) give_storage(to);
    to.assign(sources[i]);
  }
  return report;
}

}  // namespace everyo::inline v1
