#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "everyo/nn/module.h"

// Models as ONNX files: written by tracing the ops of a run, and run in ONNX Runtime. docs/onnx.md tells the rules.
namespace everyo::inline v1 {

/// A size of an input that the exported graph leaves open. Axes with one name have one size.
struct SymbolicAxis {
  std::string input;      ///< which input
  std::int64_t axis = 0;  ///< which of its axes; negative: from the end
  std::string name;       ///< what the file calls the size
};

/// Where ONNX Runtime is, and how many threads it may use.
struct OnnxRuntimeOptions {
  /// Path of its library, 1.21 or above. Empty: what EVERYO_ONNXRUNTIME names; unless that is set libonnxruntime.so.1
  /// where the loader looks, then the package of the Python environment that is active.
  std::filesystem::path library{};
  int threads = 0;  ///< 0 to 1024; 0: as many as kernels may use here
};

/// How outputs of the file, run in ONNX Runtime, differ from the model's, over all batch sizes tried.
struct OnnxAgreement {
  std::string output;
  double absolute = 0;  ///< largest |difference|
  double relative = 0;  ///< largest |difference| over the larger of 1 and |the model's value|
};

struct OnnxOptions {
  int opset = 17;  ///< of the standard operators, onnx_first_opset to onnx_last_opset
  std::string input_name = "input";
  std::string output_name = "output";       ///< several outputs: "output_0", "output_1", …
  std::string model_name = "everyo_model";  ///< of the graph
  std::string batch_name = "batch";         ///< of axis 0 of every input; empty: that size is fixed, too
  std::vector<SymbolicAxis> symbolic{};     ///< further sizes to leave open
  DType input_dtype = float32;              ///< of the input; bfloat16 is declared as float32 in the file
  /// Export the casts that a run under this autocast makes; none: the plain run.
  std::optional<DType> autocast{};
  std::vector<std::pair<std::string, std::string>> metadata{};  ///< kept in the file beside its own
  /// Weights of more bytes than this in all go into a second file beside it, FILE.DIGEST.data, but for single ones
  /// below 1 kB; a message can have 2 GB.
  std::uint64_t external_data_above = 1'900'000'000;
  /// Run the file in ONNX Runtime on random batches of several sizes, and refuse it, naming the first module where the
  /// two part, when an output differs by more than `tolerance` (in OnnxAgreement's relative measure).
  bool check = false;
  std::vector<std::int64_t> check_batches{1, 2, 3, 7};
  double tolerance = 0;  ///< 0: 1e-5, or 8 units of the last place of halves: 7.8e-3, 0.063
  OnnxRuntimeOptions runtime{};
};

inline constexpr int onnx_first_opset = 13, onnx_last_opset = 22;

/// What was written.
struct OnnxReport {
  std::filesystem::path path;
  std::optional<std::filesystem::path> data;  ///< the second file, if there is one
  int opset = 0;
  std::size_t nodes = 0, initializers = 0;
  std::uint64_t bytes = 0;                  ///< of both files
  bool loaded = false;                      ///< ONNX Runtime was there and took it
  std::vector<OnnxAgreement> agreements{};  ///< one an output, when it was checked
};

/// Writes the function `model` computes on one input as an ONNX file. `input_shape` is that of a batch, (N, …); N
/// itself does not matter: the graph takes any, proved by running the model on batches of three sizes. Initializers
/// have the names of state_dict(), nodes the paths of modules. The model, its modes, buffers and gradients stay as they
/// are, and nothing is at `path` unless all went well. Throws StateError (serialization) naming the module and the op
/// for what has no place in a file: a module in training mode, an op without an ONNX form, a value that was computed
/// outside of recorded ops; ValueError for options outside their range; FileError for the file.
EVERYO_API OnnxReport export_onnx(ModuleBase& model, const std::filesystem::path& path, const Shape& input_shape,
                                  const OnnxOptions& options = {});

/// A function of several tensors, to be exported by running it.
using OnnxFunction = std::function<std::vector<Tensor>(std::span<const Tensor> inputs)>;
/// One input of such a function: its name, and the dtype and shape of an example. Integers are drawn from 0 to
/// `integers_below` - 1 (ids of an embedding).
struct OnnxInput {
  std::string name;
  Spec spec;
  std::int64_t integers_below = 2;
};
/// The same for a function. Tensors it uses besides its inputs become initializers: those in `names` under their names.
EVERYO_API OnnxReport export_onnx_traced(const OnnxFunction& function, const std::filesystem::path& path,
                                         std::span<const OnnxInput> inputs, const OnnxOptions& options = {},
                                         const StateDict& names = {});
/// For a function that calls `model`, which gives the names and must be in eval mode.
EVERYO_API OnnxReport export_onnx_traced(const OnnxFunction& function, const std::filesystem::path& path,
                                         std::span<const OnnxInput> inputs, const OnnxOptions& options,
                                         ModuleBase& model);

using NamedTensors = std::vector<std::pair<std::string, Tensor>>;

/// What a file says of one of its inputs or outputs. A size of -1 is open, and `sizes` has its name.
struct OnnxValue {
  std::string name;
  DType dtype;
  std::vector<std::int64_t> shape{};
  std::vector<std::string> sizes{};  ///< one an axis; "" where the size is fixed or has no name
  bool ranked = true;                ///< false: the number of axes is open, too, and `shape` empty
};

/// What a file takes and gives, and the texts it keeps.
struct OnnxDescription {
  std::vector<OnnxValue> inputs, outputs;
  std::vector<std::pair<std::string, std::string>> metadata;
};
/// Reads a file and checks its structure, without ONNX Runtime. Throws FileError for a file that is missing, cut short,
/// or damaged, or takes or gives what is no tensor of our dtypes.
EVERYO_API OnnxDescription describe_onnx(const std::filesystem::path& path);

/// An ONNX file, loaded in ONNX Runtime to be run many times; threads may share it, a forked process loads its own. Its
/// inputs and outputs are tensors of our dtypes. Loading switches the runtime's telemetry off (ORT_DISABLE_TELEMETRY=1
/// in the environment, unless it is set).
class EVERYO_API OnnxModel {
 public:
  /// Weights in other files are read from the model's folder and below it. Throws FileError for a file that is missing,
  /// cut short, or not a model the runtime takes; StateError (backend) with a hint how to install ONNX Runtime when it
  /// is not there; ValueError for threads.
  explicit OnnxModel(const std::filesystem::path& path, const OnnxRuntimeOptions& options = {});
  OnnxModel(OnnxModel&&) noexcept;
  OnnxModel& operator=(OnnxModel&&) noexcept;
  ~OnnxModel();

