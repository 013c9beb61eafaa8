#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "everyo/nn/initialisation.h"
#include "everyo/tensor.h"

namespace everyo::inline v1 {

/// How a parameter gets its first values.
struct Init {
  Initializer initializer = init::zeros();
  std::optional<std::uint64_t> seed{};  ///< none: from the system's entropy
  DType dtype = float32;
};

/// A slot that one module owns and optimizers train. Moving hands it over; clone() copies it; tie() shares it; any
/// other copy is an error, so nothing trains a silent copy.
class EVERYO_API Parameter {
 public:
  Parameter() = default;
  /// Inside a MetaScope it has no values until materialise(). Throws DTypeError unless the dtype is floating.
  Parameter(const Shape& shape, const Init& init);
  /// A parameter that starts from a copy of `values`. Throws DTypeError unless they are floating.
  static Parameter of(const Tensor& values);

  Parameter(Parameter&& other) noexcept;
  /// The slot changes; the place keeps its name when nothing else owns the new slot.
  Parameter& operator=(Parameter&& other) noexcept;
  /// Throws StateError outside clone().
  Parameter(const Parameter& other);
  Parameter& operator=(const Parameter&) = delete;
  ~Parameter();

  /// The same slot for another place: `head.weight = stem.weight.tie();`
  [[nodiscard]] Parameter tie() const;

  [[nodiscard]] const Tensor& tensor() const noexcept { return slot_; }
  operator const Tensor&() const noexcept { return slot_; }  // NOLINT: a parameter stands where a tensor does
  // These throw StateError on an empty or moved-from parameter.
  [[nodiscard]] const Shape& shape() const { return slot_.shape(); }
  [[nodiscard]] DType dtype() const { return slot_.dtype(); }
  [[nodiscard]] Tensor grad() const { return slot_.grad(); }
  /// Dotted path that parameters() stamped; "" before, and on an empty parameter.
  [[nodiscard]] const std::string& name() const noexcept;

 private:
  void adopt(Tensor slot);
  void let_go() noexcept;

  Tensor slot_;
};

/// State that is no parameter: no gradient, in state_dict(), written only through post().
class EVERYO_API Buffer {
 public:
  Buffer() = default;
  Buffer(const Shape& shape, double value, DType dtype = float32);
  /// A buffer that starts from a copy of `values`.
  static Buffer of(const Tensor& values);

  Buffer(Buffer&&) noexcept = default;
  Buffer& operator=(Buffer&&) noexcept = default;
  /// Throws StateError outside clone().
  Buffer(const Buffer& other);
  Buffer& operator=(const Buffer&) = delete;

  [[nodiscard]] const Tensor& tensor() const noexcept { return values_; }
  operator const Tensor&() const noexcept { return values_; }  // NOLINT

  /// buffer = (1 - momentum) buffer + momentum observed, computed in float64 and rounded once. The Context says when:
  /// at once, queued with its BufferUpdates, or never (recompute, meta). `observed` has the buffer's shape.
  void post(const Tensor& observed, double momentum) const;

 private:
  friend struct Materialiser;
  Tensor values_;
  double initial_ = 0;
};

/// The buffers' updates of one shard, while Context::buffers points here.
class EVERYO_API BufferUpdates {
 public:
  struct Update {
    Tensor buffer, observed;
    double momentum;
  };
  void add(Update update) { updates_.push_back(std::move(update)); }
  [[nodiscard]] std::span<const Update> updates() const noexcept { return updates_; }
  void clear() noexcept { updates_.clear(); }

 private:
  std::vector<Update> updates_;
};
/// One update a buffer: the mean of what the shards observed, summed by one binary tree over their order in the dtype
/// of the buffer (halves: float32), whoever ran them. Shards without any update count for nothing. Clears the lists.
/// Throws StateError when two shards updated different buffers.
EVERYO_API void apply_updates(std::span<BufferUpdates> shards);

/// Inside, copying a Parameter or Buffer makes a new one, and ties among the copies stay ties. clone() opens it.
class [[nodiscard]] EVERYO_API CloneScope {
 public:
  CloneScope();
  ~CloneScope();
  CloneScope(const CloneScope&) = delete;
  CloneScope& operator=(const CloneScope&) = delete;

 private:
  std::unique_ptr<CloneMap> map_;  // none inside another clone
};

}  // namespace everyo::inline v1
