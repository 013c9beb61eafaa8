#pragma once
#include <cstdint>
#include <string>

#include "cli/command.h"
#include "everyo/data.h"

namespace cli {

enum class Format : std::uint8_t { table, npy, idx, packed };
/// What a file begins like; a table of numbers when it is none of the others.
Format format_of(const std::string& path);

/// Where labelled rows come from.
struct Source {
  std::string data = "digits";  ///< "digits", or a file: a table, packed, or .npy or IDX
  std::string labels;           ///< the file of labels that belongs to one of .npy or IDX
  std::string target;           ///< column of a table by its name; empty: the last
  friend bool operator==(const Source&, const Source&) = default;
};
/// Of a value of --data: "digits", or what may be a file.
CLI::Validator data_source();

/// All rows of a source: features [N, D] float32, labels [N] int64 from 0. Throws UsageError for options that do not go
/// together.
everyo::ArrayDataset load_rows(const Source& source);
/// How many classes the labels are of: one more than the largest.
std::int64_t classes_of(const everyo::ArrayDataset& rows);
/// The rows to train on, and those held out, a fifth: always the same ones of a source.
everyo::Split split_rows(const Source& source, const everyo::ArrayDataset& rows);
/// The part of `rows` that a fraction is, held out of them; at least one row, and not all.
everyo::Split hold_out_fraction(const everyo::ArrayDataset& rows, double fraction);

}  // namespace cli
