#include <fmt/format.h>

#include <algorithm>

#include "onnx/symbols.h"

namespace everyo::onnx_export {
namespace {

using Sizes = std::span<const std::vector<std::int64_t>>;

std::int64_t value_of(const Extent& extent, const std::vector<std::int64_t>& sizes) {
  std::int64_t value = extent.constant;
  for (std::size_t i = 0; i < extent.factors.size(); ++i) {
    if (!extent.product) value += extent.factors[i] * sizes[i];
    for (std::int64_t power = 0; extent.product && power < extent.factors[i]; ++power) value *= sizes[i];
  }
  return value;
}

std::optional<Extent> sum_through(std::span<const std::int64_t> values, Sizes sizes) {
  Extent extent{values[0], {}, false};
  for (std::size_t i = 0; i < sizes[0].size(); ++i) {
    const std::int64_t change = values[i + 1] - values[0], by = sizes[i + 1][i] - sizes[0][i];
    if (change % by != 0) return std::nullopt;
    extent.factors.push_back(change / by);
    extent.constant -= change / by * sizes[0][i];
  }
  return extent;
}

std::optional<Extent> product_through(std::span<const std::int64_t> values, Sizes sizes) {
  Extent extent{values[0], {}, true};
  for (std::size_t i = 0; i < sizes[0].size(); ++i) {
    std::int64_t power = 0;
    for (std::int64_t base = values[0], varied = values[i + 1]; base != varied;
         base *= sizes[i + 1][i], varied *= sizes[0][i])
      if (++power > 3 || base == 0) return std::nullopt;
    extent.factors.push_back(power);
    for (std::int64_t k = 0; k < power; ++k) {
      if (extent.constant % sizes[0][i] != 0) return std::nullopt;
      extent.constant /= sizes[0][i];
    }
  }
  return extent;
}

}  // namespace

std::optional<std::size_t> Extent::symbol() const {
  if (constant != (product ? 1 : 0) ||
      std::ranges::count(factors, 0) + 1 != static_cast<std::ptrdiff_t>(factors.size()))
    return std::nullopt;
  const auto one = std::ranges::find(factors, 1);
  if (one == factors.end()) return std::nullopt;
  return static_cast<std::size_t>(one - factors.begin());
}

bool Extent::fixed() const {
  return std::ranges::all_of(factors, [](std::int64_t factor) { return factor == 0; });
}

std::string Extent::text(const Symbols& symbols) const {
  std::string text;
  for (std::size_t i = 0; i < factors.size(); ++i) {
    const std::string& name = symbols.list[i].name;
    if (product)
      for (std::int64_t k = 0; k < factors[i]; ++k) text += (text.empty() ? "" : "*") + name;
    else if (factors[i] != 0)
      text += (text.empty() ? "" : " + ") + (factors[i] == 1 ? name : fmt::format("{}*{}", factors[i], name));
  }
  if (product) return constant == 1 ? text : fmt::format("{}*{}", constant, text);
  return constant == 0 ? text : fmt::format("{} {} {}", text, constant < 0 ? "-" : "+", std::abs(constant));
}

std::optional<Extent> extent_of(std::span<const std::int64_t> values, Sizes sizes) {
  for (const auto& through : {sum_through, product_through})
    if (std::optional<Extent> extent = through(values, sizes);
        extent && value_of(*extent, sizes.back()) == values.back())
      return extent;
  return std::nullopt;
}

}  // namespace everyo::onnx_export
