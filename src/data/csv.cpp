#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <utility>

#include "base/files.h"
#include "everyo/data.h"

namespace everyo::inline v1 {
namespace {

constexpr std::string_view blanks = " \t";
constexpr std::uint64_t largest_file = std::uint64_t{1} << 32;  // a table is held in memory; larger is a mistake

struct Field {
  std::string text;  // without quotes and padding
  bool quoted = false;
};

/// Where a message points.
struct Place {
  std::string_view file;
  std::int64_t line, column;
};
[[noreturn]] void fail(const Place& at, const std::string& what) {
  throw FileError(fmt::format("[read_csv] {}, line {}, column {}: {}", at.file, at.line, at.column, what),
                  ErrorKind::shape);
}

/// A field as a message shows it: short, and without bytes that are no text.
std::string shown(std::string_view text) {
  constexpr std::size_t longest = 40;
  std::string out;
  for (const char c : text.substr(0, longest)) out += (c >= ' ' && c <= '~') ? c : '?';
  return text.size() > longest ? out + "..." : out;
}

std::string_view trimmed(std::string_view text) {
  const std::size_t first = text.find_first_not_of(blanks);
  return first == std::string_view::npos ? std::string_view{}
                                         : text.substr(first, text.find_last_not_of(blanks) - first + 1);
}

/// Takes the next line, without its end.
std::string_view take_line(std::string_view& text) {
  const std::size_t end = text.find_first_of("\r\n");
  const std::string_view line = text.substr(0, end);
  if (end == std::string_view::npos)
    text = {};
  else
    text.remove_prefix(end + (text.substr(end, 2) == "\r\n" ? 2 : 1));
  return line;
}

/// `rest` starts behind an opening quote; takes up to the closing one.
std::string take_quoted(std::string_view& rest, const Place& at) {
  std::string text;
  for (;;) {
    const std::size_t quote = rest.find('"');
    if (quote == std::string_view::npos) fail(at, "the quote stays open to the end of the line");
    text += rest.substr(0, quote);
    rest.remove_prefix(quote + 1);
    if (!rest.starts_with('"')) return text;
    text += '"';
    rest.remove_prefix(1);
  }
}

void split(std::string_view line, char delimiter, Place at, std::vector<Field>& fields) {
  fields.clear();
  std::string_view rest = line;
  for (at.column = 1;; ++at.column) {
    Field field;
    const std::string_view padded = rest;
    rest.remove_prefix(std::min(rest.find_first_not_of(delimiter == '\t' ? " " : blanks), rest.size()));
    if (rest.starts_with('"')) {
      rest.remove_prefix(1);
      field = {take_quoted(rest, at), true};
      const std::size_t end = std::min(rest.find(delimiter), rest.size());
      if (!trimmed(rest.substr(0, end)).empty())
        fail(at, fmt::format("'{}' follows a closing quote; a quoted field ends at the delimiter",
                             shown(trimmed(rest.substr(0, end)))));
      rest.remove_prefix(end);
    } else {
      const std::size_t end = std::min(padded.find(delimiter), padded.size());
      field.text = trimmed(padded.substr(0, end));
      rest = padded.substr(end);
    }
    fields.push_back(std::move(field));
    if (rest.empty()) return;
    rest.remove_prefix(1);
  }
}

struct Spelled {
  bool whole = false;  ///< the whole text is a number, "nan" and "inf" too
  double value = 0;
};
Spelled spelled_number(std::string_view text) {
  if (text.starts_with('+')) {
    text.remove_prefix(1);
    if (text.starts_with('-') || text.starts_with('+')) return {};
  }
  Spelled result;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), result.value);
  result.whole = !text.empty() && error != std::errc::invalid_argument && end == text.data() + text.size();
  if (error == std::errc::result_out_of_range) result.value = std::strtod(std::string(text).c_str(), nullptr);
  return result;
}

/// A finite number that is the whole text.
std::optional<double> number_of(std::string_view text) {
  const Spelled spelled = spelled_number(text);
  return spelled.whole && std::isfinite(spelled.value) ? std::optional(spelled.value) : std::nullopt;
}

/// A line of words. What is spelled as a number, if only nan or 1e999, is data, which is then refused.
bool is_header(const std::vector<Field>& fields) {
  for (const Field& field : fields)
    if (spelled_number(field.text).whole || field.text.empty()) return false;
  return true;
}

/// What may be meant by a line in which a field is no number.
std::string advice(const std::vector<Field>& fields, char delimiter, std::int64_t line) {
  if (fields.size() == 1)
    for (const char other : {',', ';', '\t', '|'})
      if (other != delimiter && fields[0].text.find(other) != std::string::npos)
        return fmt::format("; if columns are separated by {}, set it as the delimiter",
                           other == '\t' ? "tabs" : fmt::format("'{}'", other));
  return line == 1 ? " (set has_header when this line is a header)" : "";
}

}  // namespace

