#pragma once
#include <vector>

#include "everyo/verify.h"
#include "verify/figures.h"

// The checks of each topic, one file a topic or requirement.
namespace everyo::verify_room {

std::vector<verify::Check> precision_checks();
std::vector<verify::Check> parallel_checks();
std::vector<verify::Check> export_checks();

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

// Parts of parallel_checks().
void add_shard_checks(Checks& checks, const Figures& figures);          // D1, D2, D4
void add_rank_checks(Checks& checks, const Figures& figures);           // D3, D8
void add_worker_checks(Checks& checks, const Figures& figures);         // D6
void add_virtual_shard_checks(Checks& checks, const Figures& figures);  // D6
void add_overlap_checks(Checks& checks, const Figures& figures);        // D10

}  // namespace everyo::verify_room
