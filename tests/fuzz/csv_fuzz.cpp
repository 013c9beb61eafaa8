#include "everyo/data.h"
#include "fuzz/fuzz.h"

namespace everyo {
namespace {

// The table as text that reads back to it.
std::string print(const Table& table, char delimiter) {
  std::string text;
  for (std::size_t i = 0; i < table.header.size(); ++i) {
    if (i > 0) text += delimiter;
    text += '"';
    for (const char c : table.header[i]) text += c == '"' ? std::string("\"\"") : std::string(1, c);
    text += '"';
  }
  if (!table.header.empty()) text += '\n';
  for (std::int64_t i = 0; i < table.rows * table.columns; ++i) {
    text += fmt::format("{}", table.values[static_cast<std::size_t>(i)]);
    text += (i + 1) % table.columns == 0 ? '\n' : delimiter;
  }
  return text;
}

}  // namespace
}  // namespace everyo

// Three bytes of options (delimiter and header, target column, target dtype) and the text.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace everyo;
  static const fuzz::MemoryFile file;
  if (size < 3) return 0;
  constexpr std::string_view delimiters = ",;\t |0.-";
  CsvDatasetOptions options;
  options.csv.delimiter = delimiters[data[0] % delimiters.size()];
  if (const int header = data[0] / delimiters.size() % 3; header > 0) options.csv.has_header = header == 2;
  options.target_column = static_cast<std::int8_t>(data[1]);
  options.target_dtype = static_cast<DType>(data[2] % dtype_count);
  if ((data[2] & 0x80) != 0) options.target_name = "label";
  const std::string_view text = fuzz::text_of(data + 3, size - 3);

  const auto table = fuzz::read_or_refuse("table.csv", [&] { return parse_csv(text, "table.csv", options.csv); });
  file.write(text);
  const auto dataset = fuzz::read_or_refuse(file.path(), [&] { return load_csv_dataset(file.path(), options); });
  fuzz::expect(table || !dataset, "what is no table is no data set");
  if (!table) return 0;

  fuzz::expect(table->rows * table->columns == static_cast<std::int64_t>(table->values.size()) &&
                   table->rows == static_cast<std::int64_t>(table->lines.size()) && table->rows > 0,
               "every row is whole");
  fuzz::expect(table->values.size() <= text.size(), "a number takes a character");
  if (dataset) fuzz::expect(dataset->size() == table->rows, "a data set has the table's rows");
  // With a delimiter that numbers are made of, a number cannot be printed.
  if (options.csv.delimiter == '0' || options.csv.delimiter == '.' || options.csv.delimiter == '-') return 0;
  options.csv.has_header = !table->header.empty();
  const Table back = parse_csv(print(*table, options.csv.delimiter), "table.csv", options.csv);
  fuzz::expect(back.values == table->values && back.columns == table->columns, "the numbers come back");
  fuzz::expect(back.header == table->header, "the header comes back");
  return 0;
}