Table parse_csv(std::string_view text, std::string_view name, const CsvOptions& options) {
  if (options.delimiter == '"' || options.delimiter == '\n' || options.delimiter == '\r')
    throw ValueError("[read_csv] the delimiter is a quote or a line end; give another character, such as ','");
  if (text.starts_with("\xef\xbb\xbf")) text.remove_prefix(3);  // a byte order mark

  Table table;
  std::vector<Field> fields;
  bool first = true;
  std::int64_t blank_line = 0;
  for (std::int64_t line_number = 1; !text.empty(); ++line_number) {
    const std::string_view line = take_line(text);
    Place at{name, line_number, 1};
    if (trimmed(line).empty()) {
      if (blank_line == 0) blank_line = line_number;
      continue;
    }
    if (blank_line != 0) fail({name, blank_line, 1}, "the line is empty; blank lines may only stand at the end");
    split(line, options.delimiter, at, fields);
    const auto width = static_cast<std::int64_t>(fields.size());
    if (std::exchange(first, false)) {
      table.columns = width;
      if (options.has_header.value_or(is_header(fields))) {
        for (Field& field : fields) table.header.push_back(std::move(field.text));
        continue;
      }
    }
    if (width != table.columns) {
      at.column = std::min(width, table.columns) + 1;
      fail(at, fmt::format("the line has {} field{}, the first line has {}; every line needs as many", width,
                           width == 1 ? "" : "s", table.columns));
    }
    for (const Field& field : fields) {
      const std::optional<double> value = number_of(field.text);
      if (!value)
        fail(at, fmt::format("'{}' is no finite number; a numeric table is needed{}", shown(field.text),
                             advice(fields, options.delimiter, line_number)));
      table.values.push_back(*value);
      ++at.column;
    }
    table.lines.push_back(line_number);
    ++table.rows;
  }
  if (table.rows == 0) fail({name, 1, 1}, "there are no rows; a numeric table is needed");
  return table;
}

Table read_csv(const std::string& path, const CsvOptions& options) {
  return parse_csv(base::read_file(path, largest_file), path, options);
}

ArrayDataset load_csv_dataset(const std::string& path, const CsvDatasetOptions& options) {
  const Table table = read_csv(path, options.csv);
  const std::int64_t n = table.rows, columns = table.columns;
  std::int64_t target = options.target_column < 0 ? options.target_column + columns : options.target_column;
  if (!options.target_name.empty()) {
    const auto found = std::find(table.header.begin(), table.header.end(), options.target_name);
    target = found - table.header.begin();
    if (found == table.header.end())
      throw ValueError(
          fmt::format("[load_csv_dataset] {} has no column '{}'; its header is: {}", path, shown(options.target_name),
                      table.header.empty() ? "none" : shown(fmt::format("{}", fmt::join(table.header, ", ")))));
  }
  if (target < 0 || target >= columns)
    throw ValueError(
        fmt::format("[load_csv_dataset] target column {} of {} is out of range; the file has columns {}..{}",
                    options.target_column, path, -columns, columns - 1));
  if (columns < 2)
    throw ValueError(
        fmt::format("[load_csv_dataset] {} has one column; features and a target need at least two", path));

  Scoped<&Context::category> category(MemoryCategory::input);
  Tensor features = Tensor::empty({n, columns - 1}), targets = Tensor::empty({n}, options.target_dtype);
  const auto x = features.data<float>();  // [N, D]
  std::size_t next = 0;
  visit_dtype(options.target_dtype, [&]<class T>() {
    const auto y = targets.data<T>();  // [N]
    for (std::int64_t row = 0; row < n; ++row)
      for (std::int64_t column = 0; column < columns; ++column) {
        const double value = table.values[static_cast<std::size_t>(row * columns + column)];
        const auto refuse = [&](const std::string& why) {
          fail({path, table.lines[static_cast<std::size_t>(row)], column + 1}, why);
        };
        if (column != target) {
          if (std::abs(value) > std::numeric_limits<float>::max())
            refuse(fmt::format("{} does not fit into float32", value));
          x[next++] = static_cast<float>(value);
          continue;
        }
        constexpr double whole = 0x1p53;  // beyond, doubles no longer hold every whole number
        if (!is_floating(options.target_dtype) && (value != std::trunc(value) || std::abs(value) >= whole))
          refuse(fmt::format("the label {} is no whole number; targets are {}", value, name_of(options.target_dtype)));
        const T label = narrow<T>(value);
        if (!is_floating(options.target_dtype) && static_cast<double>(widen(label)) != value)
          refuse(fmt::format("the label {} does not fit into {}", value, name_of(options.target_dtype)));
        y[static_cast<std::size_t>(row)] = label;
      }
  });
  return {std::move(features), std::move(targets)};
}

}  // namespace everyo::inline v1
