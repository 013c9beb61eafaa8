#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <vector>

#include "everyo/ops.h"

namespace everyo {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

// Whole numbers from -2 to 2: their products and sums are exact in every dtype, so results are compared by value.
Tensor whole(const Shape& shape, DType dtype, unsigned seed) {
  std::mt19937 engine(seed);
  std::uniform_int_distribution<int> draw(-2, 2);
  const Tensor t = Tensor::empty(shape, dtype);
  visit_dtype(dtype, [&]<class T>() {
    for (T& value : t.data<T>()) value = narrow<T>(static_cast<float>(draw(engine)));
  });
  return t;
}

// NumPy's rule, by loops: the result's index, and the operands' offsets for each k.
struct Reference {
  std::vector<double> c, da, db;
  Reference(const Tensor& a, const Tensor& b, const Tensor& g, const Shape& out) {
    const auto x = a.to_vector(), y = b.to_vector(), seed = g.to_vector();
    c.resize(seed.size());
    da.resize(x.size());
    db.resize(y.size());
    const bool row = a.rank() == 1, column = b.rank() == 1;
    const std::int64_t k_size = a.shape()[-1];
    for (std::size_t at = 0; at < c.size(); ++at) {
      std::vector<std::int64_t> index(static_cast<std::size_t>(out.rank()));
      auto rest = static_cast<std::int64_t>(at);
      for (std::int64_t i = out.rank() - 1; i >= 0; rest /= out[i], --i)
        index[static_cast<std::size_t>(i)] = rest % out[i];
      const std::int64_t n = column ? 0 : index.back();
      if (!column) index.pop_back();
      const std::int64_t m = row ? 0 : index.back();
      if (!row) index.pop_back();
      for (std::int64_t k = 0; k < k_size; ++k) {
        const std::size_t i =
            offset(a.shape(), index, row ? 1 : 2) * static_cast<std::size_t>(row ? k_size : a.shape()[-2] * k_size) +
            static_cast<std::size_t>(m * k_size + k);
        const std::int64_t width = column ? 1 : b.shape()[-1];
        const std::size_t j = offset(b.shape(), index, column ? 1 : 2) * static_cast<std::size_t>(k_size * width) +
                              static_cast<std::size_t>(k * width + n);
        c[at] += x[i] * y[j];
        da[i] += seed[at] * y[j];
        db[j] += seed[at] * x[i];
      }
    }
  }
  // Number of the matrix at the leading index, aligned at its end; sizes of 1 repeat.
  static std::size_t offset(const Shape& shape, const std::vector<std::int64_t>& index, std::int64_t matrix_rank) {
    const std::int64_t leading = shape.rank() - matrix_rank;
    std::int64_t at = 0;
    for (std::int64_t i = 0; i < leading; ++i) {
      const std::int64_t place = index[index.size() - static_cast<std::size_t>(leading - i)];
      at = at * shape[i] + (shape[i] == 1 ? 0 : place);
    }
    return static_cast<std::size_t>(at);
  }
};

struct Case {
  Shape a, b, out;
};
const std::vector<Case>& cases() {
  static const std::vector<Case> list{{{3}, {3}, {}},
                                      {{3}, {3, 4}, {4}},
                                      {{2, 3}, {3}, {2}},
                                      {{2, 3}, {3, 4}, {2, 4}},
                                      {{1, 1}, {1, 1}, {1, 1}},
                                      {{5, 2, 3}, {3, 4}, {5, 2, 4}},
                                      {{5, 2, 3}, {3}, {5, 2}},
                                      {{3}, {5, 3, 4}, {5, 4}},
                                      {{2, 3}, {5, 3, 4}, {5, 2, 4}},
                                      {{5, 2, 3}, {5, 3, 4}, {5, 2, 4}},
                                      {{5, 2, 3}, {1, 3, 4}, {5, 2, 4}},
                                      {{2, 1, 2, 3}, {5, 3, 4}, {2, 5, 2, 4}},
                                      {{4, 2, 3}, {2, 4, 3, 5}, {2, 4, 2, 5}},
                                      {{0, 3}, {3, 4}, {0, 4}},
                                      {{2, 0}, {0, 4}, {2, 4}},
                                      {{0, 2, 3}, {1, 3, 4}, {0, 2, 4}}};
  return list;
}

TEST(MatmulOp, MultipliesAllRanksAsNumPyDoesWithTheirGradients) {
  for (const DType dtype : {float32, float64, float16, bfloat16}) {
    for (const auto& [sa, sb, out] : cases()) {
      SCOPED_TRACE(testing::Message() << name_of(dtype) << " " << to_string(sa) << " " << to_string(sb));
      const Tensor a = whole(sa, dtype, 1).set_requires_grad(), b = whole(sb, dtype, 2).set_requires_grad();
      const Tensor c = matmul(a, b);
      ASSERT_EQ(c.shape(), out);
      ASSERT_EQ(c.dtype(), dtype);
      const Tensor seed = whole(out, dtype, 3);
      const Reference expected(a, b, seed, out);
      EXPECT_EQ(c.to_vector(), expected.c);
      c.backward({.retain_graph = true, .seed = &seed});
      EXPECT_EQ(a.grad().to_vector(), expected.da);
      EXPECT_EQ(b.grad().to_vector(), expected.db);
      c.backward({.seed = &seed});  // adds
      auto twice = expected.db;
      for (double& value : twice) value *= 2;
      EXPECT_EQ(b.grad().to_vector(), twice);
    }
  }
}

TEST(MatmulOp, NeedsOnlyTheGradientsThatAreAsked) {
  for (const auto& [sa, sb, out] : cases()) {
    const Tensor a = whole(sa, float32, 1), b = whole(sb, float32, 2).set_requires_grad(),
                 seed = whole(out, float32, 3);
    matmul(a, b).backward({.seed = &seed});
    EXPECT_EQ(b.grad().to_vector(), Reference(a, b, seed, out).db);
    EXPECT_FALSE(a.grad().defined());
  }
}

TEST(MatmulOp, PromotesOperandsOfTwoDTypes) {
  const Tensor a = whole({2, 3}, float16, 1).set_requires_grad(), b = whole({3, 4}, float32, 2);
  const Tensor c = matmul(a, b);
  EXPECT_EQ(c.dtype(), float32);
  const Tensor seed = whole({2, 4}, float32, 3);
  c.backward({.seed = &seed});
  EXPECT_EQ(a.grad().dtype(), float16);
  EXPECT_EQ(a.grad().to_vector(), Reference(a, b, seed, c.shape()).da);
}

TEST(MatmulOp, SaysWhatDoesNotFit) {
  const auto multiply = [](const Shape& a, const Shape& b, DType dtype = float32) {
    return [=] { matmul(Tensor::zeros(a, dtype), Tensor::zeros(b, dtype)); };
  };
  EXPECT_THAT(multiply({2, 3}, {4, 5}), ThrowsMessage<ShapeError>(AllOf(HasSubstr("inner dimensions"),
                                                                        HasSubstr("(2, 3)"), HasSubstr("(4, 5)"))));
  EXPECT_THAT(multiply({3}, {4}), ThrowsMessage<ShapeError>(AllOf(HasSubstr("inner dimensions"), HasSubstr("(3,)"))));
  EXPECT_THAT(multiply({}, {3}), ThrowsMessage<ShapeError>(HasSubstr("at least one dimension")));
  EXPECT_THAT(multiply({3}, {}), ThrowsMessage<ShapeError>(HasSubstr("at least one dimension")));
  EXPECT_THAT(multiply({2, 2, 3}, {3, 3, 4}), ThrowsMessage<ShapeError>(HasSubstr("broadcast")));
  EXPECT_THAT(multiply({2, 3}, {3, 4}, int64),
              ThrowsMessage<DTypeError>(AllOf(HasSubstr("int64"), HasSubstr("cast()"))));
}

TEST(MatmulOp, GivesTheSameBitsForAnyThreads) {
  for (const auto& [sa, sb] :
       {std::pair<Shape, Shape>{{700, 90}, {90, 33}}, {{6, 40, 50}, {6, 50, 70}}, {{3, 64, 2048}, {3, 2048, 10}}}) {
    std::vector<double> first[3];
    for (const int threads : {1, 2, 4}) {
      const ThreadLimit limit(threads);
      std::mt19937 engine(5);
      std::normal_distribution<float> normal;
      const Tensor a = Tensor::empty(sa).set_requires_grad(), b = Tensor::empty(sb).set_requires_grad();
      for (const Tensor& t : {a, b})
        for (float& value : t.data<float>()) value = normal(engine);
      const Tensor c = matmul(a, b);
      const Tensor seed = c.detach().copy();
      c.backward({.seed = &seed});
      const std::vector<double> now[3] = {c.to_vector(), a.grad().to_vector(), b.grad().to_vector()};
      for (int i = 0; i < 3; ++i) {
        if (threads == 1) first[i] = now[i];
        EXPECT_EQ(now[i], first[i]) << threads << " threads, " << i;
      }
    }
  }
}

TEST(MatmulOp, KnowsItsShapeCostAndLowering) {
  {
    const MetaScope meta;
    EXPECT_EQ(matmul(Tensor::empty({7, 2, 3}), Tensor::empty({3, 4})).shape(), (Shape{7, 2, 4}));
  }
  const Op* op = find_op("matmul");
  ASSERT_NE(op, nullptr);
  const Tensor a = Tensor::zeros({5, 2, 3}), b = Tensor::zeros({3, 4});
  const Tensor* list[] = {&a, &b};
  const Inputs in(list, 2);
  const NoAttrs none;
  const Specs out = op->infer(in, &none);
  EXPECT_EQ(op->cost(in, out, &none).flops, 2.0 * 5 * 2 * 3 * 4);
  EXPECT_EQ(op->cost(in, out, &none).bytes, 4.0 * (30 + 12 + 40));
  onnx::Graph graph;
  const onnx::Values lowered = op->onnx(graph, {{"a", a.spec()}, {"b", b.spec()}}, &none);
  ASSERT_EQ(graph.nodes.size(), 1u);
  EXPECT_EQ(graph.nodes[0].type, "MatMul");
  EXPECT_EQ(lowered[0].spec, out[0]);
}

TEST(MatmulOp, OneLeafMayBeBothOperands) {
  const Tensor w = Tensor::from<float>({1, 2, 3, 4}, {2, 2});
  w.set_requires_grad();
  for (const double times : {1, 2}) {  // the second adds to what is there
    sum(matmul(w, w)).backward();
    EXPECT_EQ(w.grad().to_vector(), (std::vector<double>{7 * times, 11 * times, 9 * times, 13 * times}));
  }
  w.zero_grad();
  sum(linear(w, w)).backward();
  EXPECT_EQ(w.grad().to_vector(), (std::vector<double>{7, 11, 9, 13}));
  const Tensor a = Tensor::ones({1, 1, 1, 1});
  a.set_requires_grad();
  conv2d(a, a).backward();
  EXPECT_EQ(a.grad().item(), 2);
}

}  // namespace
}  // namespace everyo
