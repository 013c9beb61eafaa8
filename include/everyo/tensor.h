#pragma once
#include <functional>
#include <initializer_list>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "everyo/error.h"
#include "everyo/half.h"
#include "everyo/shape.h"
#include "everyo/storage.h"

namespace everyo::inline v1 {

class Tensor;
struct Leaf;

/// What a recorded op is to the tensors it made: something counted, destroyed by the room that made it.
struct GraphNode : RefCount {
  void (*destroy)(GraphNode*) noexcept = nullptr;
  void release() noexcept {
    if (drop()) destroy(this);
  }
};

/// What a Tensor handle points at.
struct EVERYO_API Body : RefCount {
  DType dtype;
  bool requires_grad = false;
  std::uint16_t output = 0;  // which output of `node`
  Shape shape;
  Ref<Storage> storage;  // none: meta, or released
  std::size_t offset = 0;
  Ref<GraphNode> node;
  std::unique_ptr<Leaf> leaf;

  explicit Body(const Spec& spec) noexcept : dtype(spec.dtype), shape(spec.shape) {}
  static Ref<Body> make(const Spec& spec);
  void release() noexcept {
    if (drop()) destroy();
  }
  /// Writes seen by this body: of its storage, and for a slot those of storages it had before.
  [[nodiscard]] std::uint32_t version() const noexcept;

 private:
  void destroy() noexcept;
};

struct BackwardOptions {
  bool retain_graph = false;       ///< keep what the graph saved, so that it can be walked again
  const Tensor* seed = nullptr;    ///< gradient of the tensor itself, [its shape]; needed unless it has one element
  std::function<void()> at_end{};  ///< runs when every gradient is there, before backward returns
};

/// A handle to values of one dtype and shape, row-major and contiguous. Copying the handle shares the values. A *meta*
/// tensor has a shape and no data. A tensor that requires a gradient and was made by no op is a *leaf*, or slot: it
/// has a name, a version and a place for its gradient, and optimizers refer to it.
class EVERYO_API Tensor {
 public:
  Tensor() = default;
  explicit Tensor(Ref<Body> body) noexcept : body_(std::move(body)) {}

  /// Uninitialised; meta inside a MetaScope. The bytes are counted under the context's category.
  static Tensor empty(const Spec& spec);
  static Tensor empty(const Shape& shape, DType dtype = float32) { return empty(Spec{dtype, shape}); }
  static Tensor meta(const Spec& spec);
  /// All elements `value`, rounded once to `dtype`.
  static Tensor full(const Shape& shape, double value, DType dtype = float32);
  static Tensor zeros(const Shape& shape, DType dtype = float32) { return full(shape, 0, dtype); }
  static Tensor ones(const Shape& shape, DType dtype = float32) { return full(shape, 1, dtype); }
  /// A copy of `values` in row-major order. Throws ShapeError unless their number is shape's.
  template <class T>
  static Tensor from(std::span<const T> values, const Shape& shape) {
    return copy_of(values.data(), values.size(), {dtype_v<T>, shape});
  }
  template <class T>
  static Tensor from(std::initializer_list<T> values, const Shape& shape) {
    return from(std::span<const T>(values.begin(), values.size()), shape);
  }
  template <class T>
  static Tensor from(std::initializer_list<T> values) {
    return from(values, {static_cast<std::int64_t>(values.size())});
  }
  static Tensor scalar(double value, DType dtype = float32) { return full({}, value, dtype); }

  /// A tensor over a caller's memory: shared when `strides` (in elements, one a dimension; empty: row-major) are
  /// row-major and `data` is aligned for the dtype, else a copy, after which `deleter` runs at once.
  /// Throws ShapeError when the number of strides is not the rank.
  static Tensor borrow(void* data, const Spec& spec, std::span<const std::int64_t> strides = {},
                       std::function<void()> deleter = {});

  [[nodiscard]] bool defined() const noexcept { return static_cast<bool>(body_); }
  // These throw StateError on an undefined tensor.
  [[nodiscard]] const Shape& shape() const { return known().shape; }
  [[nodiscard]] std::int64_t rank() const { return known().shape.rank(); }
  [[nodiscard]] std::int64_t size() const { return known().shape.elements(); }
  [[nodiscard]] DType dtype() const { return known().dtype; }
  [[nodiscard]] Spec spec() const { return {known().dtype, body_->shape}; }
  [[nodiscard]] bool is_meta() const { return !known().storage; }
  [[nodiscard]] bool requires_grad() const { return known().requires_grad; }
  [[nodiscard]] bool is_leaf() const { return !known().node; }

  /// Throws StateError (gradient) on a tensor an op made, and on integers: "only floating point tensors …".
  const Tensor& set_requires_grad(bool on = true) const;
  /// The same values outside the graph; shares storage.
  [[nodiscard]] Tensor detach() const;
  /// A copy of the values in storage of its own, outside the graph.
  [[nodiscard]] Tensor copy() const;

  /// The elements. Writing through the span counts as no write: it is for filling a fresh tensor, and for op
  /// records. Throws DTypeError when T is another type, StateError without data.
  template <class T>
  [[nodiscard]] std::span<T> data() const {
    check_data(dtype_v<T>);
    return {reinterpret_cast<T*>(bytes()), static_cast<std::size_t>(size())};
  }
  /// The elements, to be changed in place: counted, so that a backward that saved the old values refuses.
  template <class T>
  [[nodiscard]] std::span<T> write() const {
    const auto span = data<T>();
    body_->storage->bump_version();
    return span;
  }
  /// First byte; unchecked.
  [[nodiscard]] std::byte* bytes() const noexcept { return body_->storage->data() + body_->offset; }
  /// The elements for a view that outlives this call outside the library: from now on nothing derived is cached.
  [[nodiscard]] std::byte* escape() const;

