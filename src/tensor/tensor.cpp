#include "everyo/tensor.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <ostream>

#include "base/thread_context.h"
#include "tensor/pool.h"

namespace everyo::inline v1 {

namespace {
bool may_change_unseen(const Storage& storage) { return storage.escaped() || storage.watched(); }
}  // namespace

Ref<Body> Body::make(const Spec& spec) { return Ref<Body>::adopt(new (pool_take(sizeof(Body))) Body(spec)); }
void Body::destroy() noexcept {
  this->~Body();
  pool_give(this, sizeof(Body));
}
std::uint32_t Body::version() const noexcept {
  return (storage ? storage->version() : 0) + (leaf ? leaf->version : 0);  // modulo 2^32, as restore_storage counts
}

Ref<Storage> CastCache::find(const Tensor& leaf, DType dtype) const {
  const std::scoped_lock lock(mutex_);
  const bool current = values_ && dtype_ == dtype && version_ == leaf.body()->version() &&
                       values_version_ == values_->version() && !may_change_unseen(*leaf.body()->storage);
  return current ? values_ : nullptr;
}
void CastCache::keep(const Tensor& leaf, DType dtype, Ref<Storage> values) {
  if (may_change_unseen(*leaf.body()->storage)) return clear();
  const std::scoped_lock lock(mutex_);
  dtype_ = dtype;
  version_ = leaf.body()->version();
  values_version_ = values->version();
  values_ = std::move(values);
}
void CastCache::clear() noexcept {
  const std::scoped_lock lock(mutex_);
  values_ = nullptr;
}

Tensor Tensor::meta(const Spec& spec) { return Tensor(Body::make(spec)); }

Tensor Tensor::empty(const Spec& spec) {
  const Context& c = thread_context;
  Ref<Body> body = Body::make(spec);
  if (!c.meta) body->storage = Storage::take(spec.bytes(), c.category);
  return Tensor(std::move(body));
}

Tensor Tensor::full(const Shape& shape, double value, DType dtype) {
  Tensor t = empty({dtype, shape});
  if (t.is_meta()) return t;
  visit_dtype(dtype, [&]<class T>() {
    for (T& element : t.data<T>()) element = narrow<T>(value);
  });
  return t;
}

Tensor Tensor::copy_of(const void* data, std::size_t count, const Spec& spec) {
  if (count != static_cast<std::size_t>(spec.shape.elements()))
    throw ShapeError(fmt::format("[tensor] {} values do not fill shape {}, which has {} elements; give as many values",
                                 count, to_string(spec.shape), spec.shape.elements()));
  Tensor t = empty(spec);
  if (!t.is_meta() && count != 0) std::memcpy(t.bytes(), data, spec.bytes());
  return t;
}

namespace {
bool row_major(const Shape& shape, std::span<const std::int64_t> strides) {
  std::int64_t expected = 1;
  for (std::int64_t i = shape.rank() - 1; i >= 0; --i) {
    if (shape[i] != 1 && strides[static_cast<std::size_t>(i)] != expected) return false;
    expected *= shape[i];
  }
  return true;
}
// Copies element by element; strides in bytes' units of `size`.
void copy_strided(std::byte* to, const std::byte* from, const Shape& shape, std::span<const std::int64_t> strides,
                  std::size_t size) {
  const auto step = static_cast<std::int64_t>(size);
  std::array<std::int64_t, static_cast<std::size_t>(Shape::max_rank)> index{};
  for (std::int64_t n = shape.elements(); n > 0; --n) {
    std::int64_t at = 0;
    for (std::size_t i = 0; i < strides.size(); ++i) at += index[i] * strides[i];
    std::memcpy(to, from + at * step, size);
    to += size;
    for (std::int64_t i = shape.rank() - 1; i >= 0; --i) {
      auto& k = index[static_cast<std::size_t>(i)];
      if (++k < shape[i]) break;
      k = 0;
    }
  }
}
}  // namespace

Tensor Tensor::borrow(void* data, const Spec& spec, std::span<const std::int64_t> strides,
                      std::function<void()> deleter) {
  if (!strides.empty() && strides.size() != static_cast<std::size_t>(spec.shape.rank()))
    throw ShapeError(fmt::format("[borrow] {} strides for shape {}; give one a dimension, in elements", strides.size(),
                                 to_string(spec.shape)));
  if (!data && spec.bytes() != 0)
    throw ValueError(fmt::format("[borrow] the memory of {} bytes is null; give an address", spec.bytes()));
  const bool aligned = reinterpret_cast<std::uintptr_t>(data) % size_of(spec.dtype) == 0;
  if (aligned && (strides.empty() || row_major(spec.shape, strides))) {
    Ref<Body> body = Body::make(spec);
    body->storage = Storage::borrow(data, spec.bytes(), std::move(deleter));
    return Tensor(std::move(body));
  }
  Ref<Body> body = Body::make(spec);
  body->storage = Storage::take(spec.bytes(), MemoryCategory::input);
  if (strides.empty()) {
    if (spec.bytes() != 0) std::memcpy(body->storage->data(), data, spec.bytes());
  } else {
    copy_strided(body->storage->data(), static_cast<const std::byte*>(data), spec.shape, strides, size_of(spec.dtype));
  }
  if (deleter) deleter();
  return Tensor(std::move(body));
}

const Tensor& Tensor::set_requires_grad(bool on) const {
  if (!is_leaf())
    throw StateError("[requires_grad] only a leaf can be told whether it needs a gradient; detach() first",
                     ErrorKind::gradient);
  if (on && !is_floating(dtype()))
    throw StateError(fmt::format("[requires_grad] only floating point tensors have gradients, not {}; cast it first",
                                 name_of(dtype())),
                     ErrorKind::gradient);
  body_->requires_grad = on;
  if (on && !body_->leaf) body_->leaf = std::make_unique<Leaf>();
  return *this;
}

Tensor Tensor::detach() const {
  Ref<Body> body = Body::make(spec());
  body->storage = body_->storage;
  body->offset = body_->offset;
  return Tensor(std::move(body));
}

Tensor Tensor::copy() const {
  if (is_meta()) return meta(spec());
  Tensor t = empty(spec());
  if (!t.is_meta() && t.size() != 0) std::memcpy(t.bytes(), bytes(), spec().bytes());
  return t;
}

void Tensor::refuse_undefined() {
  throw StateError("[Tensor] the tensor is undefined; give it a value before it is used");
}

void Tensor::check_data(DType wanted) const {
  if (wanted != dtype()) [[unlikely]]
    throw DTypeError(
        fmt::format("[data] the tensor is {}, {} was asked for; cast it first", name_of(dtype()), name_of(wanted)));
  if (!body_->storage) [[unlikely]] {
    if (body_->leaf && body_->leaf->released)
      throw StateError(fmt::format("[data] '{}' is released; restore it first", body_->leaf->name));
    throw StateError(fmt::format("[data] a meta tensor of shape {} has no values", to_string(shape())));
  }
}

std::byte* Tensor::escape() const {
  check_data(dtype());
  body_->storage->mark_escaped();
  return bytes();
}

double Tensor::item() const {
  if (size() != 1)
    throw ValueError(
        fmt::format("[item] shape {} has {} elements; item() needs exactly one element", to_string(shape()), size()));
  check_data(dtype());
  return visit_dtype(dtype(), [&]<class T>() { return static_cast<double>(widen(data<T>()[0])); });
}

std::vector<double> Tensor::to_vector() const {
  check_data(dtype());
  std::vector<double> values;
  values.reserve(static_cast<std::size_t>(size()));
  visit_dtype(dtype(), [&]<class T>() {
    for (const T element : data<T>()) values.push_back(static_cast<double>(widen(element)));
  });
  return values;
}

std::string to_string(const Tensor& tensor) {
  constexpr std::size_t most = 16;
  if (!tensor.defined()) return "undefined";
  std::string text = fmt::format("{} {}", name_of(tensor.dtype()), to_string(tensor.shape()));
  if (tensor.is_meta()) return text + " meta";
  std::vector<std::string> values;
  visit_dtype(tensor.dtype(), [&]<class T>() {
    for (const T element : tensor.data<T>().first(std::min(most, static_cast<std::size_t>(tensor.size()))))
      values.push_back(fmt::format("{}", widen(element)));
  });
  const bool more = static_cast<std::size_t>(tensor.size()) > most;
  return fmt::format("{} [{}{}]", text, fmt::join(values, ", "), more ? ", …" : "");
}
std::ostream& operator<<(std::ostream& out, const Tensor& tensor) { return out << to_string(tensor); }

void Tensor::assign(const Tensor& value) const {
  if (value.shape() != shape())
    throw ShapeError(fmt::format("[assign] shapes differ: tensor {}, value {}; assign keeps the tensor's shape",
                                 to_string(shape()), to_string(value.shape())));
  check_data(dtype());
  value.check_data(value.dtype());
  if (size() != 0) {
    if (value.dtype() == dtype()) {
      std::memmove(bytes(), value.bytes(), spec().bytes());
    } else {
      visit_dtype(dtype(), [&]<class To>() {
        visit_dtype(value.dtype(), [&]<class From>() {
          const auto to = data<To>();
          const auto from = value.data<From>();
          for (std::size_t i = 0; i < to.size(); ++i) to[i] = narrow<To>(widen(from[i]));
        });
      });
    }
  }
  body_->storage->bump_version();
}

namespace {
Leaf& leaf_of(const char* what, const Tensor& t) {
  if (!t.defined() || !t.body()->leaf)
    throw StateError(fmt::format("[{}] the tensor is no slot; it needs set_requires_grad() or a Parameter", what));
  return *t.body()->leaf;
}
void check_room(const char* what, const Spec& spec, const Ref<Storage>& given, std::size_t offset) {
  if (!given) throw StateError(fmt::format("[{}] there is no storage; give one of {} bytes", what, spec.bytes()));
  const Storage& storage = *given;
  if (offset > storage.bytes() || storage.bytes() - offset < spec.bytes())
    throw ShapeError(fmt::format("[{}] {} bytes from offset {} on do not fit into a storage of {} bytes", what,
                                 spec.bytes(), offset, storage.bytes()));
  if (offset % size_of(spec.dtype) != 0)
    throw ShapeError(fmt::format("[{}] offset {} is no multiple of {}, the size of {}", what, offset,
                                 size_of(spec.dtype), name_of(spec.dtype)));
}
}  // namespace

void give_memory(const Tensor& leaf, Ref<Storage> storage, std::size_t offset) {
  GradSlot& slot = leaf_of("give_memory", leaf).grad;
  check_room("give_memory", leaf.spec(), storage, offset);
  Ref<Body> body = Body::make(leaf.spec());
  body->storage = std::move(storage);
  body->offset = offset;
  slot.value = Tensor(std::move(body));
  slot.external = true;
  slot.full = slot.summed = false;
  for (auto& use : slot.uses) use.full = false;
}

void release_storage(const Tensor& leaf) {
  Leaf& slot = leaf_of("release_storage", leaf);
  if (Ref<Storage>& storage = leaf.body()->storage) slot.version += storage->version();
  leaf.body()->storage = nullptr;
  slot.cast.clear();
  slot.released = true;
}

void restore_storage(const Tensor& leaf, Ref<Storage> storage, std::size_t offset) {
  Leaf& slot = leaf_of("restore_storage", leaf);
  check_room("restore_storage", leaf.spec(), storage, offset);
  if (const Ref<Storage>& old = leaf.body()->storage) slot.version += old->version();
  slot.version -= storage->version();
  slot.cast.clear();
  leaf.body()->storage = std::move(storage);
  leaf.body()->offset = offset;
  slot.released = false;
}

}  // namespace everyo::inline v1
