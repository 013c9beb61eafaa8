#pragma once
#include <cstdint>
#include <functional>
#include <string_view>
#include <type_traits>
#include <utility>

#include "everyo/random.h"
#include "everyo/tensor.h"

namespace everyo::inline v1 {

/// Connections into and out of one unit of a weight.
struct Fans {
  std::int64_t in = 1, out = 1;
};
/// [in, out] -> (in, out); [n] -> (n, n); a kernel [.., in, out] -> in and out times its positions; scalar -> (1, 1).
EVERYO_API Fans compute_fans(const Shape& shape);

/// Fills a fresh floating tensor from a seed. Draws are NumPy's `default_rng(seed)`, made as doubles in row-major
/// order and rounded once to the tensor's dtype, so one seed gives the same weights in any language.
class EVERYO_API Initializer {
 public:
  using Fill = std::function<void(const Tensor& values, std::uint64_t seed)>;

  /// By name: xavier_, glorot_, he_ or kaiming_ with uniform or normal; zeros, ones, uniform, normal.
  /// Throws ValueError "Unknown initializer".
  Initializer(std::string_view name);                                     // NOLINT: `.initializer = "he_normal"`
  Initializer(const char* name) : Initializer(std::string_view(name)) {}  // NOLINT
  template <class F>
  // NOLINTNEXTLINE: any function of that form
  requires std::is_invocable_r_v<void, F&, const Tensor&, std::uint64_t> Initializer(F fill) : fill_(std::move(fill)) {}

  using Draw = std::function<void(const Tensor& values, Generator& generator)>;
  /// One that draws from a generator; a seed stands for `Generator(seed)`.
  static Initializer drawing(Draw draw);

  /// Counts as no write of the tensor. Throws DTypeError for a dtype that is not floating.
  void operator()(const Tensor& values, std::uint64_t seed) const;
  /// The same from a generator, which moves on; a function of a seed takes its next 64 bits.
  void operator()(const Tensor& values, Generator& generator) const;
  [[nodiscard]] const Fill& fill() const noexcept { return fill_; }

 private:
  Fill fill_;
  Draw draw_;
};

namespace init {
/// Uniform in ±gain sqrt(6 / (in + out)) (Glorot and Bengio 2010).
EVERYO_API Initializer xavier_uniform(double gain = 1);
/// Normal with deviation gain sqrt(2 / (in + out)).
EVERYO_API Initializer xavier_normal(double gain = 1);
/// Uniform in ±gain sqrt(6 / in) (He et al. 2015).
EVERYO_API Initializer he_uniform(double gain = 1);
/// Normal with deviation gain sqrt(2 / in).
EVERYO_API Initializer he_normal(double gain = 1);
EVERYO_API Initializer uniform(double low = -0.05, double high = 0.05);
EVERYO_API Initializer normal(double deviation = 0.05, double mean = 0);
EVERYO_API Initializer constant(double value);
EVERYO_API Initializer zeros();
EVERYO_API Initializer ones();
}  // namespace init

}  // namespace everyo::inline v1
