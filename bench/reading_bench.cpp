// One pass over a data set of 8192 samples of 64 float32, all rows read, from a CSV file and from a packed one; and a
// pass in random order, batch by batch.
#include <benchmark/benchmark.h>

#include <cstdio>
#include <filesystem>
#include <string>

#include "everyo/data.h"

namespace {

constexpr std::int64_t samples = 8192, columns = 64;

struct Files {
  Files() {
    std::filesystem::create_directories(folder);
    std::FILE* const file = std::fopen(csv.c_str(), "w");
    everyo::Generator generator(0);
    for (std::int64_t row = 0; row < samples; ++row) {
      for (std::int64_t column = 0; column < columns; ++column)
        std::fprintf(file, "%.7g,", generator.standard_normal());
      std::fprintf(file, "%d\n", static_cast<int>(row % 10));
    }
    std::fclose(file);
    everyo::pack(everyo::load_csv_dataset(csv), packed);
  }
  ~Files() {
    std::error_code ignored;
    std::filesystem::remove_all(folder, ignored);
  }
  std::filesystem::path folder = std::filesystem::temp_directory_path() / "everyo-reading-bench";
  std::string csv = (folder / "set.csv").string(), packed = (folder / "set.pack").string();
};
const Files& files() {
  static const Files made;
  return made;
}

void read_csv(benchmark::State& state) {
  for (auto _ : state) benchmark::DoNotOptimize(everyo::load_csv_dataset(files().csv).features.bytes());
  state.SetItemsProcessed(state.iterations() * samples);
}

void read_packed(benchmark::State& state) {
  for (auto _ : state) {
    const everyo::PackedDataset data(files().packed);
    benchmark::DoNotOptimize(data.range(0, data.size()).features.bytes());
  }
  state.SetItemsProcessed(state.iterations() * samples);
}

void read_packed_and_verify(benchmark::State& state) {
  for (auto _ : state) {
    const everyo::PackedDataset data(files().packed);
    data.verify();
    benchmark::DoNotOptimize(data.range(0, data.size()).features.bytes());
  }
  state.SetItemsProcessed(state.iterations() * samples);
}

void shuffled_epoch_of_packed(benchmark::State& state) {
  everyo::Loader loader(everyo::PackedDataset(files().packed), {.batch = 256, .shuffle = true});
  for (auto _ : state)
    for (const auto& [x, y] : loader) benchmark::DoNotOptimize(x.bytes());
  state.SetItemsProcessed(state.iterations() * samples);
}

}  // namespace

BENCHMARK(read_csv)->Unit(benchmark::kMicrosecond);
BENCHMARK(read_packed)->Unit(benchmark::kMicrosecond);
BENCHMARK(read_packed_and_verify)->Unit(benchmark::kMicrosecond);
BENCHMARK(shuffled_epoch_of_packed)->Unit(benchmark::kMicrosecond);
