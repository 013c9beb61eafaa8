#pragma once
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>

#include "everyo/shape.h"

namespace everyo::inline v1 {

/// Where a shard lies in the array that all ranks' shards make up.
struct ShardInfo {
  Shape full_shape;
  Shape offset;  ///< of the shard's first element, one number a dimension
  friend bool operator==(const ShardInfo&, const ShardInfo&) = default;
};

/// Elements of a tensor, or of a shard of one, row by row: bytes that `owner` keeps alive.
struct StateArray {
  Spec spec;
  std::span<const std::byte> bytes;
  std::shared_ptr<const void> owner;
  std::optional<ShardInfo> shard;

  /// An array that owns a copy of `bytes`.
  EVERYO_API static StateArray copy_of(const Spec& spec, std::span<const std::byte> bytes);
  /// Throws ValueError unless the bytes are the spec's, and a shard lies inside its whole.
  EVERYO_API void check() const;
  /// Same spec, shard and bytes.
  EVERYO_API bool operator==(const StateArray& other) const noexcept;
};

/// What an object must keep to go on where it stopped: named values and arrays, nested. Files know nothing else.
///
///     StateTree state;
///     state["step"] = 3;
///     state["groups"]["0"]["lr"] = 0.1;
class StateTree {
 public:
  using Map = std::map<std::string, StateTree, std::less<>>;
  using Value = std::variant<Map, std::int64_t, double, bool, std::string, StateArray>;

  StateTree() = default;  // an empty map
  template <std::integral T>
  requires(!std::same_as<T, bool> && (sizeof(T) < 8 || std::signed_integral<T>)) StateTree(T value)
  noexcept : value_(static_cast<std::int64_t>(value)) {}
  StateTree(bool value) noexcept : value_(value) {}
  StateTree(double value) noexcept : value_(value) {}
  StateTree(std::string value) noexcept : value_(std::move(value)) {}
  StateTree(std::string_view value) : value_(std::string(value)) {}
  StateTree(const char* value) : value_(std::string(value)) {}
  StateTree(StateArray value) : value_(std::move(value)) {}

  /// The entry of a map, made if it is not there. Throws StateError on something that is no map.
  EVERYO_API StateTree& operator[](std::string_view key);
  /// Throws StateError that names the key and the keys there are.
  [[nodiscard]] EVERYO_API const StateTree& at(std::string_view key) const;
  [[nodiscard]] EVERYO_API bool contains(std::string_view key) const noexcept;
  /// Entries in the order of their names.
  [[nodiscard]] const Map& entries() const { return as<Map>(); }

  template <class T>
  [[nodiscard]] bool is() const noexcept {
    return std::holds_alternative<T>(value_);
  }
  /// The value as the type it was given: Map, int64_t, double, bool, string, StateArray. Throws StateError otherwise.
  template <class T>
  [[nodiscard]] const T& as() const {
    if (const T* value = std::get_if<T>(&value_)) return *value;
    wrong_type(Value(T{}).index());
  }
  /// at(key).as<T>(), with the key named in either error.
  template <class T>
  [[nodiscard]] const T& get(std::string_view key) const {
    const StateTree& entry = at(key);
    if (const T* value = std::get_if<T>(&entry.value_)) return *value;
    entry.wrong_type(Value(T{}).index(), key);
  }
  [[nodiscard]] const Value& value() const noexcept { return value_; }

  EVERYO_API bool operator==(const StateTree& other) const noexcept;

 private:
  [[noreturn]] EVERYO_API void wrong_type(std::size_t wanted, std::string_view key = {}) const;

  Value value_;
};

/// Something whose state can be saved and restored: optimizers, scalers, schedules, loaders, generators.
class EVERYO_API Stateful {
 public:
  virtual ~Stateful();
  [[nodiscard]] virtual StateTree state() const = 0;
  /// Throws StateError for a state that another kind of object, or one of other sizes, has saved; nothing is changed
  /// then.
  virtual void load(const StateTree& state) = 0;

 protected:
  Stateful() = default;
  Stateful(const Stateful&) = default;
  Stateful(Stateful&&) = default;
  Stateful& operator=(const Stateful&) = default;
  Stateful& operator=(Stateful&&) = default;
};

}  // namespace everyo::inline v1
