#include "everyo/state.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <vector>

#include "everyo/error.h"

namespace everyo::inline v1 {
namespace {

constexpr std::array<std::string_view, std::variant_size_v<StateTree::Value>> names{"map",  "integer", "number",
                                                                                    "bool", "string",  "array"};

std::string keys_of(const StateTree::Map& map) {
  std::vector<std::string_view> keys;
  for (const auto& [key, value] : map) keys.push_back(key);
  return keys.empty() ? "no keys" : fmt::format("'{}'", fmt::join(keys, "', '"));
}

}  // namespace

StateArray StateArray::copy_of(const Spec& spec, std::span<const std::byte> bytes) {
  auto owned = std::make_shared<const std::vector<std::byte>>(bytes.begin(), bytes.end());
  const std::span<const std::byte> copy(*owned);
  StateArray array{spec, copy, std::move(owned), std::nullopt};
  array.check();
  return array;
}

void StateArray::check() const {
  if (bytes.size() != spec.bytes()) {
    throw ValueError(fmt::format("[state] {} {} needs {} bytes, there are {}", name_of(spec.dtype),
                                 to_string(spec.shape), spec.bytes(), bytes.size()));
  }
  if (!shard) return;
  const Shape &full = shard->full_shape, &offset = shard->offset, &part = spec.shape;
  bool inside = full.rank() == part.rank() && offset.rank() == part.rank();
  for (std::int64_t i = 0; inside && i < part.rank(); ++i) {
    inside = offset[i] <= full[i] && part[i] <= full[i] - offset[i];
  }
  if (!inside) {
    throw ValueError(fmt::format("[state] a shard {} at {} does not lie in its whole {}", to_string(part),
                                 to_string(offset), to_string(full)));
  }
}

bool StateArray::operator==(const StateArray& other) const noexcept {
  return spec == other.spec && shard == other.shard && std::ranges::equal(bytes, other.bytes);
}

StateTree& StateTree::operator[](std::string_view key) {
  auto* map = std::get_if<Map>(&value_);
  if (map == nullptr) wrong_type(0);
  const auto found = map->find(key);
  return found != map->end() ? found->second : map->emplace(std::string(key), StateTree()).first->second;
}

const StateTree& StateTree::at(std::string_view key) const {
  const Map& map = entries();
  const auto found = map.find(key);
  if (found == map.end()) throw StateError(fmt::format("[state] '{}' is missing; there are {}", key, keys_of(map)));
  return found->second;
}

bool StateTree::contains(std::string_view key) const noexcept {
  const auto* map = std::get_if<Map>(&value_);
  return map != nullptr && map->find(key) != map->end();
}

bool StateTree::operator==(const StateTree& other) const noexcept { return value_ == other.value_; }

void StateTree::wrong_type(std::size_t wanted, std::string_view key) const {
  const std::string what = key.empty() ? "the value" : fmt::format("'{}'", key);
  throw StateError(fmt::format("[state] {} is of type {}; need {}", what, names[value_.index()], names[wanted]));
}

Stateful::~Stateful() = default;

}  // namespace everyo::inline v1
