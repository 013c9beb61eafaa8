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
extern const Op* const conv2d_op;
extern const Op* const conv2d_relu_op;
extern const Op* const max_pool2d_op;
extern const Op* const avg_pool2d_op;
extern const Op* const adaptive_avg_pool2d_op;
extern const Op* const sum_op;
extern const Op* const mean_op;
extern const Op* const max_op;
extern const Op* const min_op;
extern const Op* const argmax_op;
extern const Op* const softmax_op;
extern const Op* const log_softmax_op;
extern const Op* const batch_norm_op;
extern const Op* const batch_norm_activation_op;
extern const Op* const batch_norm_eval_op;
extern const Op* const batch_norm_eval_activation_op;
extern const Op* const layer_norm_op;
extern const Op* const layer_norm_activation_op;
extern const Op* const group_norm_op;
extern const Op* const group_norm_activation_op;
extern const Op* const cross_entropy_op;
extern const Op* const cross_entropy_few_op;
extern const Op* const cross_entropy_soft_op;
extern const Op* const mse_loss_op;
extern const Op* const mae_loss_op;
extern const Op* const bce_with_logits_loss_op;
extern const Op* const bce_loss_op;
extern const Op* const reshape_op;
extern const Op* const transpose_op;
extern const Op* const broadcast_to_op;
extern const Op* const slice_op;
extern const Op* const take_op;
extern const Op* const concatenate_op;
extern const Op* const one_hot_op;

std::span<const Op* const> ops() {
  static const std::array list{
      add_op,
      subtract_op,
      multiply_op,
      divide_op,
      maximum_op,
      minimum_op,
      scale_op,
      reciprocal_op,
      negative_op,
      equal_op,
      not_equal_op,
      less_op,
      less_equal_op,
      where_op,
      exp_op,
      log_op,
      sqrt_op,
      abs_op,
      clip_op,
      power_op,
      relu_op,
      sigmoid_op,
      tanh_op,
      gelu_op,
      silu_op,
      cast_op,
      dropout_op,
      matmul_op,
      linear_op,
      linear_activation_op,
      conv2d_op,
      conv2d_relu_op,
      max_pool2d_op,
      avg_pool2d_op,
      adaptive_avg_pool2d_op,
      sum_op,
      mean_op,
      max_op,
      min_op,
      argmax_op,
      softmax_op,
      log_softmax_op,
      batch_norm_op,
      batch_norm_activation_op,
      batch_norm_eval_op,
      batch_norm_eval_activation_op,
      layer_norm_op,
      layer_norm_activation_op,
      group_norm_op,
      group_norm_activation_op,
      cross_entropy_op,
      cross_entropy_few_op,
      cross_entropy_soft_op,
      mse_loss_op,
      mae_loss_op,
      bce_with_logits_loss_op,
      bce_loss_op,
      reshape_op,
      transpose_op,
      broadcast_to_op,
      slice_op,
      take_op,
      concatenate_op,
      one_hot_op,
  };
  return list;
}

const Op* find_op(std::string_view name) {
  for (const Op* op : ops())
    if (op->name == name) return op;
  return nullptr;
}

}  // namespace everyo::inline v1
