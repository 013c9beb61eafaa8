#include <algorithm>

#include "contract/session.h"

// Laws on numbers: values, gradients, halves.
namespace everyo_test::contract {
namespace {

// Operands that central differences are taken for: not too many elements, nor too much work.
constexpr double most_elements = 700, most_flops = 5e7;

bool takes_differences(const Case& c, const eo::Tensor& operand) {
  const auto elements = static_cast<double>(operand.size());
  return elements <= most_elements && 2 * elements * c.flops.value_or(0) <= most_flops;
}

// The reference of the operands as they are, rounded.
std::vector<double> reference_of(const Case& c, Tensors operands) { return c.reference(values_of(operands)); }

double largest(std::span<const double> values) {
  double most = 0;
  for (const double v : values) most = std::max(most, std::abs(v));
  return most;
}

// sum(out * weights), in float64.
double weighted(const eo::Tensor& out, std::span<const double> weights) {
  const auto values = out.to_vector();
  double sum = 0;
  for (std::size_t i = 0; i < values.size(); ++i) sum += values[i] * weights[i];
  return sum;
}

}  // namespace

Findings values_equal_reference(const Subject& subject) {
  Findings findings;
  for (const Case& c : every_size(subject.samples)) {
    const Report report(c, findings);
    for (const eo::DType dtype : {eo::float64, eo::float32}) {
      const Session session = run(c, {.dtype = dtype});
      const double relative = dtype == eo::float64 ? c.tolerance.float64 : c.tolerance.float32;
      const bool exact = !eo::is_floating(session.out.dtype());
      report.compare(std::string(eo::name_of(dtype)) + " result", session.out.to_vector(),
                     reference_of(c, session.operands),
                     [&](double want) { return exact ? 0 : relative * std::max(1.0, std::abs(want)); });
    }
  }
  return findings;
}

Findings gradients_equal_differences(const Subject& subject) {
  Findings findings;
  bool reached = false;
  for (const Case& c : every_case(subject.samples)) {
    const Report report(c, findings);
    const Wanted wanted = differentiable_operands(c);
    if (wanted == 0) continue;
    if (!subject.op.backward) {
      // Refused, or a result that takes no part in gradients (bool, integers).
      try {
        if (run(c, {.wanted = wanted}).out.requires_grad()) report.add("the op has no backward and yet a gradient");
      } catch (const eo::StateError& error) {
        if (std::string_view(error.what()).find("has no gradient") == std::string_view::npos)
          report.add(fmt::format("refuses a gradient with other words: {}", error.what()));
      }
      continue;
    }
    const Session session = run(c, {.wanted = wanted});
    if (!session.out.requires_grad()) {
      report.add("the result takes no part in gradients");
      continue;
    }
    const eo::Tensor seed = seed_for(session.out);
    const std::vector<double> weights = seed.to_vector();
    const std::vector<eo::Tensor> gradient = gradients(session, seed);
    for (std::size_t k = 0; k < gradient.size(); ++k) {
      if ((wanted >> k & 1u) == 0 || !takes_differences(c, session.leaves[k])) continue;
      if (!gradient[k].defined()) {
        report.add(fmt::format("operand {} got no gradient", k));
        continue;
      }
      const eo::NoGrad off;
      std::vector<double> want;
      const auto x = session.leaves[k].data<double>();
      for (double& element : x) {
        const double here = element, step = c.tolerance.step;
        element = here + step;
        const double above = weighted(c.run(session.leaves), weights);
        element = here - step;
        const double below = weighted(c.run(session.leaves), weights);
        element = here;
        want.push_back((above - below) / (2 * step));
      }
      // Differences err by step^2 times the third derivative, and by 1e-16 of the sum over the step.
      report.compare(fmt::format("gradient {}", k), gradient[k].to_vector(), want,
                     [&](double d) { return c.tolerance.gradient * std::max(1.0, std::abs(d)); });
      reached = reached || !want.empty();
    }
  }
  if (subject.op.backward && !reached) findings.push_back("no case reaches the backward");
  return findings;
}

Findings gradients_are_independent(const Subject& subject) {
  Findings findings;
  if (!subject.op.backward) return findings;
  for (const Case& c : every_case(subject.samples)) {
    const Report report(c, findings);
    const Wanted wanted = differentiable_operands(c);
    if (wanted == 0) continue;
    for (const eo::DType dtype : {eo::float64, eo::float32}) {
      const Session session = run(c, {.dtype = dtype, .wanted = wanted});
      if (!session.out.requires_grad()) continue;
      const eo::Tensor seed = seed_for(session.out), unchanged = seed.copy();
      const std::vector<eo::Tensor> together = gradients(session, seed);
      std::vector<eo::Tensor> first;
      for (const eo::Tensor& each : together) first.push_back(each.defined() ? each.copy() : each);
      if (!same_bits(seed, unchanged)) report.add("backward changed the gradient it was given");

      const auto hold = [&](const std::string& what, const Options& options) {
        const std::vector<eo::Tensor> other = gradients(run(c, options), seed);
        for (std::size_t k = 0; k < other.size(); ++k)
          if (other[k].defined() && !same_bits(other[k], first[k]))
            report.add(fmt::format("{} gradient {} {} has other bits than that of leaves together", eo::name_of(dtype),
                                   k, what));
          else if (!other[k].defined() && (options.wanted & wanted & Wanted{1} << k) != 0)
            report.add(fmt::format("{} gradient {} {} is missing", eo::name_of(dtype), k, what));
      };
      hold("of results", {.dtype = dtype, .wanted = wanted, .leaves = false});
      for (std::size_t k = 0; k < c.inputs.size(); ++k)
        if ((wanted >> k & 1u) != 0) hold("alone", {.dtype = dtype, .wanted = Wanted{1} << k});

      const std::vector<eo::Tensor> twice = gradients(session, seed);  // adds to what is there
      for (std::size_t k = 0; k < twice.size(); ++k) {
        if (!twice[k].defined()) continue;
        std::vector<double> want = first[k].to_vector();
        for (double& v : want) v *= 2;
        const double unit = unit_in_last_place(dtype, largest(want));  // sums of products may round once more
        report.compare(fmt::format("{} gradient {} added up", eo::name_of(dtype), k), twice[k].to_vector(), want,
                       [&](double) { return 8 * unit; });
      }
    }
  }
  return findings;
}

Findings narrow_dtypes_round_once(const Subject& subject) {
  Findings findings;
  for (const Case& c : every_case(subject.samples)) {
    const Report report(c, findings);
    const Wanted wanted = subject.op.backward ? differentiable_operands(c) : 0;
    for (const eo::DType dtype : {eo::float32, eo::float16, eo::bfloat16}) {
      const std::string name(eo::name_of(dtype));
      const Session session = run(c, {.dtype = dtype, .wanted = wanted});
      const eo::DType out = session.out.dtype();
      std::vector<double> want = reference_of(c, session.operands);
      for (double& v : want) v = rounded(out, v);
      const double inner = eo::is_half(out) ? c.tolerance.half_largest * unit_in_last_place(out, largest(want)) : 0;
      report.compare(name + " result", session.out.to_vector(), want, [&](double v) {
        if (!eo::is_floating(out)) return 0.0;
        const double wide = c.tolerance.float32 * std::max(1.0, std::abs(v));
        return eo::is_half(out) ? c.tolerance.half * unit_in_last_place(out, v) + inner + wide : wide;
      });
      if (wanted == 0 || !session.out.requires_grad()) continue;

      // The gradient in float64 of the same operands and the same seed.
      const eo::Tensor seed = seed_for(session.out);
      const std::vector<eo::Tensor> got = gradients(session, seed);
      std::vector<eo::Tensor> wide;
      for (const eo::Tensor& leaf : session.leaves) {
        const bool narrow = leaf.dtype() == dtype;
        wide.push_back(narrow ? eo::Tensor::empty(leaf.shape(), eo::float64) : leaf);
        if (narrow) wide.back().assign(leaf);
      }
      const Session exact = run_on(c, wide, {.wanted = wanted});
      const eo::Tensor exact_seed = eo::Tensor::empty(seed.shape(), exact.out.dtype());
      exact_seed.assign(seed);
      const std::vector<eo::Tensor> expected = gradients(exact, exact_seed);
      for (std::size_t k = 0; k < got.size(); ++k) {
        if ((wanted >> k & 1u) == 0) continue;
        if (!got[k].defined() || got[k].dtype() != dtype) {
          report.add(fmt::format("the gradient of {} operand {} is {}", name, k,
                                 got[k].defined() ? eo::name_of(got[k].dtype()) : "missing"));
          continue;
        }
        const std::vector<double> d = expected[k].to_vector();
        const double most = largest(d);
        const double allowed = dtype == eo::float32 ? c.tolerance.float32 * std::max(1.0, most)
                                                    : c.tolerance.half_gradient * unit_in_last_place(dtype, most);
        report.compare(fmt::format("{} gradient {}", name, k), got[k].to_vector(), d, [&](double) { return allowed; });
      }
    }
  }
  return findings;
}

}  // namespace everyo_test::contract
