#include <nanobind/stl/filesystem.h>

#include <filesystem>

#include "common.h"

// Data sets, their files, and the order of samples.
namespace everyo::python {
namespace {

std::vector<std::int64_t> indices_in(nb::handle object) {
  const Tensor indices = cast(as_labels({object}), int64);
  const auto values = indices.data<std::int64_t>();
  return {values.begin(), values.end()};
}

nb::tuple arrays_of(const Batch& batch) {
  return nb::make_tuple(gradient_array(batch.features), gradient_array(batch.targets));
}

/// A data set that Python has, read by calling `gather(first, count)`.
class CalledDataset final : public Dataset {
 public:
  CalledDataset(std::int64_t size, nb::callable gather) : size_(size), gather_(std::move(gather)) {}
  [[nodiscard]] std::int64_t size() const noexcept override { return size_; }
  [[nodiscard]] Batch rows(std::span<const std::int64_t>) const override {
    throw StateError("[pack] rows of a data set of Python's are read in order");
  }
  [[nodiscard]] Batch range(std::int64_t first, std::int64_t count) const override {
    const nb::tuple arrays = nb::cast<nb::tuple>(gather_(first, count));
    return {as_tensor(arrays[0], {}, Integers::stay), as_tensor(arrays[1], {}, Integers::stay)};
  }

 private:
  std::int64_t size_;
  nb::callable gather_;
};

nb::tuple shape_of_sample(const Spec& all) {
  nb::list sizes;
  for (const std::int64_t size : all.shape.sizes().subspan(1)) sizes.append(size);
  return nb::tuple(sizes);
}

void bind_sets(nb::module_& m) {
  nb::class_<Dataset>(m, "RowSource", "A data set of the library's: rows by number.")
      .def("__len__", &Dataset::size)
      .def(
          "rows",
          [](const Dataset& data, nb::handle indices) {
            const std::vector<std::int64_t> numbers = indices_in(indices);
            const auto read = [&] {
              const nb::gil_scoped_release release;
              return data.rows(numbers);
            };
            return arrays_of(read());
          },
          "indices"_a, nb::sig("def rows(self, indices: IntArray) -> tuple[Array, Array]"),
          "Copies of features and targets of the rows at `indices`, in that order. EveryOShapeError for one outside.");

  nb::class_<PackedDataset, Dataset>(m, "PackedDataset", "A packed file, mapped into memory.")
      .def(
          "__init__",
          [](PackedDataset* self, const std::filesystem::path& path) { new (self) PackedDataset(path.string()); },
          "path"_a, nb::sig("def __init__(self, path: typing.Union[str, os.PathLike[str]]) -> None"))
      .def("verify", &PackedDataset::verify, nb::call_guard<nb::gil_scoped_release>(),
           "Reads all of the file and compares its checksums; EveryOSerializationError for one that does not agree.")
      .def_prop_ro(
          "feature_shape", [](const PackedDataset& data) { return shape_of_sample(data.info().features); },
          nb::sig("def feature_shape(self) -> tuple[int, ...]"), "Shape of one sample's features.")
      .def_prop_ro(
          "digests",
          [](const PackedDataset& data) {
            return nb::make_tuple(data.info().features_digest, data.info().targets_digest);
          },
          nb::sig("def digests(self) -> tuple[str, str]"), "SHA-256 of the features and of the targets.");
  m.def(
      "pack",
      [](std::int64_t size, nb::callable gather, const std::filesystem::path& path) {
        static_cast<void>(pack(CalledDataset(size, std::move(gather)), path.string()));
      },
      "size"_a, "gather"_a, "path"_a,
      nb::sig("def pack(size: int, gather: Callable[[int, int], tuple[Array, Array]], path: typing.Union[str, "
              "os.PathLike[str]]) -> None"),
      "Writes a data set as one file: gather(first, count) gives its rows, in order.");

  nb::class_<TextDataset, Dataset>(m, "TextDataset", "Windows of a text and the tokens that follow.")
      .def(
          "__init__",
          [](TextDataset* self, nb::handle tokens, nb::handle window, nb::handle stride) {
            new (self) TextDataset(as_labels({tokens}).copy(),
                                   {.window = whole_in(window, "window"), .stride = whole_in(stride, "stride")});
          },
          "tokens"_a, "window"_a, "stride"_a,
          nb::sig("def __init__(self, tokens: TensorLike, window: int, stride: int) -> None"));
  nb::class_<Vocabulary>(
      m, "Vocabulary",
      "Which tokens there are: the 256 bytes, or the characters of a text, a number each by code point.")
      .def_static("bytes", &Vocabulary::bytes, "256 tokens; any text has these.")
      .def_static(
          "characters", [](nb::handle text) { return Vocabulary::characters(word_in(text, "text")); }, "text"_a,
          nb::sig("def characters(text: str) -> Vocabulary"), "The characters of a text. ValueError without any.")
      .def("__len__", &Vocabulary::size)
      .def(
          "encode",
          [](const Vocabulary& vocabulary, nb::handle text) {
            return live_array(vocabulary.encode(word_in(text, "text")));
          },
          "text"_a, nb::sig("def encode(self, text: str) -> Array"),
          "Tokens, uint8 or int32. ValueError for a character that is not known.")
      .def(
          "decode",
          [](const Vocabulary& vocabulary, nb::handle tokens) {
            const std::string text = vocabulary.decode(as_labels({tokens}));
            return nb::steal<nb::str>(
                PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), "replace"));
          },
          "tokens"_a, nb::sig("def decode(self, tokens: TensorLike) -> str"),
          "The text of tokens; bytes that are no UTF-8 show as U+FFFD. ValueError for a token outside the vocabulary.");
}

}  // namespace

