#include "verify/topics.h"

#include <initializer_list>

namespace everyo::verify_room {
namespace {

using Add = void (*)(Checks&, const Figures&);

std::vector<verify::Check> checks_of(const char* topic, std::initializer_list<Add> parts) {
  const Figures figures(topic);
  Checks checks;
  for (const Add add : parts) add(checks, figures);
  return checks;
}

}  // namespace

std::vector<verify::Check> parallel_checks() {
  return checks_of(
      "parallel", {add_shard_checks, add_rank_checks, add_worker_checks, add_virtual_shard_checks, add_overlap_checks});
}

std::vector<verify::Check> precision_checks() {
  return checks_of("precision", {add_cast_checks, add_deep_sigmoid_checks, add_half_backward_checks,
                                 add_dtype_rule_checks, add_autocast_checks, add_scaler_checks, add_recipe_checks,
                                 add_bfloat16_checks, add_activation_memory_checks, add_power_of_two_checks});
}

}  // namespace everyo::verify_room
