#pragma once
#include <CLI/CLI.hpp>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <vector>

// What the subcommands share. Each lies in a file of its own and adds itself to the program.
namespace cli {

inline constexpr int success = 0, failure = 1, usage_error = 2, interrupted = 130;

/// Wrong usage that only the command can see, after parsing.
struct UsageError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Options that every subcommand takes.
struct Common {
  bool json = false;
  int threads = 0;
  std::string isa;
};

struct Command {
  CLI::App* app = nullptr;
  std::function<int()> run;
};

Command add_train(CLI::App& program, Common& common);
Command add_evaluate(CLI::App& program, Common& common);
Command add_inspect(CLI::App& program, Common& common);
Command add_doctor(CLI::App& program, Common& common);
Command add_verify(CLI::App& program, Common& common);
Command add_pack(CLI::App& program, Common& common);
Command add_launch(CLI::App& program, Common& common);
Command add_diff(CLI::App& program, Common& common);
Command add_export(CLI::App& program, Common& common);
Command add_run_onnx(CLI::App& program, Common& common);

void add_common(CLI::App& app, Common& common);

// ---- checks of an option's value; a message names the option, the value and what is allowed ----
CLI::Validator whole_number(std::int64_t least, std::int64_t most);
CLI::Validator number_above_zero();
CLI::Validator fraction();  ///< between 0 and 1
CLI::Validator one_of(std::vector<std::string> allowed);

/// The allowed word that looks most like `word`, or "" when none does.
std::string similar(const std::string& word, const std::vector<std::string>& allowed);

/// A small text file from outside, of at most a megabyte. `what` begins the message of the FileError for one that is
/// missing or cannot be read.
std::string read_text(const std::filesystem::path& path, const std::string& what);

/// The last line of standard output under --json.
void print_json(const nlohmann::json& value);

}  // namespace cli
