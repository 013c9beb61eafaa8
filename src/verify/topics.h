#pragma once
#include <vector>

#include "everyo/verify.h"
#include "verify/figures.h"

// The checks of each topic, one file a topic or requirement.
namespace everyo::verify_room {

std::vector<verify::Check> precision_checks();

// Parts of precision_checks().
void add_cast_checks(std::vector<verify::Check>& checks, const Figures& figures);          // P1
void add_deep_sigmoid_checks(std::vector<verify::Check>& checks, const Figures& figures);  // P2, P3a
void add_power_of_two_checks(std::vector<verify::Check>& checks, const Figures& figures);  // P14

}  // namespace everyo::verify_room
