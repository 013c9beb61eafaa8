#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <optional>

#include "contract/session.h"

// Laws on bits and bytes: what a result may not depend on, fused against composed, and memory around the buffers.
namespace everyo_test::contract {
namespace {

constexpr std::array floating{eo::float32, eo::float64, eo::float16, eo::bfloat16};
constexpr std::size_t guard = 64;  // bytes on either side

// Memory with marked bytes on both sides.
class Guarded {
 public:
  explicit Guarded(const eo::Spec& spec) : memory_(spec.bytes() + 2 * guard, mark), bytes_(spec.bytes()) {}
  [[nodiscard]] std::byte* data() { return memory_.data() + guard; }
  [[nodiscard]] eo::Tensor tensor(const eo::Spec& spec) { return eo::Tensor::borrow(data(), spec); }
  [[nodiscard]] bool intact() const {
    const auto marked = [](std::byte b) { return b == mark; };
    return std::all_of(memory_.begin(), memory_.begin() + guard, marked) &&
           std::all_of(memory_.end() - guard, memory_.end(), marked);
  }
  [[nodiscard]] std::vector<std::byte> bytes() const {
    return {memory_.begin() + guard, memory_.begin() + guard + static_cast<std::ptrdiff_t>(bytes_)};
  }

 private:
  static constexpr std::byte mark{0xff};  // as values: NaN, -1, a bool that is neither
  std::vector<std::byte> memory_;
  std::size_t bytes_;
};

struct Results {
  eo::Tensor out;
  std::vector<eo::Tensor> gradients;
};
Results results_of(const Subject& subject, const Case& c, const Options& options) {
  const Session session = run(c, options);
  Results results{session.out, {}};
  if (subject.op.backward && session.out.requires_grad()) results.gradients = gradients(session, seed_for(session.out));
  return results;
}
bool equal(const Results& a, const Results& b) {
  return same_bits(a.out, b.out) && std::ranges::equal(a.gradients, b.gradients, same_bits);
}

// Largest difference in units in the last place of the larger list's largest element.
double units_apart(const eo::Tensor& a, const eo::Tensor& b) {
  if (!a.defined() || !b.defined() || a.spec() != b.spec()) return INFINITY;
  if (same_bits(a, b)) return 0;
  if (!eo::is_floating(a.dtype())) return INFINITY;
  const auto x = a.to_vector(), y = b.to_vector();
  double difference = 0, largest = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (std::isnan(x[i]) != std::isnan(y[i])) return INFINITY;
    if (std::isnan(x[i]) || x[i] == y[i]) continue;
    difference = std::max(difference, std::abs(x[i] - y[i]));
  }
  for (const double v : x) largest = std::max(largest, std::abs(v));
  return difference / unit_in_last_place(a.dtype(), largest);
}

}  // namespace

Findings bits_are_fixed(const Subject& subject) {
  Findings findings;
  for (const Case& c : every_size(subject.samples)) {
    const Report report(c, findings);
    const Wanted wanted = subject.op.backward ? differentiable_operands(c) : 0;
    for (const eo::DType dtype : floating) {
      const auto with_threads = [&](int threads, std::int64_t offset) {
        const eo::ThreadLimit limit(threads);
        return results_of(subject, c, {.dtype = dtype, .wanted = wanted, .offset = offset});
      };
      const Results first = with_threads(1, 0);
      const auto hold = [&](const Results& other, const std::string& what) {
        if (!equal(first, other)) report.add(fmt::format("{}: other bits {}", eo::name_of(dtype), what));
      };
      hold(with_threads(1, 0), "on repeat");
      hold(with_threads(2, 0), "with 2 threads");
      hold(with_threads(4, 0), "with 4 threads");
      hold(with_threads(2, 1), "one element further on");
      hold(with_threads(1, 3), "three elements further on");
    }
  }
  return findings;
}

namespace {
// A call of the fused record, and the same of its composition; none when the case calls more than the record.
struct Pair {
  Session fused, plain;
};
std::optional<Pair> both_of(const Subject& subject, const Case& c, eo::DType dtype) {
  const Options options{.dtype = dtype, .wanted = differentiable_operands(c)};
  Session fused = run(c, options);
  const eo::Tracer::Step* step = fused.step_of(subject.op);
  if (!step || fused.tracer.steps.size() != 1) return {};  // operands of the call are those of the case
  Case composed = c;
  composed.run = [&](Tensors in) {
    std::vector<const eo::Tensor*> list;
    for (const eo::Tensor& t : in) list.push_back(&t);
    return subject.op.composed(eo::Inputs(list.data(), list.size()), step->attrs.get());
  };
  Session plain = run(composed, options);
  return Pair{std::move(fused), std::move(plain)};
}
}  // namespace

