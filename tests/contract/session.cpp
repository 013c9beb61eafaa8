#include "contract/session.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <numeric>
#include <random>

namespace everyo_test::contract {
namespace {

// Evenly spread over [low, high] in an order and from a start that depend on the operand's number: no two draws of one
// operand are equal, none is a multiple of a quarter of the range, and two operands do not meet.
std::vector<double> draw(const Input& input, std::size_t number) {
  const auto n = static_cast<std::size_t>(input.shape.elements());
  std::mt19937 engine(static_cast<unsigned>(101 + number));
  std::vector<double> out(n);
  if (input.dtype && !eo::is_floating(*input.dtype)) {
    const auto low = static_cast<std::int64_t>(input.low);
    const auto count = static_cast<std::uint32_t>(input.high - input.low) + 1;
    for (double& v : out) v = static_cast<double>(low + static_cast<std::int64_t>(engine() % count));
    return out;
  }
  static std::map<std::pair<std::size_t, std::size_t>, std::vector<double>> orders;  // a shuffle is dear
  std::vector<double>& order = orders[{n, number}];
  if (order.empty()) {
    order.resize(n);
    std::iota(order.begin(), order.end(), 0.0);
    std::ranges::shuffle(order, engine);
  }
  out = order;
  const double start = std::fmod(0.3183 + 0.2361 * static_cast<double>(number), 1.0);
  for (double& v : out) v = input.low + (input.high - input.low) * (v + start) / static_cast<double>(n);
  return out;
}

eo::Tensor tensor_of(const std::vector<double>& values, const eo::Spec& spec, std::int64_t offset) {
  const eo::Tensor wide = eo::Tensor::from<double>(std::span<const double>(values), spec.shape);
  eo::Tensor t;
  if (offset == 0) {
    t = eo::Tensor::empty(spec);
  } else {
    const std::size_t skipped = static_cast<std::size_t>(offset) * eo::size_of(spec.dtype);
    auto memory = std::make_shared<std::vector<std::byte>>(skipped + spec.bytes() + 1);
    std::byte* const first = memory->data() + skipped;
    t = eo::Tensor::borrow(first, spec, {}, [memory] {});
  }
  t.assign(wide);
  return t;
}

}  // namespace

std::vector<Values> drawn(const Case& c) {
  std::vector<Values> list;
  for (std::size_t i = 0; i < c.inputs.size(); ++i)
    list.push_back({c.inputs[i].shape, c.inputs[i].values.empty() ? draw(c.inputs[i], i) : c.inputs[i].values});
  return list;
}

std::vector<eo::Tensor> tensors_of(const Case& c, const Options& options) {
  std::vector<eo::Tensor> list;
  const std::vector<Values> values = drawn(c);
  for (std::size_t i = 0; i < c.inputs.size(); ++i) {
    const eo::Spec spec{c.inputs[i].dtype.value_or(options.dtype), c.inputs[i].shape};
    list.push_back(options.meta ? eo::Tensor::meta(spec) : tensor_of(values[i].v, spec, options.offset));
  }
  return list;
}

std::vector<Values> values_of(Tensors tensors) {
  std::vector<Values> list;
  for (const eo::Tensor& t : tensors) list.push_back({t.shape(), t.to_vector()});
  return list;
}

const eo::Tracer::Step* Session::step_of(const eo::Op& op) const {
  const auto at = std::ranges::find(tracer.steps, &op, &eo::Tracer::Step::op);
  return at == tracer.steps.end() ? nullptr : &*at;
}

Session run_on(const Case& c, std::vector<eo::Tensor> operands, const Options& options) {
  Session session{.leaves = std::move(operands), .operands = {}, .out = {}, .tracer = {}};
  for (std::size_t i = 0; i < session.leaves.size(); ++i) {
    const eo::Tensor& leaf = session.leaves[i];
    const bool wanted = differentiable(c.inputs[i]) && (options.wanted >> i & 1u) != 0;
    if (wanted) leaf.set_requires_grad();
    session.operands.push_back(wanted && !options.leaves ? eo::scale(leaf, 1) : leaf);
  }
  const eo::Scoped<&eo::Context::tracer> traced(&session.tracer);
  session.out = c.run(session.operands);
  return session;
}

Session run(const Case& c, const Options& options) { return run_on(c, tensors_of(c, options), options); }

eo::Tensor seed_for(const eo::Tensor& out) {
  const Case c{.inputs = {{.shape = out.shape(), .low = 0.5, .high = 1.5}}, .run = {}, .reference = {}};
  return tensors_of(c, {.dtype = out.dtype()})[0];
}

std::vector<eo::Tensor> gradients(const Session& session, const eo::Tensor& seed) {
  if (session.out.requires_grad()) session.out.backward({.retain_graph = true, .seed = &seed});
  std::vector<eo::Tensor> list;
  for (const eo::Tensor& leaf : session.leaves) list.push_back(leaf.requires_grad() ? leaf.grad() : eo::Tensor());
  return list;
}

bool differentiable(const Input& input) { return input.gradient && !input.dtype; }

Wanted differentiable_operands(const Case& c) {
  Wanted wanted = 0;
  for (std::size_t i = 0; i < c.inputs.size(); ++i) wanted |= Wanted{differentiable(c.inputs[i])} << i;
  return wanted;
}

std::vector<Case> every_case(const Samples& samples) {
  std::vector<Case> list;
  for (const std::int64_t n : {0, 1, 2, 3, 7}) {
    if (n < samples.smallest || !samples.at) continue;
    list.push_back(samples.at(n));
    list.back().name = fmt::format("batch {}", n);
  }
  list.insert(list.end(), samples.cases.begin(), samples.cases.end());
  return list;
}

std::vector<Case> every_size(const Samples& samples) {
  std::vector<Case> list = every_case(samples);
  if (!samples.at) return list;
  list.push_back(samples.at(samples.large));
  list.back().name = fmt::format("batch {}", samples.large);
  return list;
}

std::vector<std::byte> bytes_of(const eo::Tensor& t) {
  if (!t.defined() || t.size() == 0) return {};
  return {t.bytes(), t.bytes() + t.spec().bytes()};
}
bool same_bits(const eo::Tensor& a, const eo::Tensor& b) {
  if (a.defined() != b.defined()) return false;
  return !a.defined() || (a.spec() == b.spec() && bytes_of(a) == bytes_of(b));
}

double unit_in_last_place(eo::DType dtype, double value) {
  const eo::FloatInfo info = eo::finfo(dtype);
  if (!std::isfinite(value)) return 0;
  int exponent = 0;
  std::frexp(std::max(std::abs(value), info.smallest_normal), &exponent);  // value = f 2^exponent, f in [0.5, 1)
  return std::ldexp(info.eps, exponent - 1);
}

double rounded(eo::DType dtype, double value) {
  switch (dtype) {
    case eo::DType::float16: return eo::to_float(eo::narrow<eo::Float16>(value));
    case eo::DType::bfloat16: return eo::to_float(eo::narrow<eo::BFloat16>(value));
    case eo::DType::float32: return static_cast<float>(value);
    default: return value;
  }
}

std::string at_case(const Case& c, const std::string& what) {
  std::string shapes;
  for (const Input& input : c.inputs) shapes += (shapes.empty() ? "" : ", ") + eo::to_string(input.shape);
  return fmt::format("{} {}: {}", c.name, shapes, what);
}

}  // namespace everyo_test::contract
