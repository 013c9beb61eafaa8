#include <array>
#include <string_view>

#include "everyo/ops.h"

namespace everyo::inline v1 {

// One row an op: a declaration here and its name in the list. Its file declares it `extern` too and defines it as
// `constinit const Op* const matmul_op = &op_of<matmul_record>;`.
extern const Op* const add_op;
extern const Op* const subtract_op;
extern const Op* const multiply_op;
extern const Op* const divide_op;
extern const Op* const maximum_op;
extern const Op* const minimum_op;
extern const Op* const scale_op;
extern const Op* const reciprocal_op;
extern const Op* const negative_op;
extern const Op* const equal_op;
extern const Op* const not_equal_op;
extern const Op* const less_op;
extern const Op* const less_equal_op;
extern const Op* const where_op;
extern const Op* const exp_op;
extern const Op* const log_op;
extern const Op* const sqrt_op;
extern const Op* const abs_op;
extern const Op* const clip_op;
extern const Op* const power_op;
extern const Op* const relu_op;
extern const Op* const sigmoid_op;
extern const Op* const tanh_op;
extern const Op* const gelu_op;
extern const Op* const silu_op;
extern const Op* const cast_op;
extern const Op* const dropout_op;
extern const Op* const matmul_op;
extern const Op* const linear_op;
extern const Op* const linear_activation_op;

std::span<const Op* const> ops() {
  static const std::array list{
      add_op,        subtract_op,   multiply_op, divide_op,  maximum_op,   minimum_op,
      scale_op,      reciprocal_op, negative_op, equal_op,   not_equal_op, less_op,
      less_equal_op, where_op,      exp_op,      log_op,     sqrt_op,      abs_op,
      clip_op,       power_op,      relu_op,     sigmoid_op, tanh_op,      gelu_op,
      silu_op,       cast_op,       dropout_op,  matmul_op,  linear_op,    linear_activation_op,
  };
  return list;
}

const Op* find_op(std::string_view name) {
  for (const Op* op : ops())
    if (op->name == name) return op;
  return nullptr;
}

}  // namespace everyo::inline v1