  /// The value of the only element, as double. Throws ValueError "… exactly one element …".
  [[nodiscard]] double item() const;
  /// Every element as double, row-major.
  [[nodiscard]] std::vector<double> to_vector() const;

  /// A leaf's gradient: a live view of its slot; undefined until a backward has reached it.
  [[nodiscard]] Tensor grad() const;
  /// Clears a flag: the next gradient overwrites, nothing is freed or written.
  void zero_grad() const;
  /// Writes `value` [this shape] into this tensor, converting to its dtype. Identity, gradient slot, hooks and
  /// optimizer state stay; a graph that saved the old values refuses to run backward. Throws ShapeError, StateError.
  void assign(const Tensor& value) const;
  /// Adds the gradients of this tensor to every leaf it was made from. Throws StateError (gradient): "does not
  /// require gradients", "needs an explicit gradient", "the graph was freed", "was changed between …".
  void backward() const;
  void backward(const BackwardOptions& options) const;

  [[nodiscard]] Body* body() const noexcept { return body_.get(); }

 private:
  static Tensor copy_of(const void* data, std::size_t count, const Spec& spec);
  void check_data(DType wanted) const;
  [[nodiscard]] const Body& known() const {
    if (!body_) [[unlikely]]
      refuse_undefined();
    return *body_;
  }
  [[noreturn]] static void refuse_undefined();

  Ref<Body> body_;
};

/// "float32 (2, 3) [1, 2, 3, 4, 5, 6]": dtype, shape, and the first values row by row.
EVERYO_API std::string to_string(const Tensor& tensor);
EVERYO_API std::ostream& operator<<(std::ostream& out, const Tensor& tensor);

/// How a gradient slot's memory relates to the whole gradient (sharding).
enum class Layout : std::uint8_t { replicated, shard, partial };

struct GradSlot {
  Tensor value;           ///< keeps its memory while `full` is false
  bool full = false;      ///< false: grad() is undefined, the next contribution overwrites
  bool external = false;  ///< memory given from outside: never replaced
  Layout layout = Layout::replicated;
  std::int64_t shard_offset = 0;
  float scale = 1;  ///< what the gradient is still multiplied by; clipping refuses all but 1
  struct Use {
    Tensor value;
    bool full = false;
  };
  std::vector<Use> uses;             ///< a tied weight: one accumulator per place of use, summed in that order
  bool summed = false;               ///< `value` is the sum of `uses`, unless its version has changed since
  std::uint32_t summed_version = 0;  ///< of `value` when `uses` were last summed into it
};

/// A parameter's values in a half, which all uses of it under autocast share until it is written. Lost when its storage
/// is; never made while a view outside the library could write to the parameter unseen.
class EVERYO_API CastCache {
 public:
  /// The bytes of `leaf` in `dtype`; null when none are kept, or either side was written since.
  [[nodiscard]] Ref<Storage> find(const Tensor& leaf, DType dtype) const;
  /// `values` holds `leaf` in `dtype`, from its first byte on.
  void keep(const Tensor& leaf, DType dtype, Ref<Storage> values);
  void clear() noexcept;

 private:
  mutable std::mutex mutex_;  // threads may share a model that none of them writes
  Ref<Storage> values_;
  DType dtype_{};
  std::uint32_t version_ = 0, values_version_ = 0;
};

/// What a tensor has when it is a slot.
struct Leaf {
  std::string name;                      ///< dotted path, stamped by the module's visit
  std::uint32_t version = 0;             ///< writes of storages it no longer has
  bool parameter = false;                ///< made by a Parameter
  bool released = false;                 ///< its storage was given up (sharding)
  std::int32_t owners = 0;               ///< Parameters that hold it; an optimizer refuses a parameter with none
  std::vector<std::uint64_t> use_paths;  ///< path hashes of the modules that own it, in visit order, when tied
  GradSlot grad;
  CastCache cast;
  using ReadyHook = std::function<void(const Tensor& leaf)>;
  std::vector<std::pair<std::uint64_t, ReadyHook>> ready;  ///< gradient complete, while backward still runs
  std::uint64_t next_hook = 1;
  std::int32_t pending = 0;                                                ///< edges still to come in this backward
  std::uint64_t seed = 0;                                                  ///< of its initial value
  std::function<void(const Tensor& leaf, std::uint64_t seed)> initialise;  ///< fills it (meta parameters, later)
};

/// The gradient slot moves into memory from outside (a bucket, a shared segment): `storage` from byte `offset` on.
/// Throws StateError when `leaf` is no leaf, ShapeError when the storage is too small.
EVERYO_API void give_memory(const Tensor& leaf, Ref<Storage> storage, std::size_t offset);
/// Gives a slot's values up; identity, gradient, hooks and version stay (sharding).
EVERYO_API void release_storage(const Tensor& leaf);
/// Gives a released slot values again. Throws ShapeError when the storage is too small.
EVERYO_API void restore_storage(const Tensor& leaf, Ref<Storage> storage, std::size_t offset = 0);

}  // namespace everyo::inline v1
