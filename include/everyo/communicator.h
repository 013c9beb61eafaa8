#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <type_traits>

#include "everyo/dtype.h"
#include "everyo/export.h"

namespace everyo::inline v1 {

enum class ReduceOp : std::uint8_t { sum, mean, min, max };

/// "sum", "mean", "min", "max".
EVERYO_API std::string_view name_of(ReduceOp op) noexcept;

/// The ranks of one run, and what they do together. Every rank makes the same calls in the same order with equal sizes;
/// results are the same bits on every rank. Sizes that do not fit together throw ShapeError.
class EVERYO_API Communicator {
 public:
  Communicator() = default;
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;
  virtual ~Communicator();

  [[nodiscard]] virtual int rank() const noexcept = 0;        ///< 0 … world_size() - 1
  [[nodiscard]] virtual int world_size() const noexcept = 0;  ///< 1 or more

  /// data[i] of all ranks combined, on all ranks, in place. Throws DTypeError for a mean of integers or any sum of
  /// bools.
  virtual void all_reduce(std::span<std::byte> data, DType dtype, ReduceOp op) = 0;
  /// Part `rank()` of `data`, cut in world_size() equal parts, combined over the ranks into `part`.
  virtual void reduce_scatter(std::span<const std::byte> data, std::span<std::byte> part, DType dtype, ReduceOp op) = 0;
  /// The parts of all ranks one after the other in rank order.
  virtual void all_gather(std::span<const std::byte> part, std::span<std::byte> data) = 0;
  /// Rank root's data, on all ranks. Throws ValueError for a root that is no rank.
  virtual void broadcast(std::span<std::byte> data, int root) = 0;
  /// Returns once every rank has called it.
  virtual void barrier() = 0;

  template <class T, std::size_t N>
  void all_reduce(std::span<T, N> data, ReduceOp op = ReduceOp::sum) {
    all_reduce(std::as_writable_bytes(data), dtype_v<T>, op);
  }
  template <class T, std::size_t N, std::size_t M>
  void reduce_scatter(std::span<T, N> data, std::span<std::remove_const_t<T>, M> part, ReduceOp op = ReduceOp::sum) {
    reduce_scatter(std::as_bytes(data), std::as_writable_bytes(part), dtype_v<T>, op);
  }
  template <class T, std::size_t N, std::size_t M>
  void all_gather(std::span<T, N> part, std::span<std::remove_const_t<T>, M> data) {
    all_gather(std::span<const std::byte>(std::as_bytes(part)), std::span<std::byte>(std::as_writable_bytes(data)));
  }
  template <class T, std::size_t N>
  void broadcast(std::span<T, N> data, int root = 0) {
    broadcast(std::span<std::byte>(std::as_writable_bytes(data)), root);
  }
};

/// What scaler, clipping and trainer need of other ranks: a few numbers made the same on all of them, in place.
class EVERYO_API Agreement {
 public:
  Agreement() = default;
  Agreement(const Agreement&) = delete;
  Agreement& operator=(const Agreement&) = delete;
  virtual ~Agreement();
  /// The largest of each; NaN if any rank has NaN.
  virtual void max(std::span<double> values) = 0;
  virtual void sum(std::span<double> values) = 0;
};

/// Agrees with nobody: values stay what they are.
class EVERYO_API AgreementOfOne final : public Agreement {
 public:
  void max(std::span<double>) noexcept override {}
  void sum(std::span<double>) noexcept override {}
};

/// Agrees over a communicator, which must outlive it.
class EVERYO_API AgreementOver final : public Agreement {
 public:
  explicit AgreementOver(Communicator& communicator) noexcept : communicator_(communicator) {}
  void max(std::span<double> values) override { communicator_.all_reduce(values, ReduceOp::max); }
  void sum(std::span<double> values) override { communicator_.all_reduce(values, ReduceOp::sum); }

 private:
  Communicator& communicator_;
};

}  // namespace everyo::inline v1
