#include <gmock/gmock.h>

#include <map>
#include <optional>

#include "everyo/ops.h"
#include "everyo/precision.h"
#include "verify/op_calls.h"

// P4: the table of docs/precision.md, op by op. A `low` op is a matrix product or a convolution, nothing else.
namespace everyo {
namespace {

using verify_room::call_of;
using verify_room::result_dtype;

// A class: what each of its ops gives, by autocast (on in the half, or off) and the operands' dtype.
struct Class {
  CastPolicy policy;
  DType on_float32, on_half, off_half;  // float16 stands for the half, bfloat16 is held to the same
  std::vector<std::string_view> ops;
};

const Class low{
    CastPolicy::low, float16, float16, float16, {"matmul", "linear", "linear_activation", "conv2d", "conv2d_relu"}};
const Class keep32{CastPolicy::keep32,
                   float32,
                   float32,
                   float16,
                   {"exp", "log", "sum", "mean", "softmax", "log_softmax", "cross_entropy", "cross_entropy_few",
                    "cross_entropy_soft", "mse_loss", "mae_loss", "bce_with_logits_loss", "bce_loss"}};
const Class promoting{CastPolicy::promote,
                      float32,
                      float16,
                      float16,
                      {"add", "subtract", "multiply", "divide", "maximum", "minimum", "where"}};
const Class follow{CastPolicy::follow,
                   float32,
                   float16,
                   float16,
                   {"scale",
                    "reciprocal",
                    "negative",
                    "sqrt",
                    "abs",
                    "clip",
                    "power",
                    "relu",
                    "sigmoid",
                    "tanh",
                    "gelu",
                    "silu",
                    "dropout",
                    "max_pool2d",
                    "avg_pool2d",
                    "adaptive_avg_pool2d",
                    "max",
                    "min",
                    "reshape",
                    "transpose",
                    "broadcast_to",
                    "slice",
                    "take",
                    "concatenate",
                    "batch_norm",
                    "batch_norm_activation",
                    "batch_norm_eval",
                    "batch_norm_eval_activation",
                    "layer_norm",
                    "layer_norm_activation",
                    "group_norm",
                    "group_norm_activation"}};

// Ops whose result has a dtype of its own.
struct Own {
  CastPolicy policy;
  DType result;
};
const std::map<std::string_view, Own> own{
    {"cast", {CastPolicy::follow, float64}},  // the call here asks for it
    {"argmax", {CastPolicy::follow, int64}},   {"one_hot", {CastPolicy::follow, float32}},
    {"equal", {CastPolicy::promote, boolean}}, {"not_equal", {CastPolicy::promote, boolean}},
    {"less", {CastPolicy::promote, boolean}},  {"less_equal", {CastPolicy::promote, boolean}}};

std::optional<DType> result_of(std::string_view op, DType operands, bool on, DType half) {
  const auto* call = call_of(op);
  if (!call) return {};
  const Autocast dtype(half), scope(on);
  return result_dtype(*call, operands, operands);
}

TEST(DtypeRule, HoldsForEveryOp) {
  std::size_t count = own.size();
  for (const Class* c : {&low, &keep32, &promoting, &follow}) {
    count += c->ops.size();
    for (const std::string_view name : c->ops) {
      const Op* op = find_op(name);
      ASSERT_TRUE(op) << name;
      EXPECT_EQ(op->policy, c->policy) << name;
      for (const DType half : {float16, bfloat16}) {
        const auto ruled = [half](DType dtype) { return dtype == float16 ? half : dtype; };
        EXPECT_EQ(result_of(name, float32, true, half), ruled(c->on_float32)) << name;
        EXPECT_EQ(result_of(name, half, true, half), ruled(c->on_half)) << name;
        EXPECT_EQ(result_of(name, half, false, half), ruled(c->off_half)) << name;
        EXPECT_EQ(result_of(name, float32, false, half), float32) << name;
        // The half that autocast is not on in: `low` casts it, the others keep to their class.
        const DType other = half == float16 ? bfloat16 : float16;
        EXPECT_EQ(result_of(name, other, true, half), c->policy == CastPolicy::low      ? half
                                                      : c->policy == CastPolicy::keep32 ? float32
                                                                                        : other)
            << name;
      }
    }
  }
  for (const auto& [name, entry] : own) {
    const Op* op = find_op(name);
    ASSERT_TRUE(op) << name;
    EXPECT_EQ(op->policy, entry.policy) << name;
    for (const bool on : {true, false})
      for (const DType operands : {float32, float16, bfloat16})
        EXPECT_EQ(result_of(name, operands, on, float16), entry.result) << name;
  }
  EXPECT_EQ(count, ops().size()) << "an op is in no class of this table; add it";
}

TEST(DtypeRule, PromotesAHalfAndAFloat32) {
  for (const std::string_view name : promoting.ops)
    for (const bool on : {true, false}) {
      const Autocast dtype(float16), scope(on);
      EXPECT_EQ(result_dtype(*call_of(name), float16, float32), float32) << name;
      EXPECT_EQ(result_dtype(*call_of(name), float32, bfloat16), float32) << name;
      EXPECT_EQ(result_dtype(*call_of(name), float16, bfloat16), float32) << name;
    }
}

TEST(DtypeRule, HasItsPublicList) {
  EXPECT_THAT(autocast_ops(), testing::UnorderedElementsAreArray(low.ops));
  EXPECT_EQ(name_of(CastPolicy::keep32), "keep32");
}

}  // namespace
}  // namespace everyo
