#include <algorithm>
#include <set>

#include "contract/session.h"
#include "everyo/ops.h"
#include "onnx/write.h"
#include "support/temporary_folder.h"

// What ONNX Runtime computes of an op's ONNX form. All of an op's cases lie in one file, so that one session runs them.
namespace everyo_test::contract {
namespace {

namespace ox = everyo::onnx_export;

struct Setting {
  eo::DType dtype;
  int opset;
  double relative;  ///< difference allowed, times the larger of 1 and |value|
};
// float32: sums in another order. Halves: the runtime rounds at edges where a fused op does not, one to three units in
// the last place, 2^-11 and 2^-8. float64: its transcendental functions are less exact than ours.
constexpr std::array settings{Setting{eo::float32, 13, 1e-5},    Setting{eo::float32, 17, 1e-5},
                              Setting{eo::float32, 22, 1e-5},    Setting{eo::float16, 17, 2e-3},
                              Setting{eo::bfloat16, 17, 1.2e-2}, Setting{eo::float64, 17, 1e-9}};

// What the runtime's processor side has no float64 kernel for: Conv, AveragePool, Erf, LayerNormalization of any but
// float32. There it must say so.
const std::set<std::string_view>& without_float64() {
  static const std::set<std::string_view> list{"conv2d", "conv2d_relu", "avg_pool2d", "adaptive_avg_pool2d", "gelu"};
  return list;
}

struct AllCases {
  std::vector<Case> cases;
  ox::Trace trace;
  std::vector<eo::OnnxInput> inputs;
};

AllCases all_cases(const Subject& subject, eo::DType dtype) {
  AllCases all;
  for (const Case& c : every_case(subject.samples)) {
    const Session session = run(c, {.dtype = dtype});
    const eo::Tracer::Step* step = session.step_of(subject.op);
    if (!step || step->out[0].size() == 0) continue;  // the runtime's own kernels refuse many empty tensors
    for (const eo::Tensor& in : step->in) {
      all.inputs.push_back({"in" + std::to_string(all.inputs.size()), in.spec()});
      all.trace.inputs.push_back(in);
    }
    all.trace.outputs.push_back(step->out[0]);
    all.trace.steps.push_back(*step);
    all.cases.push_back(c);
  }
  return all;
}

eo::NamedTensors run_file(const AllCases& all, const Setting& setting) {
  const everyo::TemporaryFolder folder;
  eo::OnnxOptions options{.opset = setting.opset};
  ox::LoweredGraph graph = ox::lower(all.trace, all.inputs, {}, options);
  ox::Signature signature;
  for (const eo::onnx::Value& output : graph.outputs)
    signature.outputs.emplace_back(static_cast<std::size_t>(output.spec.shape.rank()), ox::Extent{-1, {}, false});
  ox::prune(graph);
  const ox::ModelFile file(folder.path() / "op.onnx", graph, signature, options);
  eo::NamedTensors inputs;
  for (std::size_t i = 0; i < all.inputs.size(); ++i) {
    const eo::Tensor& value = all.trace.inputs[i];
    inputs.emplace_back(all.inputs[i].name, value.dtype() == eo::bfloat16 ? eo::cast(value, eo::float32) : value);
  }
  return eo::OnnxModel(file.temporary()).run(inputs);
}

}  // namespace

Findings runtime_agrees(const Subject& subject) {
  Findings findings;
  if (!subject.op.onnx) return findings;
  for (const Setting& setting : settings) {
    const AllCases all = all_cases(subject, setting.dtype);
    if (all.cases.empty()) continue;
    const bool lacking = setting.dtype == eo::float64 && without_float64().contains(subject.op.name);
    const std::string at = fmt::format("{}, opset {}", eo::name_of(setting.dtype), setting.opset);
    eo::NamedTensors outputs;
    try {
      outputs = run_file(all, setting);
    } catch (const eo::Error& error) {
      if (!lacking) findings.push_back(fmt::format("{}: {}", at, error.what()));
      continue;
    }
    if (lacking) findings.push_back(fmt::format("{}: the runtime has it now; take the op off the list", at));
    for (std::size_t i = 0; i < all.cases.size(); ++i) {
      const eo::Tensor &ours = all.trace.outputs[i], &theirs = outputs[i].second;
      const Report report(all.cases[i], findings);
      if (theirs.shape() != ours.shape())
        report.add(fmt::format("{}: the runtime's shape is {}, ours {}", at, eo::to_string(theirs.shape()),
                               eo::to_string(ours.shape())));
      const std::vector<double> got = theirs.to_vector(), want = ours.to_vector();
      report.compare(at, got, want, [&](double value) { return setting.relative * std::max(1.0, std::abs(value)); });
    }
  }
  return findings;
}

}  // namespace everyo_test::contract
