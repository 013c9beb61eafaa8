#include <nanobind/stl/filesystem.h>

#include <filesystem>

#include "common.h"

// Data files and the order of samples.
namespace everyo::python {

void bind_data(nb::module_& m) {
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
