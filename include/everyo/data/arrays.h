#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "everyo/data/dataset.h"

// Arrays and tables in files, and the digits. Letters: N samples, D columns of a sample.
namespace everyo::inline v1 {

/// A table of numbers, row by row.
struct Table {
  std::vector<std::string> header;  ///< empty when the file has none
  std::int64_t rows = 0, columns = 0;
  std::vector<double> values;       ///< [rows, columns]
  std::vector<std::int64_t> lines;  ///< [rows] line of the file that each row stands on, from 1
};
struct CsvOptions {
  char delimiter = ',';
  std::optional<bool> has_header{};  ///< unset: the first line is a header when no field of it is a number
};
/// Reads comma-separated numbers: lines end with LF, CR LF or CR; fields may be quoted ("" is a quote inside quotes)
/// and padded with blanks; blank lines at the end are skipped. FileError names file, line and column: a line with
/// another number of fields, a field that is no finite number ("numeric table"), a quote that stays open, no rows.
EVERYO_API Table read_csv(const std::string& path, const CsvOptions& options = {});
/// The same of text in memory; `name` stands for the file in messages.
EVERYO_API Table parse_csv(std::string_view text, std::string_view name, const CsvOptions& options = {});

struct CsvDatasetOptions {
  CsvOptions csv{};
  std::int64_t target_column = -1;  ///< negative: from the last
  std::string target_name{};        ///< of a column in the header; instead of target_column
  DType target_dtype = int64;       ///< int64: whole numbers only
};
/// Features [N, D] float32 and targets [N] from a file of D + 1 columns. Throws as read_csv does; ValueError for a
/// column that the file has not.
EVERYO_API ArrayDataset load_csv_dataset(const std::string& path, const CsvDatasetOptions& options = {});

/// The array in an IDX file, the format of MNIST: uint8, int32 (also of 8 and 16 bits), float32 or float64, of any
/// shape up to 8 dimensions. FileError for a file that is missing, damaged, compressed, or longer than its shape says.
EVERYO_API Tensor load_idx(const std::string& path);
/// The array in a .npy file of NumPy's, format versions 1 to 3, either order: float32, float64, float16, int64, int32,
/// uint8 or bool, little-endian. FileError as load_idx, and for other dtypes by their name.
EVERYO_API Tensor load_npy(const std::string& path);

/// Path of a data file that ships with the library: $EVERYO_DATA, data/ or share/everyo/ beside the library or up to
/// three folders above it. FileError lists where it was looked for.
EVERYO_API std::string find_data_file(const std::string& name);

/// 1,797 handwritten digits of 8 x 8 pixels (UCI "Optical Recognition of Handwritten Digits", test set): features
/// [1797, 64] float32 in [0, 1], labels [1797] int64 0..9. `path` empty: find_data_file("digits.csv").
EVERYO_API ArrayDataset load_digits(const std::string& path = {});

struct Split {
  ArrayDataset train, test;
};
/// Holds out the last `held_out` rows of `default_rng(0).permutation(N)`, whatever other seeds are; both parts in that
/// order. Throws ValueError unless 0 < held_out < N.
EVERYO_API Split hold_out(const ArrayDataset& all, std::int64_t held_out);
/// The digits' fixed split: 1437 rows to train on, 360 held out.
inline Split digits_split(const std::string& path = {}) { return hold_out(load_digits(path), 360); }

}  // namespace everyo::inline v1