void bind_data(nb::module_& m) {
  bind_sets(m);
  m.def(
      "load_idx", [](const std::filesystem::path& path) { return live_array(load_idx(path.string())); }, "path"_a,
      nb::sig("def load_idx(path: typing.Union[str, os.PathLike[str]]) -> Array"),
      "The array in an IDX file, the format of MNIST. FileNotFoundError, EveryOShapeError for a damaged file.");
  m.def(
      "load_digits",
      [](const std::optional<std::filesystem::path>& path) {
        const ArrayDataset digits = load_digits(path ? path->string() : std::string());
        return nb::make_tuple(wrap(digits.features), wrap(digits.targets));
      },
      "path"_a = nb::none(),
      nb::sig("def load_digits(path: typing.Union[str, os.PathLike[str], None] = None) -> tuple[Tensor, Tensor]"),
      "1,797 handwritten digits: features [1797, 64] float32 in [0, 1], labels [1797] int64.");
  m.def("find_data_file", &find_data_file, "name"_a, "Path of a data file that ships with the library.");
  m.def(
      "load_csv",
      [](const std::filesystem::path& path, char delimiter, std::optional<bool> header) {
        const Table table = read_csv(path.string(), {.delimiter = delimiter, .has_header = header});
        const Tensor values = Tensor::from(std::span<const double>(table.values), {table.rows, table.columns});
        return nb::make_tuple(live_array(values), table.header);
      },
      "path"_a, nb::kw_only(), "delimiter"_a = ',', "has_header"_a = nb::none(),
      nb::sig("def load_csv(path: typing.Union[str, os.PathLike[str]], *, delimiter: str = ',', has_header: "
              "typing.Optional[bool] = None) -> tuple[Array, list[str]]"),
      "A table of numbers, float64 [rows, columns], and its header ([] without one).");
  m.def(
      "sample_order",
      [](std::int64_t count, bool shuffle, std::uint64_t seed, std::int64_t epoch) {
        const std::vector<std::int64_t> order = sample_order(count, shuffle, seed, epoch);
        return array_copy(Tensor::from(std::span<const std::int64_t>(order), {count}));
      },
      "count"_a, "shuffle"_a, "seed"_a, "epoch"_a,
      nb::sig("def sample_order(count: int, shuffle: bool, seed: int, epoch: int) -> "
              "IntArray"),
      "The order in which an epoch visits its samples: default_rng([seed, epoch]).permutation(count).");
}

}  // namespace everyo::python
