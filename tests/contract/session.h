#pragma once
#include <fmt/format.h>

#include <cmath>
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "contract/laws.h"

// Running one case of an op's samples: operands made from their description, one traced call, its gradients.
namespace everyo_test::contract {

/// Which operands want a gradient: bit i for operand i, of at most 64.
using Wanted = std::uint64_t;

struct Options {
  eo::DType dtype = eo::float64;  ///< of the operands that have none of their own
  Wanted wanted = 0;
  bool leaves = true;       ///< false: the operands with a gradient are results of an op that saves nothing
  std::int64_t offset = 0;  ///< elements that each operand lies behind the start of its memory
  bool meta = false;
};

/// One call of a case.
struct Session {
  std::vector<eo::Tensor> leaves;    ///< the operands as drawn
  std::vector<eo::Tensor> operands;  ///< as given to the op
  eo::Tensor out;
  eo::Tracer tracer;  ///< every op call in it
  /// The first call of `op`, or null.
  [[nodiscard]] const eo::Tracer::Step* step_of(const eo::Op& op) const;
};

/// The operands in float64, as drawn before any rounding.
std::vector<Values> drawn(const Case& c);
/// The operands as tensors of the dtypes that `options` says.
std::vector<eo::Tensor> tensors_of(const Case& c, const Options& options);
/// The operands' values as references take them.
std::vector<Values> values_of(Tensors tensors);

Session run(const Case& c, const Options& options);
/// The same over operands that are there already; their gradient marks are set by `options`.
Session run_on(const Case& c, std::vector<eo::Tensor> operands, const Options& options);

/// A gradient of a session's result, drawn in its dtype.
eo::Tensor seed_for(const eo::Tensor& out);
/// Runs backward; each leaf's gradient, undefined where none was wanted or none came.
std::vector<eo::Tensor> gradients(const Session& session, const eo::Tensor& seed);

/// True if an operand takes part in gradients.
bool differentiable(const Input& input);
Wanted differentiable_operands(const Case& c);

/// Every case: batches, then the further ones.
std::vector<Case> every_case(const Samples& samples);
/// The same with the large one.
std::vector<Case> every_size(const Samples& samples);

/// Bytes of a tensor, as they lie.
std::vector<std::byte> bytes_of(const eo::Tensor& t);
bool same_bits(const eo::Tensor& a, const eo::Tensor& b);
/// Distance between neighbours of `value` in a floating dtype.
double unit_in_last_place(eo::DType dtype, double value);
double rounded(eo::DType dtype, double value);

/// "case: what", for findings.
std::string at_case(const Case& c, const std::string& what);
/// Collects what is wrong in one case; after three lines of a kind the rest is counted only.
class Report {
 public:
  Report(const Case& c, Findings& findings) : case_(c), findings_(findings) {}
  void add(const std::string& what) const { findings_.push_back(at_case(case_, what)); }
  /// Compares elements; `allowed(want)` is the largest difference. NaN equals NaN.
  template <class Allowed>
  void compare(const std::string& what, std::span<const double> got, std::span<const double> want,
               Allowed&& allowed) const {
    if (got.size() != want.size()) {
      add(fmt::format("{} has {} elements, the reference {}", what, got.size(), want.size()));
      return;
    }
    int wrong = 0;
    for (std::size_t i = 0; i < got.size(); ++i) {
      const bool equal = got[i] == want[i] || (std::isnan(got[i]) && std::isnan(want[i])) ||
                         std::abs(got[i] - want[i]) <= allowed(want[i]);
      if (equal || ++wrong > 3) continue;
      add(fmt::format("{}[{}] is {}, the reference {}; {} allowed", what, i, got[i], want[i], allowed(want[i])));
    }
    if (wrong > 3) add(fmt::format("{}: {} of {} elements differ", what, wrong, got.size()));
  }

 private:
  const Case& case_;
  Findings& findings_;
};

}  // namespace everyo_test::contract
