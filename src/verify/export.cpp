#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <limits>

#include "everyo/data.h"
#include "everyo/nn.h"
#include "everyo/onnx.h"
#include "everyo/ops.h"
#include "everyo/optim.h"
#include "onnx/export.h"
#include "verify/topics.h"

// X1 to X6, X8: what ONNX Runtime computes of exported models beside what they compute here.
namespace everyo::verify_room {
namespace {

namespace ox = onnx_export;

constexpr std::array<std::int64_t, 4> batches{1, 2, 3, 7};

/// What a sabotage does to a graph before it is written.
using Fault = std::function<void(onnx::Graph&)>;

/// A folder for one file, gone at the end.
class Scratch {
 public:
  Scratch() : path_((std::filesystem::temp_directory_path() / "everyo-verify-XXXXXX").string()) {
    if (mkdtemp(path_.data()) == nullptr)
      throw FileError("[verify] no folder can be made for temporary files", ErrorKind::serialization);
  }
  ~Scratch() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  [[nodiscard]] std::filesystem::path file() const { return std::filesystem::path(path_) / "model.onnx"; }

 private:
  std::string path_;
};

onnx::Node& node_of(onnx::Graph& graph, std::string_view type) {
  return *std::ranges::find(graph.nodes, type, &onnx::Node::type);
}
onnx::AttributeValue& attribute_of(onnx::Graph& graph, std::string_view type, std::string_view name) {
  return std::ranges::find(node_of(graph, type).attributes, name, &onnx::Attribute::name)->value;
}
Tensor& constant_of(onnx::Graph& graph, std::string_view name) {
  return std::ranges::find(graph.constants, name, &onnx::Constant::name)->value;
}

/// The file of a model, with a fault in it if there is one, loaded.
class Exported {
 public:
  Exported(ModuleBase& model, const Shape& input, DType dtype = float32, const Fault& fault = {})
      : model_(model), input_{{"input", {dtype, input}}} {
    model.eval();
    exported_ = ox::export_graph(function(), input_, options_, model.state_dict());
    if (fault) fault(exported_.whole.graph);
    ox::write_model(exported_, function(), scratch_.file(), input_, options_);
    file_.emplace(scratch_.file());
  }

  [[nodiscard]] Tensor run(const Tensor& x) const { return file_->run({{"input", x}})[0].second; }

  /// Largest difference from the model, relative to the larger of 1 and its value, on a random batch; infinite when the
  /// file does not take the batch.
  [[nodiscard]] double difference(std::int64_t batch) const {
    const std::vector<std::int64_t> sizes{batch};
    const Tensor x =
        ox::draw(input_, exported_.signature.symbols.shapes(input_, sizes), static_cast<std::uint64_t>(batch))[0];
    const NoGrad no_grad;
    const Tensor here = model_.forward_any(x);
    try {
      return ox::difference(here, run(x)).relative;
    } catch (const Error&) {
      return std::numeric_limits<double>::infinity();
    }
  }
  [[nodiscard]] std::vector<double> differences() const {
    std::vector<double> all;
    for (const std::int64_t batch : batches) all.push_back(difference(batch));
    return all;
  }

 private:
  [[nodiscard]] OnnxFunction function() const {
    return [this](std::span<const Tensor> inputs) { return std::vector<Tensor>{model_.forward_any(inputs[0])}; };
  }

