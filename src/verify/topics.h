#pragma once
#include <vector>

#include "everyo/verify.h"
#include "verify/figures.h"

// The checks of each topic, one file a topic or requirement.
namespace everyo::verify_room {

std::vector<verify::Check> precision_checks();

// Parts of precision_checks().
using Checks = std::vector<verify::Check>;
void add_cast_checks(Checks& checks, const Figures& figures);               // P1
void add_deep_sigmoid_checks(Checks& checks, const Figures& figures);       // P2, P3a
void add_half_backward_checks(Checks& checks, const Figures& figures);      // P3b
void add_dtype_rule_checks(Checks& checks, const Figures& figures);         // P4
void add_autocast_checks(Checks& checks, const Figures& figures);           // P5, P6, P7, P8
void add_scaler_checks(Checks& checks, const Figures& figures);             // P9, P10
void add_recipe_checks(Checks& checks, const Figures& figures);             // P11
void add_bfloat16_checks(Checks& checks, const Figures& figures);           // P12
void add_activation_memory_checks(Checks& checks, const Figures& figures);  // P13
void add_power_of_two_checks(Checks& checks, const Figures& figures);       // P14

}  // namespace everyo::verify_room
