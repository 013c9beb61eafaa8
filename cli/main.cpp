#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>

#include "cli/command.h"
#include "cli/terminal.h"
#include "everyo/context.h"
#include "everyo/error.h"
#include "everyo/isa.h"
#include "everyo/logging.h"
#include "everyo/profile.h"

namespace cli {
namespace {

int fail(int code, const std::string& message) {
  std::fflush(stdout);
  std::fprintf(stderr, "everyo: %s\n", message.c_str());  // not fmt's: that throws when standard error is closed
  return code;
}

/// A standard stream that was closed would give its number to the first file of the run.
void open_standard_streams() {
  for (int descriptor = 0; descriptor <= 2; ++descriptor)
    if (fcntl(descriptor, F_GETFD) < 0 && errno == EBADF) static_cast<void>(open("/dev/null", O_RDWR));
}

/// Throws for the first argument that nothing took, naming what was perhaps meant.
void refuse_extras(const CLI::App& program, const CLI::App* chosen) {
  std::vector<std::string> left = program.remaining(true);
  std::erase(left, "--");  // only says that no option follows
  if (left.empty() && chosen != nullptr) return;
  const std::string word = left.empty() ? "" : left.front();
  const CLI::App& where = chosen != nullptr ? *chosen : program;
  std::vector<std::string> known;
  if (word.starts_with('-')) {
    for (const CLI::Option* option : where.get_options())
      for (const std::string& name : option->get_lnames()) known.push_back("--" + name);
  } else {
    for (const CLI::App* command : program.get_subcommands(nullptr)) known.push_back(command->get_name());
  }
  const std::string close = similar(word.substr(0, word.find('=')), known);
  const std::string hint = close.empty() ? "" : fmt::format("; did you mean '{}'?", close);
  if (word.empty()) throw UsageError("a command is needed; 'everyo --help' lists them");
  if (word.starts_with('-'))
    throw UsageError(fmt::format("unknown option '{}'{}; '{} --help' lists the options", word, hint,
                                 chosen != nullptr ? "everyo " + chosen->get_name() : "everyo"));
  if (chosen != nullptr)
    throw UsageError(fmt::format("'{}' is one argument too many for 'everyo {}'", word, chosen->get_name()));
  throw UsageError(fmt::format("unknown command '{}'{}; 'everyo --help' lists them", word, hint));
}

/// The message of CLI11 without its line about --help.
std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

int run(int argc, char** argv) {
  open_standard_streams();
  CLI::App program{"Training of neural networks, every lever checked by number.", "everyo"};
  Common common;
  program.set_version_flag("--version", "everyo " EVERYO_VERSION, "print the version");
  program.set_help_flag("-h,--help", "print this");
  program.require_subcommand(0, 1);
  program.allow_extras();
  add_common(program, common);
  const std::array commands{add_train(program, common),   add_evaluate(program, common), add_inspect(program, common),
                            add_doctor(program, common),  add_verify(program, common),   add_pack(program, common),
                            add_launch(program, common),  add_diff(program, common),     add_export(program, common),
                            add_run_onnx(program, common)};
  for (const Command& command : commands) {
    add_common(*command.app, common);
    command.app->allow_extras();
  }
  try {
    program.parse(argc, argv);
  } catch (const CLI::Success& success_signal) {  // --help, --version
    return program.exit(success_signal) == 0 ? success : failure;
  } catch (const CLI::RequiredError& error) {
    const std::vector<CLI::App*> parsed = program.get_subcommands();
    return fail(usage_error, fmt::format("{}; 'everyo {} --help' says what it is", first_line(error.what()),
                                         parsed.empty() ? "" : parsed.front()->get_name()));
  } catch (const CLI::ParseError& error) {
    return fail(usage_error, first_line(error.what()));
  }
  const auto chosen =
      std::find_if(commands.begin(), commands.end(), [](const Command& command) { return command.app->parsed(); });
  refuse_extras(program, chosen == commands.end() ? nullptr : chosen->app);

  everyo::set_log_sink([](everyo::LogLevel level, std::string_view message) {
    say(fmt::format("{}: {}", everyo::name_of(level), message));
  });
  try {
    if (!common.isa.empty()) everyo::cap_isa(everyo::isa_of(common.isa));
    (void)everyo::isa();  // a bad EVERYO_ISA is wrong usage, and is said before any work
  } catch (const everyo::ValueError& error) {
    throw UsageError(error.what());
  }
  const everyo::ThreadLimit threads(common.threads);
  return chosen->run();
}

}  // namespace
}  // namespace cli

int main(int argc, char** argv) try {
  const int code = cli::run(argc, argv);
  if (std::fflush(stdout) != 0 && code == cli::success)
    return cli::fail(cli::failure, "standard output cannot be written");
  return code;
} catch (const cli::UsageError& error) {
  return cli::fail(cli::usage_error, error.what());
} catch (const std::exception& error) {
  return cli::fail(cli::failure, error.what());
}
