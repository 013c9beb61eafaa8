#include "everyo/verify.h"

#include <gmock/gmock.h>

#include <cmath>
#include <set>
#include <stdexcept>

#include "everyo/error.h"
#include "verify/figures.h"

namespace everyo {
namespace {

using testing::HasSubstr;
using verify::Check;
using verify::Outcome;

Check check_of(std::vector<double> reference, double tolerance, std::vector<double> measured,
               std::vector<double> sabotaged = {}) {
  return {.requirement = "T1",
          .what = "a test",
          .figure = {std::move(reference), tolerance, "reason"},
          .measure = [=](bool sabotage) { return sabotage ? sabotaged : measured; },
          .sabotage = "a fault"};
}

TEST(Verify, PassesWithinTheToleranceOfEveryNumber) {
  EXPECT_TRUE(run(check_of({1, 2}, 0.5, {1.5, 2})).pass);
  EXPECT_FALSE(run(check_of({1, 2}, 0.5, {1, 2.75})).pass);
  EXPECT_TRUE(run(check_of({HUGE_VAL}, 0, {HUGE_VAL})).pass);
}

TEST(Verify, WhatIsMissingOrNotANumberDoesNotPass) {
  EXPECT_FALSE(run(check_of({1, 2}, 1, {1})).pass);
  EXPECT_FALSE(run(check_of({1}, 1, {})).pass);
  EXPECT_FALSE(run(check_of({1}, 1, {std::nan("")})).pass);
}

TEST(Verify, WhatIsNotJudgedIsARemark) {
  Check check = check_of({1}, 0, {1});
  check.remark = [] { return std::string("3 ms"); };
  EXPECT_EQ(run(check).remark, "3 ms");
  EXPECT_EQ(run(check_of({1}, 0, {1})).remark, "");
}

TEST(Verify, TheSabotageRunsOnlyWhenAskedAndMustBeFound) {
  const Outcome plain = run(check_of({1}, 0, {1}, {2}));
  EXPECT_FALSE(plain.sabotaged_pass.has_value());
  EXPECT_TRUE(plain.good());
  const Outcome found = run(check_of({1}, 0, {1}, {2}), {.prove = true});
  EXPECT_EQ(found.sabotaged_pass, false);
  EXPECT_TRUE(found.good());
  const Outcome blind = run(check_of({1}, 0, {1}, {1}), {.prove = true});
  EXPECT_TRUE(blind.pass);
  EXPECT_FALSE(blind.good());
}

TEST(Verify, AnExceptionIsAFailureWithItsText) {
  Check check = check_of({1}, 0, {1});
  check.measure = [](bool) -> std::vector<double> { throw std::runtime_error("no luck"); };
  const Outcome outcome = run(check);
  EXPECT_FALSE(outcome.pass);
  EXPECT_EQ(outcome.error, "no luck");
  check.measure = [](bool sabotaged) -> std::vector<double> {
    if (sabotaged) throw std::runtime_error("broke");
    return {1};
  };
  EXPECT_FALSE(run(check, {.prove = true}).good());  // an error is no proof that the check sees the fault
}

TEST(Verify, EveryCheckPassesAndFindsItsSabotage) {
  std::set<std::string> requirements;
  for (const std::string& topic : verify::topics())
    for (const Check& check : verify::checks(topic)) {
      const Outcome outcome = run(check, {.prove = true});
      EXPECT_TRUE(outcome.pass) << outcome.requirement << ' ' << outcome.what << ": "
                                << testing::PrintToString(outcome.measured) << ' ' << outcome.error;
      EXPECT_EQ(outcome.sabotaged_pass, false) << outcome.requirement << ' ' << outcome.what;
      EXPECT_EQ(outcome.error, "");
      EXPECT_NE(outcome.figure.reason, "");
      EXPECT_NE(outcome.sabotage, "");
      EXPECT_EQ(outcome.columns.size(), outcome.figure.reference.size() > 1 ? outcome.figure.reference.size() : 0)
          << outcome.what;
      requirements.insert(outcome.requirement);
    }
  EXPECT_THAT(requirements,
              testing::IsSupersetOf({"P1",  "P2",  "P3a", "P3b", "P4", "P5", "P6", "P7", "P8", "P9", "P10",
                                     "P11", "P12", "P13", "P14", "D1", "D2", "D3", "D4", "D6", "D8", "D10"}));
}

TEST(Verify, UnknownTopicsAreNamed) {
  try {
    verify::checks("speed");
    FAIL();
  } catch (const ValueError& error) {
    EXPECT_THAT(error.what(), HasSubstr("unknown topic 'speed'; known: precision, parallel"));
  }
}

TEST(Figures, AreReadStrictly) {
  using verify_room::Figures;
  const Figures good(R"({"a": {"reference": 1, "tolerance": 0.5, "reason": "r"},
                         "b": {"reference": [1, 2], "tolerance": 0, "reason": "r"}})",
                     "f.json");
  EXPECT_EQ(good.at("a").reference, std::vector<double>{1});
  EXPECT_EQ(good.at("b").reference, (std::vector<double>{1, 2}));
  EXPECT_THROW(static_cast<void>(good.at("c")), FileError);
  for (const char* text :
       {"", "[", "[1]", R"({"a": 1})", R"({"a": {"reference": "x", "tolerance": 0, "reason": "r"}})",
        R"({"a": {"reference": 1, "tolerance": -1, "reason": "r"}})",
        R"({"a": {"reference": [], "tolerance": 0, "reason": "r"}})", R"({"a": {"reference": 1, "reason": "r"}})"})
    EXPECT_THROW(Figures(text, "f.json"), FileError) << text;
}

}  // namespace
}  // namespace everyo
