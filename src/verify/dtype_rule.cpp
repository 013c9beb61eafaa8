#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "everyo/ops.h"
#include "everyo/precision.h"
#include "verify/op_calls.h"
#include "verify/topics.h"

// P4: the dtype rule, held against every op that the library has.
namespace everyo::verify_room {
namespace {

std::vector<const Op*> ops_of(CastPolicy policy) {
  std::vector<const Op*> list;
  std::ranges::copy_if(ops(), std::back_inserter(list), [policy](const Op* op) { return op->policy == policy; });
  return list;
}

/// Whether an op's call gives what the rule says; not, when there is no call of it. Sabotaged: autocast off for the
/// classes it changes, on for everything in those it does not.
bool obeys(const Op& op, DType operands, std::optional<DType> autocast, bool sabotaged) {
  const OpCall* call = call_of(op.name);
  if (!call) return false;
  const DType want = ruled_dtype(op.policy, *call, operands, autocast);
  const bool changed = op.policy == CastPolicy::low || op.policy == CastPolicy::keep32;
  const DType given = sabotaged && !changed && autocast ? *autocast : operands;
  const Autocast off(false);
  std::optional<Autocast> on;
  if (autocast && !(sabotaged && changed)) on.emplace(*autocast);
  return result_dtype(*call, given, given) == want;
}

/// Ops of a class that break the rule, a number a column.
std::vector<double> broken(CastPolicy policy, bool sabotaged) {
  std::vector<double> out;
  for (const DType half : {float16, bfloat16})
    for (const auto& [operands, autocast] :
         {std::pair{float32, std::optional(half)}, std::pair{half, std::optional(half)},
          std::pair{half, std::optional<DType>()}})
      out.push_back(static_cast<double>(
          std::ranges::count_if(ops_of(policy), [&, operands = operands, autocast = autocast](const Op* op) {
            return !obeys(*op, operands, autocast, sabotaged);
          })));
  return out;
}

/// Ops of two operands that do not promote a half and a float32 to float32.
std::vector<double> not_promoting(bool sabotaged) {
  std::vector<double> out;
  for (const DType half : {float16, bfloat16})
    for (const bool on : {true, false}) {
      const Autocast scope(half), as_said(on);
      out.push_back(static_cast<double>(std::ranges::count_if(ops_of(CastPolicy::promote), [&](const Op* op) {
        const OpCall* call = call_of(op->name);
        return !call || result_dtype(*call, half, sabotaged ? half : float32) != call->own.value_or(float32);
      })));
    }
  return out;
}

/// How far the list of ops that autocast computes in halves is from products and convolutions.
double strangers(bool sabotaged) {
  constexpr std::array<std::string_view, 5> expected{"matmul", "linear", "linear_activation", "conv2d", "conv2d_relu"};
  std::vector<std::string_view> listed = autocast_ops();
  if (sabotaged) listed.emplace_back("softmax");
  const auto missing = std::ranges::count_if(
      expected, [&](std::string_view name) { return std::ranges::find(listed, name) == listed.end(); });
  const auto more = std::ranges::count_if(
      listed, [&](std::string_view name) { return std::ranges::find(expected, name) == expected.end(); });
  return static_cast<double>(missing + more);
}

std::string names_of(CastPolicy policy) {
  std::vector<std::string_view> names;
  for (const Op* op : ops_of(policy)) names.emplace_back(op->name);
  return fmt::format("{}", fmt::join(names, ", "));
}

}  // namespace

void add_dtype_rule_checks(Checks& checks, const Figures& figures) {
  checks.push_back({.requirement = "P4",
                    .what = "ops that autocast changes and should not, or should and does not",
                    .figure = figures.at("autocast_strangers"),
                    .measure = [](bool sabotaged) { return std::vector{strangers(sabotaged)}; },
                    .sabotage = "softmax is on the list",
                    .note = fmt::format("it changes {}", fmt::join(autocast_ops(), ", "))});
  struct Class {
    CastPolicy policy;
    const char *rule, *sabotage;
  };
  for (const Class& c : {Class{CastPolicy::low, "the half of autocast", "autocast does not reach them"},
                         Class{CastPolicy::follow, "their operand's dtype", "their operands are cast, too"},
                         Class{CastPolicy::keep32, "float32 under autocast", "autocast does not reach them"},
                         Class{CastPolicy::promote, "what promotion gives", "their operands are cast, too"}})
    checks.push_back(
        {.requirement = "P4",
         .what = fmt::format("ops of class {} that do not give {}", name_of(c.policy), c.rule),
         .figure = figures.at("dtype_rule"),
         .measure = [policy = c.policy](bool sabotaged) { return broken(policy, sabotaged); },
         .sabotage = c.sabotage,
         .note = names_of(c.policy),
         .columns = {"f16 of f32", "f16 of f16", "off, of f16", "bf16 of f32", "bf16 of bf16", "off, of bf16"}});
  checks.push_back({.requirement = "P4",
                    .what = "ops of class promote that do not give float32 for a half and a float32",
                    .figure = figures.at("dtype_promotion"),
                    .measure = not_promoting,
                    .sabotage = "both operands are cast to the half",
                    .columns = {"f16", "off, f16", "bf16", "off, bf16"}});
}

}  // namespace everyo::verify_room