Findings fused_equals_composed(const Subject& subject) {
  Findings findings;
  if (!subject.op.composed) {
    if (!subject.op.not_composed || std::string_view(subject.op.not_composed).empty())
      findings.push_back("neither a composition nor a reason why there is none");
    return findings;
  }
  for (const Case& c : every_case(subject.samples)) {
    const Report report(c, findings);
    for (const eo::DType dtype : floating) {
      const std::optional<Pair> pair = both_of(subject, c, dtype);
      if (!pair) continue;
      const auto hold = [&](const std::string& what, const eo::Tensor& a, const eo::Tensor& b) {
        if (!a.defined() && !b.defined()) return;
        if (const double units = units_apart(a, b); units > c.tolerance.composed)
          report.add(fmt::format("{} {} is {} units in the last place from the composition's, {} allowed",
                                 eo::name_of(dtype), what, units, c.tolerance.composed));
      };
      hold("result", pair->fused.out, pair->plain.out);
      if (!pair->fused.out.requires_grad()) continue;
      const eo::Tensor seed = seed_for(pair->fused.out);
      const std::vector<eo::Tensor> a = gradients(pair->fused, seed), b = gradients(pair->plain, seed);
      for (std::size_t k = 0; k < a.size(); ++k) hold(fmt::format("gradient {}", k), a[k], b[k]);
    }
  }
  return findings;
}

Findings fused_has_composed_zeros(const Subject& subject) {
  Findings findings;
  if (!subject.op.composed || !subject.op.backward) return findings;
  for (const Case& c : every_case(subject.samples)) {
    const Report report(c, findings);
    for (const eo::DType dtype : {eo::float16, eo::bfloat16}) {
      const std::optional<Pair> pair = both_of(subject, c, dtype);
      if (!pair || !pair->fused.out.requires_grad()) continue;
      const eo::Tensor seed = eo::scale(seed_for(pair->fused.out), 1e-7);
      const std::vector<eo::Tensor> a = gradients(pair->fused, seed), b = gradients(pair->plain, seed);
      for (std::size_t k = 0; k < a.size(); ++k) {
        if (!a[k].defined() || !b[k].defined()) continue;  // one alone is found above
        const std::vector<double> x = a[k].to_vector(), y = b[k].to_vector();
        std::size_t differing = 0;
        for (std::size_t i = 0; i < x.size(); ++i) differing += (x[i] == 0) != (y[i] == 0) ? 1 : 0;
        if (differing != 0)
          report.add(
              fmt::format("{} gradient {}: {} of {} elements are 0 here and not in the composition, or the other "
                          "way round",
                          eo::name_of(dtype), k, differing, x.size()));
      }
    }
  }
  return findings;
}

Findings memory_is_respected(const Subject& subject) {
  Findings findings;
  for (const Case& c : every_size(subject.samples)) {
    const Report report(c, findings);
    const Wanted wanted = subject.op.backward ? differentiable_operands(c) : 0;
    for (const eo::DType dtype : floating) {
      // Forward into guarded outputs.
      const Session session = run(c, {.dtype = dtype, .wanted = wanted});
      if (const eo::Tracer::Step* step = session.step_of(subject.op)) {
        std::vector<const eo::Tensor*> in;
        std::vector<std::vector<std::byte>> before;
        for (const eo::Tensor& t : step->in) {
          in.push_back(&t);
          before.push_back(bytes_of(t));
        }
        std::vector<Guarded> outputs;
        for (const eo::Tensor& t : step->out) outputs.emplace_back(t.spec());
        std::vector<eo::Tensor> out;
        for (std::size_t k = 0; k < outputs.size(); ++k) out.push_back(outputs[k].tensor(step->out[k].spec()));
        subject.op.forward(eo::Call{eo::Inputs(in.data(), in.size()), out}, step->attrs.get());
        for (std::size_t k = 0; k < outputs.size(); ++k) {
          if (!outputs[k].intact())
            report.add(fmt::format("{} forward writes beside output {}", eo::name_of(dtype), k));
          if (outputs[k].bytes() != bytes_of(step->out[k]))
            report.add(fmt::format("{} forward leaves a part of output {} as it was", eo::name_of(dtype), k));
        }
        for (std::size_t i = 0; i < in.size(); ++i)
          if (bytes_of(step->in[i]) != before[i])
            report.add(fmt::format("{} forward changes operand {}", eo::name_of(dtype), i));
      }
      if (!session.out.requires_grad()) continue;

      // Backward straight into guarded gradient slots.
      const eo::Tensor seed = seed_for(session.out);
      const std::vector<eo::Tensor> plain = gradients(run(c, {.dtype = dtype, .wanted = wanted}), seed);
      std::vector<Guarded> slots;
      for (const eo::Tensor& leaf : session.leaves) slots.emplace_back(leaf.spec());
      std::vector<std::vector<std::byte>> before;
      for (std::size_t k = 0; k < slots.size(); ++k) {
        before.push_back(bytes_of(session.leaves[k]));
        if (session.leaves[k].requires_grad())
          eo::give_memory(session.leaves[k], eo::Storage::borrow(slots[k].data(), session.leaves[k].spec().bytes(), {}),
                          0);
      }
      gradients(session, seed);
      for (std::size_t k = 0; k < slots.size(); ++k) {
        if (!slots[k].intact()) report.add(fmt::format("{} backward writes beside gradient {}", eo::name_of(dtype), k));
        if (plain[k].defined() && slots[k].bytes() != bytes_of(plain[k]))
          report.add(fmt::format("{} gradient {} has other bits in memory from outside", eo::name_of(dtype), k));
        if (bytes_of(session.leaves[k]) != before[k])
          report.add(fmt::format("{} backward changes operand {}", eo::name_of(dtype), k));
      }
    }
  }
  return findings;
}

}  // namespace everyo_test::contract
