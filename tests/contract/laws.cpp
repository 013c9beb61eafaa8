#include "contract/laws.h"

#include <array>

namespace everyo_test::contract {

std::span<const Law> laws() {
  static constexpr std::array list{
      Law{"samples", samples_are_complete},
      Law{"values", values_equal_reference},
      Law{"gradients", gradients_equal_differences},
      Law{"independence", gradients_are_independent},
      Law{"rounding", narrow_dtypes_round_once},
      Law{"policy", policy_is_kept},
      Law{"cost", cost_is_counted},
      Law{"meta", meta_run_predicts},
      Law{"bits", bits_are_fixed},
      Law{"composed", fused_equals_composed},
      Law{"zeros", fused_has_composed_zeros},
      Law{"lowering", lowering_is_well_formed},
      Law{"runtime", runtime_agrees},
      Law{"attributes", attributes_are_told},
      Law{"memory", memory_is_respected},
      Law{"refusals", refusals_say_why},
  };
  return list;
}

}  // namespace everyo_test::contract
