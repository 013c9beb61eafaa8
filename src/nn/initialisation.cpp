#include "everyo/nn/initialisation.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <span>

#include "everyo/random.h"

namespace everyo::inline v1 {

Fans compute_fans(const Shape& shape) {
  if (shape.rank() == 0) return {1, 1};
  if (shape.rank() == 1) return {shape[0], shape[0]};
  std::int64_t positions = 1;
  for (std::int64_t i = 0; i < shape.rank() - 2; ++i) positions *= shape[i];
  return {positions * shape[-2], positions * shape[-1]};
}

namespace {

// Draws in blocks: a sequence drawn in pieces is the sequence drawn at once.
template <class Draw>
void fill_with(const Tensor& values, Generator& generator, Draw draw) {
  std::array<double, 512> block{};
  visit_dtype(values.dtype(), [&]<class T>() {
    std::span<T> rest = values.data<T>();
    while (!rest.empty()) {
      const std::span<double> drawn = std::span(block).first(std::min(rest.size(), block.size()));
      draw(generator, drawn);
      for (std::size_t i = 0; i < drawn.size(); ++i) rest[i] = narrow<T>(drawn[i]);
      rest = rest.subspan(drawn.size());
    }
  });
}
void fill_uniform(const Tensor& values, Generator& generator, double low, double high) {
  fill_with(values, generator, [=](Generator& g, std::span<double> out) { g.uniform(low, high, out); });
}
void fill_normal(const Tensor& values, Generator& generator, double mean, double deviation) {
  fill_with(values, generator, [=](Generator& g, std::span<double> out) { g.normal(mean, deviation, out); });
}

double fan_in(const Tensor& values) {
  return static_cast<double>(std::max<std::int64_t>(compute_fans(values.shape()).in, 1));
}
double fan_sum(const Tensor& values) {
  const Fans fans = compute_fans(values.shape());
  return static_cast<double>(std::max<std::int64_t>(fans.in + fans.out, 1));
}

Initializer by_name(std::string_view name) {
  if (name == "xavier_uniform" || name == "glorot_uniform") return init::xavier_uniform();
  if (name == "xavier_normal" || name == "glorot_normal") return init::xavier_normal();
  if (name == "he_uniform" || name == "kaiming_uniform") return init::he_uniform();
  if (name == "he_normal" || name == "kaiming_normal") return init::he_normal();
  if (name == "zeros") return init::zeros();
  if (name == "ones") return init::ones();
  if (name == "uniform") return init::uniform();
  if (name == "normal") return init::normal();
  throw ValueError(
      fmt::format("[Initializer] Unknown initializer '{}'; there are xavier_uniform, xavier_normal, "
                  "he_uniform, he_normal (also as glorot_ and kaiming_), zeros, ones, uniform, normal",
                  name));
}

}  // namespace

Initializer::Initializer(std::string_view name) : Initializer(by_name(name)) {}

void Initializer::operator()(const Tensor& values, std::uint64_t seed) const {
  if (!is_floating(values.dtype()))
    throw DTypeError(
        fmt::format("[Initializer] fills floating tensors, not {}; cast the result instead", name_of(values.dtype())));
  fill_(values, seed);
}

Initializer Initializer::drawing(Draw draw) {
  Initializer initializer([draw](const Tensor& values, std::uint64_t seed) {
    Generator generator(seed);
    draw(values, generator);
  });
  initializer.draw_ = std::move(draw);
  return initializer;
}

void Initializer::operator()(const Tensor& values, Generator& generator) const {
  if (!draw_) return (*this)(values, generator.next_uint64());
  if (!is_floating(values.dtype())) return (*this)(values, std::uint64_t{0});  // refuses
  draw_(values, generator);
}

namespace init {

Initializer xavier_uniform(double gain) {
  return Initializer::drawing([gain](const Tensor& values, Generator& generator) {
    const double limit = gain * std::sqrt(6 / fan_sum(values));
    fill_uniform(values, generator, -limit, limit);
  });
}
Initializer xavier_normal(double gain) {
  return Initializer::drawing([gain](const Tensor& values, Generator& generator) {
    fill_normal(values, generator, 0, gain * std::sqrt(2 / fan_sum(values)));
  });
}
Initializer he_uniform(double gain) {
  return Initializer::drawing([gain](const Tensor& values, Generator& generator) {
    const double limit = gain * std::sqrt(6 / fan_in(values));
    fill_uniform(values, generator, -limit, limit);
  });
}
Initializer he_normal(double gain) {
  return Initializer::drawing([gain](const Tensor& values, Generator& generator) {
    fill_normal(values, generator, 0, gain * std::sqrt(2 / fan_in(values)));
  });
}
Initializer uniform(double low, double high) {
  return Initializer::drawing(
      [low, high](const Tensor& values, Generator& generator) { fill_uniform(values, generator, low, high); });
}
Initializer normal(double deviation, double mean) {
  return Initializer::drawing([deviation, mean](const Tensor& values, Generator& generator) {
    fill_normal(values, generator, mean, deviation);
  });
}
Initializer constant(double value) {
  return [value](const Tensor& values, std::uint64_t) {
    visit_dtype(values.dtype(), [&]<class T>() { std::ranges::fill(values.data<T>(), narrow<T>(value)); });
  };
}
Initializer zeros() { return constant(0); }
Initializer ones() { return constant(1); }

}  // namespace init
}  // namespace everyo::inline v1
