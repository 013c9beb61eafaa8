#include <algorithm>
#include <cmath>
#include <numeric>

#include "contract/samples.h"

// Samples of the ops that move values: reshape, transpose, broadcast_to, slice, take, concatenate, one_hot.
namespace everyo_test::contract {
namespace {

constexpr double float32_bytes = 4, index_bytes = 8;

// out[i] = x[from(index of i in `shape`)]: `from` maps an output's index to an operand's.
template <class From>
std::vector<double> gather(const Values& x, const eo::Shape& shape, From from) {
  std::vector<double> out;
  std::vector<std::int64_t> at(static_cast<std::size_t>(shape.rank()));
  for (std::int64_t i = 0; i < shape.elements(); ++i) {
    std::int64_t rest = i;
    for (std::int64_t d = shape.rank() - 1; d >= 0; --d) {
      at[static_cast<std::size_t>(d)] = rest % shape[d];
      rest /= shape[d];
    }
    const std::vector<std::int64_t> source = from(at);
    std::int64_t flat = 0;
    for (std::size_t d = 0; d < source.size(); ++d) flat = flat * x.shape[static_cast<std::int64_t>(d)] + source[d];
    out.push_back(x.v[static_cast<std::size_t>(flat)]);
  }
  return out;
}

Case reshape_case(const eo::Shape& from, const eo::Shape& to) {
  return {.inputs = {{.shape = from}},
          .run = [to](Tensors in) { return eo::reshape(in[0], to.sizes()); },
          .reference = map([](double x) { return x; }),
          .flops = 0,
          .bytes = 0};  // a view
}

Case transpose_case(const eo::Shape& shape, const eo::Axes& axes) {
  eo::Shape to;
  for (const std::int64_t axis : axes) to.push_back(shape[axis]);
  return {.inputs = {{.shape = shape}},
          .run = [axes](Tensors in) { return eo::transpose(in[0], axes); },
          .reference =
              [=](std::span<const Values> in) {
                return gather(in[0], to, [&](const std::vector<std::int64_t>& at) {
                  std::vector<std::int64_t> source(at.size());
                  for (std::size_t d = 0; d < at.size(); ++d) source[static_cast<std::size_t>(axes[d])] = at[d];
                  return source;
                });
              },
          .flops = 0};
}

Case broadcast_case(const eo::Shape& from, const eo::Shape& to) {
  return {.inputs = {{.shape = from}},
          .run = [to](Tensors in) { return eo::broadcast_to(in[0], to); },
          .reference = [to](std::span<const Values> in) { return broadcast(in[0], to); },
          .flops = 0,
          .bytes = 2 * float32_bytes * static_cast<double>(to.elements())};  // one read and one write an element
}

// The indices that Python's range(start, stop, step) would give, as the test's author writes them down.
struct Kept {
  eo::Slice slice;
  std::vector<std::int64_t> indices;
};
Case slice_case(const eo::Shape& shape, const std::vector<Kept>& kept) {
  eo::Shape to;
  for (std::int64_t d = 0; d < shape.rank(); ++d) {
    const auto at = static_cast<std::size_t>(d);
    if (at >= kept.size())
      to.push_back(shape[d]);
    else if (!kept[at].slice.drop)
      to.push_back(static_cast<std::int64_t>(kept[at].indices.size()));
  }
  return {.inputs = {{.shape = shape}},
          .run =
              [kept](Tensors in) {
                std::vector<eo::Slice> slices;
                for (const Kept& k : kept) slices.push_back(k.slice);
                return eo::slice(in[0], slices);
              },
          .reference =
              [=](std::span<const Values> in) {
                return gather(in[0], to, [&](std::vector<std::int64_t> at) {
                  for (std::size_t d = 0; d < kept.size(); ++d)
                    if (kept[d].slice.drop) at.insert(at.begin() + static_cast<std::ptrdiff_t>(d), 0);
                  for (std::size_t d = 0; d < kept.size(); ++d)
                    at[d] = kept[d].indices[static_cast<std::size_t>(at[d])];
                  return at;
                });
              },
          .flops = 0,
          .bytes = 2 * float32_bytes * static_cast<double>(to.elements())};
}

Case take_case(const eo::Shape& shape, const eo::Shape& indices, std::int64_t axis, eo::DType dtype = eo::int64) {
  eo::Shape to;
  for (std::int64_t d = 0; d < axis; ++d) to.push_back(shape[d]);
  for (const std::int64_t size : indices.sizes()) to.push_back(size);
  for (std::int64_t d = axis + 1; d < shape.rank(); ++d) to.push_back(shape[d]);
  Input rows = labels(indices, shape[axis], dtype);
  rows.low = static_cast<double>(-shape[axis]);  // counted from the end
  return {.inputs = {{.shape = shape}, rows},
          .run = [axis](Tensors in) { return eo::take(in[0], in[1], axis); },
          .reference =
              [=](std::span<const Values> in) {
                return gather(in[0], to, [&](const std::vector<std::int64_t>& at) {
                  std::vector<std::int64_t> source;
                  std::int64_t row = 0;
                  for (std::int64_t d = 0; d < to.rank(); ++d) {
                    const std::int64_t index = at[static_cast<std::size_t>(d)];
                    const bool of_indices = d >= axis && d < axis + indices.rank();
                    if (of_indices) row = row * indices[d - axis] + index;
                    if (!of_indices) source.push_back(index);
                  }
                  const auto value = static_cast<std::int64_t>(in[1].v[static_cast<std::size_t>(row)]);
                  source.insert(source.begin() + axis, value < 0 ? value + shape[axis] : value);
                  return source;
                });
              },
          .flops = 0,
          .bytes = 2 * float32_bytes * static_cast<double>(to.elements()) +
                   (dtype == eo::int64 ? index_bytes : index_bytes / 2) * static_cast<double>(indices.elements()),
          // Repeated rows add up rounded terms, once rounded.
          .tolerance = {.half_gradient = 2}};
}

Case concatenate_case(const std::vector<eo::Shape>& shapes, std::int64_t axis) {
  Case c{.inputs = {},
         .run = [axis](Tensors in) { return eo::concatenate(in, axis); },
         .reference =
             [axis](std::span<const Values> in) {
               std::int64_t outer = 1;
               for (std::int64_t d = 0; d < axis; ++d) outer *= in[0].shape[d];
               std::vector<double> out;
               for (std::int64_t o = 0; o < outer; ++o)
                 for (const Values& x : in) {
                   const auto piece = static_cast<std::ptrdiff_t>(x.v.size()) / outer;
                   out.insert(out.end(), x.v.begin() + o * piece, x.v.begin() + (o + 1) * piece);
                 }
               return out;
             },
         .flops = 0};
  for (const eo::Shape& shape : shapes) c.inputs.push_back({.shape = shape});
  return c;
}

Case one_hot_case(const eo::Shape& shape, std::int64_t classes, eo::DType dtype) {
  return {.name = "of " + std::string(eo::name_of(dtype)),
          .inputs = {labels(shape, classes)},
          .run = [=](Tensors in) { return eo::one_hot(in[0], classes, dtype); },
          .reference =
              [classes](std::span<const Values> in) {
                std::vector<double> out;
                for (const double index : in[0].v)
                  for (std::int64_t k = 0; k < classes; ++k) out.push_back(index == static_cast<double>(k) ? 1 : 0);
                return out;
              },
          .flops = 0};
}

const Refusal undefined_operand(void (*run)()) {
  return {.run = run, .text = {"undefined"}, .kind = eo::ErrorKind::state};
}

}  // namespace

void add_shape_samples(SampleList& list) {
  using eo::Tensor;
  list.push_back({.op = "reshape", .at = [](std::int64_t n) { return reshape_case({n, 6}, {n, 2, 3}); }});
  list.back().cases = {reshape_case({2, 3, 4}, {24}), reshape_case({}, {1, 1}), reshape_case({0, 3}, {7, 0}),
                       reshape_case({1}, {})};
  list.back().refusals = {{.run =
                               [] {
                                 eo::reshape(Tensor::ones({2, 3}), {4});
                               },
                           .text = {"Cannot reshape", "(2, 3)", "(4,)"}},
                          {.run =
                               [] {
                                 eo::reshape(Tensor::ones({2, 3}), {-1, 4});
                               },
                           .text = {"Cannot reshape", "(2, 3)", "4"}},
                          {.run =
                               [] {
                                 eo::reshape(Tensor::ones({2, 3}), {-1, -1});
                               },
                           .text = {"Cannot reshape", "-1"}},
                          undefined_operand([] { eo::reshape({}, {1}); })};

  list.push_back({.op = "transpose", .at = [](std::int64_t n) { return transpose_case({n, 5}, {1, 0}); }});
  list.back().cases = {transpose_case({2, 3, 4}, {2, 0, 1}), transpose_case({2, 3, 4}, {0, 2, 1}),
                       transpose_case({3, 2, 1, 5}, {3, 1, 0, 2}), transpose_case({7}, {0}),
                       transpose_case({33, 65}, {1, 0})};
  list.back().refusals = {{.run =
                               [] {
                                 eo::transpose(Tensor::ones({2, 3}), {0, 0});
                               },
                           .text = {"transpose", "permutation", "(2, 3)"}},
                          {.run =
                               [] {
                                 eo::transpose(Tensor::ones({2, 3}), {0});
                               },
                           .text = {"transpose", "permutation"}},
                          undefined_operand([] { eo::transpose({}); })};

  list.push_back({.op = "broadcast_to", .at = [](std::int64_t n) { return broadcast_case({n, 1}, {n, 5}); }});
  list.back().cases = {broadcast_case({}, {2, 3}), broadcast_case({4}, {3, 4}), broadcast_case({1, 3}, {2, 4, 3}),
                       broadcast_case({2, 1, 3}, {2, 5, 3}), broadcast_case({1}, {67})};
  list.back().refusals = {{.run =
                               [] {
                                 eo::broadcast_to(Tensor::ones({2, 3}), {3, 2});
                               },
                           .text = {"broadcast_to", "broadcast", "(2, 3)", "(3, 2)"}},
                          undefined_operand([] { eo::broadcast_to({}, {1}); })};

  const Kept odd{{1, 4, 1}, {1, 2, 3}};
  list.push_back({.op = "slice", .at = [odd](std::int64_t n) {
                    std::vector<std::int64_t> all(static_cast<std::size_t>(n));
                    std::iota(all.begin(), all.end(), std::int64_t{0});
                    return slice_case({n, 5}, {{{}, all}, odd});
                  }});
  list.back().cases = {slice_case({7, 4}, {{{2, 5}, {2, 3, 4}}}),  // whole rows: a view
                       slice_case({7, 4}, {{{0, 7, 3}, {0, 3, 6}}}),
                       slice_case({7, 4}, {{{-1, {}, -2}, {6, 4, 2, 0}}}),
                       slice_case({7, 4}, {{{-3, -1}, {4, 5}}, {{3, 0, -1}, {3, 2, 1}}}),
                       slice_case({7, 4}, {{{5, 2}, {}}}),
                       slice_case({7, 4}, {{eo::Slice::at(2), {2}}}),  // a row: a view
                       slice_case({7, 4}, {{{5, {}, -2}, {5, 3, 1}}, {eo::Slice::at(-1), {3}}}),
                       slice_case({2, 3}, {{eo::Slice::at(-2), {0}}, {eo::Slice::at(1), {1}}}),
                       slice_case({3, 2, 4}, {{{1, 2}, {1}}, {{0, 99}, {0, 1}}})};
  list.back().refusals = {{.run =
                               [] {
                                 eo::slice(Tensor::ones({3}), {{0, 2, 0}});
                               },
                           .text = {"slice", "step"},
                           .kind = eo::ErrorKind::value},
                          {.run =
                               [] {
                                 eo::slice(Tensor::ones({3}), {{}, {}});
                               },
                           .text = {"slice", "more entries than", "(3,)"}},
                          {.run = [] { eo::slice(Tensor::ones({3}), {eo::Slice::at(3)}); },
                           .text = {"slice", "index 3 is out of range", "(3,)"}},
                          undefined_operand([] { eo::slice({}, {{}}); })};

  list.push_back({.op = "take", .at = [](std::int64_t n) { return take_case({n, 5}, {3}, 1); }});
  list.back().cases = {take_case({6, 3}, {8}, 0), take_case({6, 3}, {2, 4}, 0, eo::int32),
                       take_case({2, 5, 3}, {2, 2}, 1), take_case({4}, {}, 0), take_case({4, 2}, {0}, 0)};
  list.back().refusals = {{.run =
                               [] {
                                 eo::take(Tensor::ones({3, 2}), Tensor::from<std::int64_t>({0, 3}));
                               },
                           .text = {"take", "index 3", "position 1", "out of range"}},
                          {.run =
                               [] {
                                 eo::take(Tensor::ones({3, 2}), Tensor::ones({2}));
                               },
                           .text = {"take", "int64 or int32", "float32"},
                           .kind = eo::ErrorKind::dtype},
                          {.run =
                               [] {
                                 eo::take(Tensor::ones({3, 2}), Tensor::from<std::int64_t>({0}), 2);
                               },
                           .text = {"take", "axis 2", "out of range"}},
                          undefined_operand([] { eo::take({}, Tensor::from<std::int64_t>({0})); })};

  list.push_back({.op = "concatenate", .at = [](std::int64_t n) { return concatenate_case({{n, 3}, {n, 2}}, 1); }});
  list.back().cases = {concatenate_case({{2, 3}, {1, 3}, {0, 3}}, 0), concatenate_case({{2, 3, 4}}, 1),
                       concatenate_case({{2, 1, 4}, {2, 3, 4}}, 1),
                       concatenate_case(std::vector<eo::Shape>(40, {2}), 0)};  // more than a mask of inputs has bits
  list.back().refusals = {
      {.run = [] { eo::concatenate({}); }, .text = {"concatenate", "at least one tensor"}},
      {.run =
           [] {
             eo::concatenate(std::vector{Tensor::ones({2, 3}), Tensor::ones({2, 4})});
           },
       .text = {"Cannot concatenate", "(2, 3)", "(2, 4)"}},
      {.run =
           [] {
             eo::concatenate(std::vector{Tensor::ones({2, 3}), Tensor::ones({2})});
           },
       .text = {"Cannot concatenate"}},
      {.run = [] { eo::concatenate(std::vector{Tensor::ones({2})}, 1); }, .text = {"concatenate", "out of range"}},
      undefined_operand([] { eo::concatenate(std::vector{Tensor()}); })};

  list.push_back({.op = "one_hot", .at = [](std::int64_t n) { return one_hot_case({n}, 5, eo::float32); }});
  list.back().cases = {one_hot_case({2, 3}, 4, eo::float16), one_hot_case({6}, 3, eo::int64),
                       one_hot_case({3}, 1, eo::boolean)};
  list.back().refusals = {
      {.run =
           [] {
             eo::one_hot(Tensor::from<std::int64_t>({0, 4}), 4);
           },
       .text = {"one_hot", "index 4", "position 1", "out of range"}},
      {.run = [] { eo::one_hot(Tensor::from<std::int64_t>({0}), 0); }, .text = {"one_hot", "at least one"}},
      {.run = [] { eo::one_hot(Tensor::ones({2}), 4); }, .text = {"one_hot", "float32"}, .kind = eo::ErrorKind::dtype}};
}

}  // namespace everyo_test::contract
