#include "cli/settings.h"

#include "cli/command.h"
#include "fuzz/fuzz.h"

namespace {

/// Choices of every kind that the command has.
struct Choices {
  Choices() {
    settings.add("name", &name, "");
    settings.add("optimizer", &optimizer, "")->check(cli::one_of({"sgd", "adam"}));
    settings.add("epochs", &epochs, "")->check(cli::whole_number(1, 1000));
    settings.add("best-of", &best_of, "")->check(cli::whole_number(0, 5));
    settings.add("lr", &lr, "")->check(cli::number_above_zero());
    settings.add("dropout", &dropout, "")->check(cli::fraction());
  }
  CLI::App app{"", "fuzz"};
  cli::Settings settings{app};
  std::string name, optimizer = "adam";
  std::int64_t epochs = 5;
  std::optional<std::int64_t> best_of;
  std::optional<double> lr, dropout;
};

}  // namespace

// A file of --config.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace everyo;
  static const fuzz::MemoryFile file;
  file.write(fuzz::text_of(data, size));
  Choices first;
  const auto read = fuzz::read_or_refuse(file.path(), [&] {
    try {
      first.settings.read(file.path());
    } catch (const cli::UsageError& error) {
      throw Error(error.what());  // of wrong usage, which the other readers cannot be used for
    }
    return true;
  });
  if (!read) return 0;
  fuzz::expect(first.epochs >= 1 && first.epochs <= 1000 && (!first.lr || *first.lr > 0), "a choice is in its range");
  const std::string text = first.settings.to_json().dump();
  file.write(text);
  Choices second;
  second.settings.read(file.path());
  fuzz::expect(second.settings.to_json().dump() == text, "the choices come back", text);
  return 0;
}
