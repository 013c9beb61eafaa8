#include <gtest/gtest.h>

#include "everyo/nn.h"
#include "everyo/precision.h"

namespace everyo {
namespace {

using Dtypes = std::vector<DType>;

TEST(PrecisionReport, SaysWhatRanInWhichDtype) {  // P5
  const Sequential net(Linear(8, 4), ReLU(), Linear(4, 1));
  const auto run = [&] {
    const Autocast low(float16);
    const Tensor x = Tensor::empty({3, 8});
    mean(net(x));
    mean(net(x));
  };
  const std::vector<PrecisionRow> expected{
      {"0", "cast", CastPolicy::follow, {float32}, {float16}, 6},  // x, weight and bias, twice
      {"0", "linear_activation", CastPolicy::low, Dtypes(3, float16), {float16}, 2},
      {"2", "cast", CastPolicy::follow, {float32}, {float16}, 4},
      {"2", "linear", CastPolicy::low, Dtypes(3, float16), {float16}, 2},
      {"", "cast", CastPolicy::follow, {float16}, {float32}, 2},
      {"", "mean", CastPolicy::keep32, {float32}, {float32}, 2}};
  Tracer outer;
  std::vector<PrecisionRow> rows;
  {
    const Scoped<&Context::tracer> traced(&outer);
    rows = precision_report(run);
  }
  EXPECT_EQ(rows, expected) << to_string(rows);
  EXPECT_EQ(outer.steps.size(), 18u);  // a trace around it sees all
  EXPECT_EQ(context().tracer, nullptr);

  const MetaScope meta;  // the same, computing nothing
  EXPECT_EQ(precision_report(run), expected);
}

TEST(PrecisionReport, IsATable) {
  const std::vector<PrecisionRow> rows = precision_report([] { exp(Tensor::ones({2}, float16)); });
  EXPECT_EQ(to_string(rows),
            "module  op   policy  operands  results  calls\n"
            "        exp  keep32  float16   float16  1\n");
}

TEST(PrecisionReport, LeavesTheTracerAsItWasAfterAnException) {
  EXPECT_THROW(precision_report([] { throw 1; }), int);
  EXPECT_EQ(context().tracer, nullptr);
}

}  // namespace
}  // namespace everyo