  [[nodiscard]] const std::vector<OnnxValue>& inputs() const noexcept;
  [[nodiscard]] const std::vector<OnnxValue>& outputs() const noexcept;
  [[nodiscard]] const std::vector<std::pair<std::string, std::string>>& metadata() const noexcept;
  /// All outputs, in the file's order. Throws ValueError for a name the file lacks or an input that is missing,
  /// DTypeError and ShapeError for one that does not fit, StateError (backend) for what the runtime reports.
  [[nodiscard]] NamedTensors run(const NamedTensors& inputs) const;
  /// The inputs in the dtypes that the file takes: floats become its floats, integers its integers or floats. All else
  /// stays as it is, for run() to refuse.
  [[nodiscard]] NamedTensors convert(const NamedTensors& inputs) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Loads a file and runs it once.
EVERYO_API NamedTensors run_onnx(const std::filesystem::path& path, const NamedTensors& inputs,
                                 const OnnxRuntimeOptions& options = {});

/// How far a file's outputs are from those of a function, over all batches: of each the inputs by name, in the order of
/// the function's arguments; the file gets them as convert() makes them. One an output of the file. A NaN or infinity
/// that only one has differs by infinity. Throws ShapeError when outputs differ in number or shape, and what run() and
/// the function throw.
EVERYO_API std::vector<OnnxAgreement> compare_onnx(const OnnxFunction& function, const OnnxModel& file,
                                                   std::span<const NamedTensors> batches);

/// Whether ONNX Runtime can be loaded.
EVERYO_API bool onnx_available(const OnnxRuntimeOptions& options = {}) noexcept;
/// Its version and where it is, "1.32.0 (…/libonnxruntime.so.1)"; throws as OnnxModel does when it is not there.
EVERYO_API std::string onnx_runtime_version(const OnnxRuntimeOptions& options = {});

}  // namespace everyo::inline v1
