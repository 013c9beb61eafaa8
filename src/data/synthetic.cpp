#include "everyo/data/synthetic.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <initializer_list>
#include <numbers>
#include <numeric>
#include <string_view>
#include <utility>
#include <vector>

#include "everyo/random.h"

namespace everyo::inline v1 {
namespace {

using Doubles = std::vector<double>;

constexpr std::int64_t side = 8, pixels = side * side, digits = 10;
// One row of cells a string, eight a digit; '#' is ink.
constexpr std::array<std::string_view, digits> glyphs{
    "..........####...##..##..##..##..##..##..##..##...####..........",
    "...........##.....###......##......##......##.....####..........",
    "..........####...##..##.....##.....##.....##.....######.........",
    ".........#####.......##...####.......##......##..#####..........",
    "............##.....###....#.##...######.....##......##..........",
    ".........######..##......#####.......##..##..##...####..........",
    "..........####...##......#####...##..##..##..##...####..........",
    ".........######......##.....##.....##......##......##...........",
    "..........####...##..##...####...##..##..##..##...####..........",
    "..........####...##..##..##..##...#####......##...####.........."};

void check_positive(std::string_view what, std::initializer_list<std::pair<std::string_view, std::int64_t>> numbers) {
  for (const auto& [name, number] : numbers)
    if (number <= 0) throw ValueError(fmt::format("[{}] {} is {}; it must be positive", what, name, number));
}

std::size_t size(std::int64_t a, std::int64_t b = 1) { return static_cast<std::size_t>(Shape{a, b}.elements()); }

/// As they are read; a tensor of values that were made as doubles.
Tensor as_float32(const Doubles& values, const Shape& shape) {
  const std::vector<float> rounded(values.begin(), values.end());
  return Tensor::from<float>(rounded, shape);
}
Tensor as_int64(const std::vector<std::int64_t>& values, const Shape& shape) {
  return Tensor::from<std::int64_t>(values, shape);
}

/// The category of what a data set holds.
using AsInput = Scoped<&Context::category>;

ArrayDataset in_random_order(Generator& generator, const Tensor& features, const Tensor& targets) {
  return ArrayDataset(ArrayDataset(features, targets).rows(generator.permutation(features.shape()[0])));
}

/// Classes 0, 1, …, classes-1, 0, 1, …
std::vector<std::int64_t> in_turn(std::int64_t samples, std::int64_t classes) {
  std::vector<std::int64_t> labels(size(samples));
  for (std::size_t i = 0; i < labels.size(); ++i) labels[i] = static_cast<std::int64_t>(i) % classes;
  return labels;
}

}  // namespace

Tensor render_digit(std::int64_t digit) {
  if (digit < 0 || digit >= digits) throw ValueError(fmt::format("[render_digit] digit is {}; it must be 0..9", digit));
  const std::string_view cells = glyphs[static_cast<std::size_t>(digit)];
  Doubles values;
  for (const char cell : cells) values.push_back(cell == '#' ? 1 : 0);
  return as_float32(values, {side, side});
}

ArrayDataset make_digits(const DigitsOptions& o) {
  check_positive("make_digits", {{"samples_per_class", o.samples_per_class}});
  if (o.max_shift < 0 || o.max_shift > side)
    throw ValueError(fmt::format("[make_digits] max_shift is {}; it must be 0..{}", o.max_shift, side));
  const AsInput category(MemoryCategory::input);
  Generator generator(o.seed);
  const std::int64_t n = Shape{digits, o.samples_per_class}.elements();
  std::vector<std::int64_t> labels(size(n)), shifts(size(n, 2));
  for (std::size_t i = 0; i < labels.size(); ++i) labels[i] = static_cast<std::int64_t>(i) / o.samples_per_class;
  generator.integers(-o.max_shift, o.max_shift + 1, shifts);
  Doubles images(size(n, pixels));
  generator.normal(0, o.noise, images);
  for (std::size_t i = 0; i < labels.size(); ++i) {
    const std::int64_t down = shifts[2 * i], right = shifts[2 * i + 1];
    const std::string_view cells = glyphs[static_cast<std::size_t>(labels[i])];
    for (std::int64_t row = 0; row < side; ++row)
      for (std::int64_t column = 0; column < side; ++column) {
        const std::int64_t from_row = row - down, from_column = column - right;
        const bool inside = from_row >= 0 && from_row < side && from_column >= 0 && from_column < side;
        const bool ink = inside && cells[static_cast<std::size_t>(from_row * side + from_column)] == '#';
        double& pixel = images[i * pixels + static_cast<std::size_t>(row * side + column)];
        pixel = std::clamp((ink ? 1 : 0) + pixel, 0., 1.);
      }
  }
  const Shape shape = o.flatten ? Shape{n, pixels} : Shape{n, side, side, 1};
  return in_random_order(generator, as_float32(images, shape), as_int64(labels, {n}));
}

ArrayDataset make_regression(const RegressionOptions& o) {
  check_positive("make_regression", {{"n_samples", o.n_samples}, {"n_features", o.n_features}});
  const AsInput category(MemoryCategory::input);
  Generator generator(o.seed);
  std::vector<float> x(size(o.n_samples, o.n_features)), w(size(o.n_features)), y(size(o.n_samples));
  generator.normal(0, 1, std::span<float>(x));
  generator.uniform(-3, 3, std::span<float>(w));
  for (std::size_t i = 0; i < y.size(); ++i) {
    double sum = 0;
    for (std::size_t d = 0; d < w.size(); ++d)
      sum += static_cast<double>(x[i * w.size() + d]) * static_cast<double>(w[d]);
    const float plain = static_cast<float>(sum) + static_cast<float>(o.bias);
    y[i] = static_cast<float>(static_cast<double>(plain) + generator.normal(0, o.noise));
  }
  return {Tensor::from<float>(x, {o.n_samples, o.n_features}), Tensor::from<float>(y, {o.n_samples, 1})};
}

ArrayDataset make_blobs(const BlobsOptions& o) {
  check_positive("make_blobs", {{"n_samples", o.n_samples}, {"n_features", o.n_features}, {"centers", o.centers}});
  const AsInput category(MemoryCategory::input);
  Generator generator(o.seed);
  Doubles centers(size(o.centers, o.n_features)), points(size(o.n_samples, o.n_features));
  generator.uniform(-5, 5, std::span<double>(centers));
  const std::vector<std::int64_t> labels = in_turn(o.n_samples, o.centers);
  generator.normal(0, o.spread, std::span<double>(points));
  const auto d = static_cast<std::size_t>(o.n_features);
  for (std::size_t i = 0; i < points.size(); ++i)
    points[i] += centers[static_cast<std::size_t>(labels[i / d]) * d + i % d];
  return in_random_order(generator, as_float32(points, {o.n_samples, o.n_features}), as_int64(labels, {o.n_samples}));
}

ArrayDataset make_moons(const MoonsOptions& o) {
  check_positive("make_moons", {{"n_samples", o.n_samples}});
  const AsInput category(MemoryCategory::input);
  Generator generator(o.seed);
  const std::vector<std::int64_t> labels = in_turn(o.n_samples, 2);
  Doubles angles(labels.size()), points(2 * labels.size());
  generator.uniform(0, std::numbers::pi, std::span<double>(angles));
  generator.normal(0, o.noise, std::span<double>(points));
  for (std::size_t i = 0; i < labels.size(); ++i) {
    // The second moon hangs upside down, half a unit lower and one to the right.
    const auto label = static_cast<double>(labels[i]);
    const double sign = 1 - 2 * label;
    points[2 * i] += sign * std::cos(angles[i]) + label;
    points[2 * i + 1] += sign * std::sin(angles[i]) + 0.5 * label;
  }
  return in_random_order(generator, as_float32(points, {o.n_samples, 2}), as_int64(labels, {o.n_samples}));
}

ArrayDataset make_spirals(const SpiralsOptions& o) {
  check_positive("make_spirals", {{"n_samples", o.n_samples}, {"classes", o.classes}});
  const AsInput category(MemoryCategory::input);
  Generator generator(o.seed);
  const std::vector<std::int64_t> labels = in_turn(o.n_samples, o.classes);
  Doubles radii(labels.size()), noise(labels.size()), points(2 * labels.size());
  generator.uniform(0.05, 1, std::span<double>(radii));
  generator.normal(0, o.noise, std::span<double>(noise));
  for (std::size_t i = 0; i < labels.size(); ++i) {
    const double arm = static_cast<double>(labels[i]) / static_cast<double>(o.classes);
    const double angle = 2 * std::numbers::pi * (o.turns * radii[i] + arm) + noise[i];
    points[2 * i] = radii[i] * std::cos(angle);
    points[2 * i + 1] = radii[i] * std::sin(angle);
  }
  return in_random_order(generator, as_float32(points, {o.n_samples, 2}), as_int64(labels, {o.n_samples}));
}

ArrayDataset make_xor(const XorOptions& o) {
  check_positive("make_xor", {{"n_samples", o.n_samples}});
  const AsInput category(MemoryCategory::input);
  Generator generator(o.seed);
  std::vector<std::int64_t> corners = in_turn(o.n_samples, 4), labels;
  Doubles points(2 * corners.size());
  generator.normal(0, o.noise, std::span<double>(points));
  for (std::size_t i = 0; i < corners.size(); ++i) {
    const std::int64_t right = corners[i] % 2, up = corners[i] / 2;
    points[2 * i] += 2 * static_cast<double>(right) - 1;
    points[2 * i + 1] += 2 * static_cast<double>(up) - 1;
    labels.push_back(right ^ up);
  }
  return in_random_order(generator, as_float32(points, {o.n_samples, 2}), as_int64(labels, {o.n_samples}));
}

ArrayDataset make_recall_task(const RecallTaskOptions& o) {
  check_positive("make_recall_task",
                 {{"n_samples", o.n_samples}, {"length", o.length}, {"num_classes", o.num_classes}});
  if (o.vocab_size <= o.num_classes)
    throw ValueError(fmt::format("[make_recall_task] vocab_size is {}; it must be greater than num_classes, {}",
                                 o.vocab_size, o.num_classes));
  const AsInput category(MemoryCategory::input);
  Generator generator(o.seed);
  std::vector<std::int64_t> labels(size(o.n_samples)), tokens(size(o.n_samples, o.length));
  generator.integers(0, o.num_classes, labels);
  generator.integers(o.num_classes, o.vocab_size, tokens);
  for (std::size_t i = 0; i < labels.size(); ++i) tokens[i * static_cast<std::size_t>(o.length)] = labels[i];
  return {as_int64(tokens, {o.n_samples, o.length}), as_int64(labels, {o.n_samples})};
}

ArrayDataset make_copy_task(const CopyTaskOptions& o) {
  check_positive("make_copy_task", {{"n_samples", o.n_samples}, {"length", o.length}, {"vocab_size", o.vocab_size}});
  const AsInput category(MemoryCategory::input);
  std::vector<std::int64_t> tokens(size(o.n_samples, o.length));
  Generator(o.seed).integers(0, o.vocab_size, tokens);
  const Shape shape{o.n_samples, o.length};
  return {as_int64(tokens, shape), as_int64(tokens, shape)};
}

ArrayDataset make_parity_task(const ParityTaskOptions& o) {
  check_positive("make_parity_task", {{"n_samples", o.n_samples}, {"length", o.length}});
  const AsInput category(MemoryCategory::input);
  std::vector<std::int64_t> bits(size(o.n_samples, o.length)), labels;
  Generator(o.seed).integers(0, 2, bits);
  const auto length = static_cast<std::ptrdiff_t>(o.length);
  for (auto row = bits.begin(); row != bits.end(); row += length)
    labels.push_back(std::accumulate(row, row + length, std::int64_t{0}) % 2);
  return {as_float32(Doubles(bits.begin(), bits.end()), {o.n_samples, o.length, 1}), as_int64(labels, {o.n_samples})};
}

}  // namespace everyo::inline v1
