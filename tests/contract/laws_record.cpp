#include <algorithm>
#include <set>

#include "contract/session.h"
#include "everyo/autograd.h"

// Laws on what a record says of its op: samples, policy, cost, meta tensors, lowering, refusals.
namespace everyo_test::contract {
namespace {

std::vector<const eo::Tensor*> pointers_to(std::span<const eo::Tensor> tensors) {
  std::vector<const eo::Tensor*> list;
  for (const eo::Tensor& t : tensors) list.push_back(&t);
  return list;
}

eo::Specs specs_of(std::span<const eo::Tensor> tensors) {
  std::vector<eo::Spec> specs;
  for (const eo::Tensor& t : tensors) specs.push_back(t.spec());
  return std::span<const eo::Spec>(specs);
}

eo::Cost cost_of(const eo::Tracer::Step& step) {
  const auto in = pointers_to(step.in);
  return step.op->cost(eo::Inputs(in.data(), in.size()), specs_of(step.out), step.attrs.get());
}

std::string print(const eo::Spec& spec) {
  return fmt::format("{} {}", eo::name_of(spec.dtype), eo::to_string(spec.shape));
}

// Bytes that the records of a trace say the tape keeps, each value once. Operands of the case are results of an op that
// saves nothing, so none is a slot.
double predicted_saved_bytes(const Session& session) {
  std::set<const eo::Body*> kept;
  double bytes = 0;
  const auto keep = [&](const eo::Tensor& t) {
    if (kept.insert(t.body()).second) bytes += static_cast<double>(t.spec().bytes());
  };
  for (const eo::Tracer::Step& step : session.tracer.steps) {
    eo::InputMask needs = 0;
    for (std::size_t i = 0; i < step.in.size(); ++i)
      needs |= eo::InputMask{step.in[i].requires_grad()} << std::min<std::size_t>(i, 31);
    if (needs == 0 && !step.op->opaque) continue;
    if (!step.op->backward) continue;
    const eo::Saves& saves = step.op->saves;
    for (std::size_t i = 0; i < step.in.size(); ++i)
      if (((i < 4 ? saves.inputs[i] : saves.rest_inputs) & needs) != 0) keep(step.in[i]);
    for (std::size_t k = 0; k < std::min<std::size_t>(step.out.size(), 4); ++k)
      if ((saves.outputs[k] & needs) != 0) keep(step.out[k]);
  }
  return bytes;
}

}  // namespace

Findings samples_are_complete(const Subject& subject) {
  const Samples& samples = subject.samples;
  if (!samples.at) return {"`at`, a case for a batch of any size, is missing"};
  Findings findings;
  bool counted = false, odd = false, even = false, reached = false;
  for (const Case& c : every_size(samples)) {
    const Report report(c, findings);
    if (c.inputs.empty() || !c.run || !c.reference) {
      report.add("a case has inputs, run and reference");
      continue;
    }
    reached = reached || run(c, {.dtype = eo::float32}).step_of(subject.op);
    counted = counted || c.flops;
    for (const Input& input : c.inputs)
      for (const std::int64_t size : input.shape.sizes()) {
        odd = odd || (size > 1 && size % 2 != 0);
        even = even || (size > 1 && size % 2 == 0);
      }
  }
  for (const std::int64_t n : {0, 1, 2, 3, 7}) {
    if (n < samples.smallest) continue;
    const Case c = samples.at(n);
    if (std::ranges::none_of(c.inputs, [n](const Input& i) { return std::ranges::count(i.shape.sizes(), n) > 0; }))
      findings.push_back(fmt::format("at({}) has no operand with a size of {}", n, n));
  }
  if (!reached) findings.push_back("no case calls the op");
  if (!counted) findings.push_back("no case states `flops`");
  if (!odd || !even) findings.push_back("the cases have no odd size, or no even one");
  if (samples.refusals.empty()) findings.push_back("`refusals`, calls that must throw, are missing");
  return findings;
}

Findings policy_is_kept(const Subject& subject) {
  Findings findings;
  for (const Case& c : every_case(subject.samples)) {
    const Report report(c, findings);
    for (const eo::DType dtype : {eo::float16, eo::bfloat16}) {
      const eo::DType plain = run(c, {.dtype = dtype}).out.dtype();
      const eo::Scoped<&eo::Context::autocast> autocast(true);
      const eo::Scoped<&eo::Context::autocast_dtype> to(dtype);
      const Session session = run(c, {.dtype = dtype});
      const eo::DType got = session.out.dtype();
      if (!eo::is_half(plain) || !session.step_of(subject.op)) continue;  // no floating result, or one of its own dtype
      const eo::DType want = subject.op.policy == eo::CastPolicy::keep32 ? eo::float32 : plain;
      if (got != want)
        report.add(fmt::format("under autocast {} operands give {}, the policy {}", eo::name_of(dtype),
                               eo::name_of(got), eo::name_of(want)));
    }
  }
  return findings;
}

Findings cost_is_counted(const Subject& subject) {
  Findings findings;
  for (const Case& c : every_size(subject.samples)) {
    const Report report(c, findings);
    const Session session = run(c, {.dtype = eo::float32});
    const eo::Tracer::Step* step = session.step_of(subject.op);
    if (!step) continue;
    const eo::Cost cost = cost_of(*step);
    double bytes = 0;
    for (const eo::Tensor& t : step->in) bytes += static_cast<double>(t.spec().bytes());
    for (const eo::Tensor& t : step->out) bytes += static_cast<double>(t.spec().bytes());
    bytes = c.bytes.value_or(bytes);
    if (c.flops && cost.flops != *c.flops) report.add(fmt::format("{} FLOPs, counted {}", cost.flops, *c.flops));
    if (cost.bytes != bytes) report.add(fmt::format("{} bytes, moved {}", cost.bytes, bytes));
    if (!(cost.flops >= 0) || !std::isfinite(cost.flops)) report.add(fmt::format("{} FLOPs", cost.flops));
    if (session.out.size() != 0 && cost.flops + cost.bytes == 0 && !step->op->view)
      report.add("work that costs nothing");
    const Session half = run(c, {.dtype = eo::float16});
    const eo::Tracer::Step* half_step = half.step_of(subject.op);
    if (half_step && cost_of(*half_step).flops != cost.flops) report.add("halves count other operations");
    if (half_step && cost_of(*half_step).bytes > cost.bytes) report.add("halves move more bytes");
  }
  return findings;
}

Findings meta_run_predicts(const Subject& subject) {
  Findings findings;
  for (const Case& c : every_case(subject.samples)) {
    const Report report(c, findings);
    const Wanted wanted = subject.op.backward ? differentiable_operands(c) : 0;
    const Session meta = run(c, {.dtype = eo::float32, .wanted = wanted, .leaves = false, .meta = true});
    const Session real = run(c, {.dtype = eo::float32, .wanted = wanted, .leaves = false});
    if (!meta.out.is_meta()) report.add("a call on meta tensors gives data");
    const auto &planned = meta.tracer.steps, &done = real.tracer.steps;
    if (planned.size() != done.size()) {
      report.add(fmt::format("{} op calls on meta tensors, {} on data", planned.size(), done.size()));
      continue;
    }
    for (std::size_t s = 0; s < done.size(); ++s)
      for (std::size_t k = 0; k < done[s].out.size(); ++k)
        if (planned[s].out[k].spec() != done[s].out[k].spec())
          report.add(fmt::format("output {} of {} is {} on meta tensors, {} with data", k, done[s].op->name,
                                 print(planned[s].out[k].spec()), print(done[s].out[k].spec())));
    const eo::Tracer::Step *p = meta.step_of(subject.op), *d = real.step_of(subject.op);
    if (p && d && (cost_of(*p).flops != cost_of(*d).flops || cost_of(*p).bytes != cost_of(*d).bytes))
      report.add("another cost on meta tensors");
    const double predicted = predicted_saved_bytes(meta);
    const auto saved = static_cast<double>(eo::saved_bytes(real.out));
    if (predicted != saved)
      report.add(fmt::format("the record keeps {} bytes for backward, the tape {}", predicted, saved));
  }
  return findings;
}

Findings attributes_are_told(const Subject& subject) {
  if (subject.op.attrs_size == 0) return {};
  if (!subject.op.describe) return {"has attributes, and no describe() of them"};
  Findings findings;
  for (const Case& c : every_case(subject.samples)) {
    const Report report(c, findings);
    const Session session = run(c, {.dtype = eo::float32});
    const eo::Tracer::Step* step = session.step_of(subject.op);
    if (!step) continue;
    std::set<std::string_view> names;
    for (const eo::Attribute& attribute : subject.op.describe(step->attrs.get()))
      if (attribute.name.empty() || !names.insert(attribute.name).second)
        report.add(fmt::format("attribute '{}' is told twice, or has no name", attribute.name));
    if (names.empty()) report.add("attributes are not told");
  }
  return findings;
}

Findings lowering_is_well_formed(const Subject& subject) {
  Findings findings;
  if (!subject.op.onnx) {
    if (!subject.op.no_onnx || std::string_view(subject.op.no_onnx).empty())
      findings.push_back("neither a lowering nor a reason why there is none");
    return findings;
  }
  for (const Case& c : every_case(subject.samples)) {
    const Report report(c, findings);
    const Session session = run(c, {.dtype = eo::float32});
    const eo::Tracer::Step* step = session.step_of(subject.op);
    if (!step) continue;
    eo::onnx::Graph graph;
    eo::onnx::Values in;
    for (std::size_t i = 0; i < step->in.size(); ++i) in.push_back({fmt::format("in{}", i), step->in[i].spec()});
    const eo::onnx::Values out = subject.op.onnx(graph, in, step->attrs.get());
    std::set<std::string> defined;
    for (const eo::onnx::Value& v : in) defined.insert(v.name);
    const auto define = [&](const std::string& name) {
      if (name.empty() || !defined.insert(name).second) report.add(fmt::format("edge '{}' is defined twice", name));
    };
    for (const eo::onnx::Constant& constant : graph.constants) {
      define(constant.name);
      if (!constant.value.defined()) report.add(fmt::format("constant '{}' has no value", constant.name));
    }
    if (graph.nodes.empty()) report.add("the graph is empty");
    for (const eo::onnx::Node& node : graph.nodes) {
      if (node.type.empty()) report.add("a node has no type");
      for (const std::string& name : node.inputs)
        if (!name.empty() && !defined.contains(name))
          report.add(fmt::format("{} reads '{}', which nothing before it defines", node.type, name));
      for (const std::string& name : node.outputs) define(name);
    }
    if (out.size() != step->out.size())
      report.add(fmt::format("{} outputs, the op has {}", out.size(), step->out.size()));
    for (std::size_t k = 0; k < std::min(out.size(), step->out.size()); ++k) {
      if (!defined.contains(out[k].name)) report.add(fmt::format("output '{}' is not in the graph", out[k].name));
      if (out[k].spec != step->out[k].spec())
        report.add(fmt::format("output {} is {}, the op's {}", k, print(out[k].spec), print(step->out[k].spec())));
    }
  }
  return findings;
}

Findings refusals_say_why(const Subject& subject) {
  Findings findings;
  for (std::size_t i = 0; i < subject.samples.refusals.size(); ++i) {
    const Refusal& refusal = subject.samples.refusals[i];
    try {
      refusal.run();
      findings.push_back(fmt::format("refusal {} ({}): nothing was thrown", i, fmt::join(refusal.text, ", ")));
    } catch (const eo::Error& error) {
      const std::string_view what = error.what();
      if (error.kind() != refusal.kind) findings.push_back(fmt::format("refusal {} is of another kind: {}", i, what));
      if (what.empty() || what[0] != '[') findings.push_back(fmt::format("refusal {} names no op: {}", i, what));
      for (const std::string& words : refusal.text)
        if (what.find(words) == std::string_view::npos)
          findings.push_back(fmt::format("refusal {} lacks '{}': {}", i, words, what));
    }
  }
  return findings;
}

}  // namespace everyo_test::contract
