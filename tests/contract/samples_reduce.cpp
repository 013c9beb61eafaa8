#include <algorithm>
#include <cmath>
#include <numeric>

#include "contract/samples.h"

// Samples of reductions, softmax and its logarithm.
namespace everyo_test::contract {
namespace {

// The elements of x that each element of the result is made of, in row-major order; axes as the ops take them.
std::vector<std::vector<double>> groups(const Values& x, const eo::Axes& axes) {
  const std::int64_t rank = x.shape.rank();
  std::vector<bool> gone(static_cast<std::size_t>(rank), axes.empty());
  for (const std::int64_t axis : axes) gone[static_cast<std::size_t>(axis < 0 ? axis + rank : axis)] = true;
  std::int64_t count = 1;
  for (std::int64_t d = 0; d < rank; ++d)
    if (!gone[static_cast<std::size_t>(d)]) count *= x.shape[d];
  std::vector<std::vector<double>> list(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < x.v.size(); ++i) {
    std::int64_t rest = static_cast<std::int64_t>(i), at = 0, stride = 1;
    for (std::int64_t d = rank - 1; d >= 0; --d) {
      if (!gone[static_cast<std::size_t>(d)]) {
        at += rest % x.shape[d] * stride;
        stride *= x.shape[d];
      }
      rest /= x.shape[d];
    }
    list[static_cast<std::size_t>(at)].push_back(x.v[i]);
  }
  return list;
}

double total(const std::vector<double>& v) { return std::accumulate(v.begin(), v.end(), 0.0); }

using Reduce = eo::Tensor (*)(const eo::Tensor&, const eo::Axes&, bool);

template <class F>
Samples reduction(const char* name, Reduce op, F f) {
  const auto of = [=](Input x, const eo::Axes& axes, bool keep_dims = false) {
    const double size = static_cast<double>(x.shape.elements());
    return Case{.inputs = {std::move(x)},
                .run = [=](Tensors in) { return op(in[0], axes, keep_dims); },
                .reference =
                    [=](std::span<const Values> in) {
                      std::vector<double> out;
                      for (const auto& group : groups(in[0], axes)) out.push_back(f(group));
                      return out;
                    },
                .flops = size};
  };
  Samples samples{.op = name, .at = [of](std::int64_t n) { return of({.shape = {n, 5}}, {1}); }};
  samples.cases = {
      of({.shape = {7, 4}}, {0}), of({.shape = {7, 4}}, {}), of({.shape = {2, 3, 4}}, {1}, true),
      of({.shape = {2, 3, 4}}, {0, -1}), of({.shape = {2, 3, 4}}, {-3}), of({.shape = {3, 1, 5, 2}}, {1, 3}, true),
      of({.shape = {1}}, {}), of({.shape = {}}, {}), of({.shape = {129}}, {0}), of({.shape = {37, 1}}, {0}),
      // Several blocks of work in one sum, small enough for float16.
      of({.shape = {40009}, .low = 0, .high = 0.5}, {}), of({.shape = {1201, 33}, .low = 0, .high = 0.5}, {0})};
  samples.refusals = {{.run =
                           [op] {
                             op(eo::Tensor::ones({2, 3}), {2}, false);
                           },
                       .text = {name, "axis 2", "out of range"}},
                      {.run =
                           [op] {
                             op(eo::Tensor::ones({2, 3}), {-3}, false);
                           },
                       .text = {name, "out of range"}},
                      {.run =
                           [op] {
                             op(eo::Tensor::ones({2, 3}), {1, -1}, false);
                           },
                       .text = {name, "twice", "(2, 3)"}},
                      {.run = [op] { op({}, {}, false); }, .text = {"undefined"}, .kind = eo::ErrorKind::state}};
  return samples;
}

template <class F>
Samples along_axis(const char* name, eo::Tensor (*op)(const eo::Tensor&, std::int64_t), F f) {
  const auto of = [=](Input x, std::int64_t axis) {
    const double size = static_cast<double>(x.shape.elements());
    return Case{.inputs = {std::move(x)},
                .run = [=](Tensors in) { return op(in[0], axis); },
                .reference =
                    [=](std::span<const Values> in) {
                      // Each line's result, put back where its elements came from.
                      Values places{in[0].shape, std::vector<double>(in[0].v.size())};
                      std::iota(places.v.begin(), places.v.end(), 0.0);
                      const auto lines = groups(in[0], {axis}), where = groups(places, {axis});
                      std::vector<double> out(in[0].v.size());
                      for (std::size_t line = 0; line < lines.size(); ++line) {
                        const std::vector<double> y = f(lines[line]);
                        for (std::size_t i = 0; i < y.size(); ++i) out[static_cast<std::size_t>(where[line][i])] = y[i];
                      }
                      return out;
                    },
                .flops = 5 * size,
                // Backward starts from the rounded result, and its differences may cancel.
                .tolerance = {.half_gradient = 8}};
  };
  Case steep = of({.shape = {2, 3}}, 1);
  steep.name = "far apart";
  steep.inputs[0].values = {800, 0, -800, 1, 801, 800.5};
  Samples samples{.op = name, .at = [of](std::int64_t n) { return of({.shape = {n, 5}}, -1); }};
  samples.cases = {of({.shape = {4, 7}}, 0), of({.shape = {2, 3, 4}}, 1), of({.shape = {67}}, 0),
                   of({.shape = {3, 1}}, 1), of({.shape = {3, 64}}, 1),   steep};
  samples.refusals = {{.run =
                           [op] {
                             op(eo::Tensor::ones({2, 3}), 2);
                           },
                       .text = {name, "axis 2", "out of range"}},
                      {.run = [op] { op({}, 0); }, .text = {"undefined"}, .kind = eo::ErrorKind::state}};
  return samples;
}

std::vector<double> log_softmax_of(std::vector<double> line) {
  const double most = *std::ranges::max_element(line);
  double sum = 0;
  for (const double v : line) sum += std::exp(v - most);
  for (double& v : line) v = v - most - std::log(sum);
  return line;
}
std::vector<double> softmax_of(const std::vector<double>& line) {
  std::vector<double> y = log_softmax_of(line);
  for (double& v : y) v = std::exp(v);
  return y;
}

Case argmax_case(const Input& x, std::int64_t axis) {
  return {.inputs = {x},
          .run = [axis](Tensors in) { return eo::argmax(in[0], axis); },
          .reference =
              [axis](std::span<const Values> in) {
                std::vector<double> out;
                for (const auto& line : groups(in[0], {axis}))
                  out.push_back(static_cast<double>(std::ranges::max_element(line) - line.begin()));
                return out;
              },
          .flops = static_cast<double>(x.shape.elements())};
}

}  // namespace

void add_reduce_samples(SampleList& list) {
  list.push_back(reduction("sum", eo::sum, total));
  list.back().cases.push_back({.name = "of bools",
                               .inputs = {bools({3, 9})},
                               .run = [](Tensors in) { return eo::sum(in[0], {1}); },
                               .reference =
                                   [](std::span<const Values> in) {
                                     std::vector<double> out;
                                     for (const auto& group : groups(in[0], {1})) out.push_back(total(group));
                                     return out;
                                   }});
  list.push_back(reduction("mean", eo::mean,
                           [](const std::vector<double>& v) { return total(v) / static_cast<double>(v.size()); }));
  list.push_back(reduction("max", eo::max, [](const std::vector<double>& v) { return *std::ranges::max_element(v); }));
  list.push_back(reduction("min", eo::min, [](const std::vector<double>& v) { return *std::ranges::min_element(v); }));
  for (const auto& [name, op] : {std::pair<const char*, Reduce>{"max", eo::max}, {"min", eo::min}})
    for (Samples& samples : list)
      if (samples.op == name)
        samples.refusals.push_back({.run =
                                        [op = op] {
                                          op(eo::Tensor::ones({3, 0}), {1}, false);
                                        },
                                    .text = {name, "(3, 0)"}});

  list.push_back({.op = "argmax", .at = [](std::int64_t n) { return argmax_case({.shape = {n, 5}}, -1); }});
  list.back().cases = {argmax_case({.shape = {7, 4}}, 0), argmax_case({.shape = {2, 3, 4}}, 1),
                       argmax_case(labels({6, 10}, 3), 1), argmax_case({.shape = {133}}, 0)};
  list.back().refusals = {{.run = [] { eo::argmax(eo::Tensor::ones({2}), 1); }, .text = {"argmax", "out of range"}},
                          {.run =
                               [] {
                                 eo::argmax(eo::Tensor::ones({2, 0}), 1);
                               },
                           .text = {"argmax", "(2, 0)", "no elements"}}};

  list.push_back(along_axis("softmax", eo::softmax, softmax_of));
  list.push_back(along_axis("log_softmax", eo::log_softmax, log_softmax_of));
}

}  // namespace everyo_test::contract
