#include "verify/topics.h"

namespace everyo::verify_room {

std::vector<verify::Check> precision_checks() {
  const Figures figures("precision");
  Checks checks;
  add_cast_checks(checks, figures);
  add_deep_sigmoid_checks(checks, figures);
  add_half_backward_checks(checks, figures);
  add_dtype_rule_checks(checks, figures);
  add_autocast_checks(checks, figures);
  add_scaler_checks(checks, figures);
  add_recipe_checks(checks, figures);
  add_bfloat16_checks(checks, figures);
  add_activation_memory_checks(checks, figures);
  add_power_of_two_checks(checks, figures);
  return checks;
}

}  // namespace everyo::verify_room