  ModuleBase& model_;
  std::vector<OnnxInput> input_;
  OnnxOptions options_;
  Scratch scratch_;
  ox::ExportedGraph exported_;
  std::optional<OnnxModel> file_;
};

// ---- faults ---------------------------------------------------------------------------------------------------------

/// The surplus of "same" padding at the top and left, where it belongs at the bottom and right.
void pad_in_front(onnx::Graph& graph) {
  auto& pads = std::get<std::vector<std::int64_t>>(attribute_of(graph, "Conv", "pads"));
  std::rotate(pads.begin(), pads.begin() + 2, pads.end());
}
/// Kernels with height and width exchanged.
void leave_kernels(onnx::Graph& graph) {
  for (onnx::Node& node : graph.nodes)
    for (onnx::Attribute& attribute : node.attributes)
      if (attribute.value == onnx::AttributeValue(std::vector<std::int64_t>{3, 2, 0, 1}))
        attribute.value = std::vector<std::int64_t>{3, 2, 1, 0};
}
/// The batch's size, which a run left in the shape of a Reshape.
void fold_batch(onnx::Graph& graph) {
  const Tensor shape = constant_of(graph, node_of(graph, "Reshape").inputs[1]);
  for (std::int64_t& size : shape.write<std::int64_t>())
    if (size == -1) size = 2;
}

// ---- models ---------------------------------------------------------------------------------------------------------

std::vector<double> of_padding(bool sabotaged) {
  Conv2D model(3, 4, {4, 4}, {.padding = "same"});
  return Exported(model, {1, 7, 6, 3}, float32, sabotaged ? pad_in_front : Fault()).differences();
}
std::vector<double> of_kernels(bool sabotaged) {
  Conv2D model(3, 4, {3, 3});
  return Exported(model, {1, 7, 7, 3}, float32, sabotaged ? leave_kernels : Fault()).differences();
}
std::vector<double> of_batches(bool sabotaged) {
  Sequential model(Conv2D(1, 4, {3, 3}), ReLU(), Flatten(), Linear(4 * 6 * 6, 10));
  return Exported(model, {1, 8, 8, 1}, float32, sabotaged ? fold_batch : Fault()).differences();
}

/// A batch norm with running statistics of 20 batches; the sabotage normalises by those of one batch, as in training.
std::vector<double> of_batch_norm(bool sabotaged) {
  Sequential model(Conv2D(3, 8, {3, 3}), BatchNorm2D(8), ReLU());
  Generator generator(0);
  Tensor x = Tensor::empty({16, 9, 9, 3});
  for (int batch = 0; batch < 20; ++batch) {
    generator.normal(0.5, 2, x.data<float>());
    const NoGrad no_grad;
    (void)model(x);
  }
  const auto with_batch = [&](onnx::Graph& graph) {
    const NoGrad no_grad;
    const Tensor z = model[0].forward_any(x);
    const Tensor center = mean(z, {0, 1, 2});
    const Tensor away = z - center;
    constant_of(graph, "1.running_mean") = center;
    constant_of(graph, "1.running_var") = mean(away * away, {0, 1, 2}) * 0.5;
  };
  return Exported(model, {1, 9, 9, 3}, float32, sabotaged ? Fault(with_batch) : Fault()).differences();
}

/// The mean over 512 x 512 cells in float16. The sabotage sums before it divides, which float16 does not hold.
std::vector<double> of_half_mean(bool sabotaged) {
  struct Mean : Module<Mean> {
    [[nodiscard]] Tensor forward(const Tensor& x) const { return mean(x * 1.0 + 4.0, {1, 2}); }
  } model;
  const auto sum_first = [](onnx::Graph& graph) {
    onnx::Node& node = node_of(graph, "ReduceMean");
    node.type = "ReduceSum";
    node.attributes.erase(node.attributes.begin());
    const onnx::Value axes = graph.integers({1, 2});
    node.inputs.push_back(axes.name);
  };
  return {Exported(model, {1, 512, 512, 1}, float16, sabotaged ? Fault(sum_first) : Fault()).difference(1)};
}

/// A net with dropout in training mode: 1 for the refusal, 1 for a file that is not there. The sabotage exports it in
/// eval mode.
std::vector<double> of_refusal(bool sabotaged) {
  Sequential model(Linear(4, 4), Dropout(0.5));
  model.eval();
  if (!sabotaged) model[1].train();
  const Scratch scratch;
  double named = 0;
  try {
    export_onnx(model, scratch.file(), {1, 4});
  } catch (const StateError& error) {
    named = std::string_view(error.what()).find("module '1' (Dropout) is in training mode") != std::string_view::npos
                ? 1
                : 0;
  }
  return {named, std::filesystem::exists(scratch.file()) ? 0.0 : 1.0};
}

/// The digits CNN after an epoch: how many of the 1,797 rows are classed otherwise in the runtime, and the largest
/// difference.
std::vector<double> of_digits(bool sabotaged) {
  Sequential model(Unflatten({8, 8, 1}), Conv2D(1, 8, 3, {.padding = "same", .seed = 0}), ReLU(), MaxPool2D(),
                   Conv2D(8, 16, 3, {.padding = "same", .seed = 1}), ReLU(), MaxPool2D(), Flatten(),
                   Linear(64, 10, {.seed = 2}));
  const ArrayDataset digits = load_digits();
  Adam optimizer(model.parameters(), {.lr = 3e-3});
  Loader loader(digits, {.batch = 64, .shuffle = true, .seed = 0});
  for (const auto& [x, y] : loader) {
    optimizer.zero_grad();
    cross_entropy(model(x), y).backward();
    optimizer.step();
  }
  const Exported exported(model, {1, 64}, float32, sabotaged ? leave_kernels : Fault());
  const NoGrad no_grad;
  const Tensor here = model(digits.features), there = exported.run(digits.features);
  const Tensor a = argmax(here, 1), b = argmax(there, 1);
  double others = 0;
  for (std::size_t i = 0; i < static_cast<std::size_t>(digits.size()); ++i)
    others += a.data<std::int64_t>()[i] != b.data<std::int64_t>()[i] ? 1 : 0;
  return {others, ox::difference(here, there).relative};
}

}  // namespace

std::vector<verify::Check> export_checks() {
  const Figures figures("export");
  const std::vector<std::string> by_batch{"batch 1", "batch 2", "batch 3", "batch 7"};
  return {
      {.requirement = "X1",
       .what = "difference in ONNX Runtime on batches of other sizes than the export's",
       .figure = figures.at("differences"),
       .measure = of_batches,
       .sabotage = "batch folded into a constant",
       .columns = by_batch},
      {.requirement = "X3",
       .what = "difference of a convolution, its kernel permuted",
       .figure = figures.at("differences"),
       .measure = of_kernels,
       .sabotage = "kernel with height and width exchanged",
       .columns = by_batch},
      {.requirement = "X4",
       .what = "difference of a convolution with an even kernel and \"same\" padding",
       .figure = figures.at("differences"),
       .measure = of_padding,
       .sabotage = "the surplus at the top and left",
       .columns = by_batch},
      {.requirement = "X5",
       .what = "difference of a batch norm",
       .figure = figures.at("differences"),
       .measure = of_batch_norm,
       .sabotage = "statistics of a batch, as in training",
       .columns = by_batch},
      {.requirement = "X2",
       .what = "difference of a float16 mean over 512 x 512 cells",
       .figure = figures.at("half_mean"),
       .measure = of_half_mean,
       .sabotage = "a sum in float16 that is divided afterwards"},
      {.requirement = "X6",
       .what = "a model in training mode is refused by name, and leaves no file",
       .figure = figures.at("refusal"),
       .measure = of_refusal,
       .sabotage = "the model in eval mode",
       .columns = {"refused", "no file"}},
      {.requirement = "X8",
       .what = "digits CNN: predictions of 1,797 that differ, and the largest difference",
       .figure = figures.at("digits"),
       .measure = of_digits,
       .sabotage = "kernels with height and width exchanged",
       .columns = {"predictions", "difference"}},
  };
}

}  // namespace everyo::verify_room
