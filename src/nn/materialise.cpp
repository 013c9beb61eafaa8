#include "nn/materialise.h"

#include <fmt/format.h>

#include "nn/collect.h"

namespace everyo::inline v1 {

void give_storage(const Tensor& meta) {
  Ref<Storage> storage = Storage::take(meta.spec().bytes(), MemoryCategory::parameter);
  if (meta.body()->leaf)
    restore_storage(meta, std::move(storage));
  else
    meta.body()->storage = std::move(storage);
}

struct Materialiser {
  static void fill(const Buffer& buffer) {
    const Tensor& values = buffer.values_;
    visit_dtype(values.dtype(), [&]<class T>() {
      for (T& value : values.data<T>()) value = narrow<T>(buffer.initial_);
    });
  }
};

namespace {

// A seed that belongs to the name: FNV-1a over the path, from a start that depends on the seed.
std::uint64_t seed_of(std::uint64_t seed, std::string_view path) {
  std::uint64_t hash = 14695981039346656037u ^ seed * 0x9E3779B97F4A7C15u;
  for (const char c : path) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211u;
  return hash;
}

}  // namespace

void materialise(ModuleBase& module, std::uint64_t seed) {
  Collected all;
  collect(module, all);
  for (const Collected::Slot& slot : all.slots) {
    Leaf& leaf = *slot.tensor.body()->leaf;
    if (!slot.tensor.is_meta() || leaf.released) continue;
    const std::string path = all.above + all.key_of(slot);
    if (!leaf.initialise)
      throw StateError(
          fmt::format("[materialise] parameter '{}' was made from values and has no initializer; load "
                      "its values with load_state_dict",
                      path));
    leaf.seed = seed_of(seed, path);
    give_storage(slot.tensor);
    leaf.initialise(slot.tensor, leaf.seed);
  }
  for (const auto& [path, buffer] : all.buffers) {
    if (!buffer->tensor().is_meta()) continue;
    give_storage(buffer->tensor());
    Materialiser::fill(*buffer);
  }
}

}  // namespace everyo::inline v1
