#include <algorithm>
#include <csignal>
#include <memory>
#include <string>
#include <vector>

#include "cli/command.h"
#include "everyo/parallel.h"

namespace cli {
namespace {

struct Choices {
  int ranks = 0;
  double timeout = everyo::default_timeout.count();
  std::vector<std::string> program;
};

}  // namespace

Command add_launch(CLI::App& program, Common& common) {
  CLI::App* app = program.add_subcommand("launch", "run a program on several ranks: everyo launch -n 2 -- PROGRAM ...");
  const auto choices = std::make_shared<Choices>();
  app->add_option("-n,--ranks", choices->ranks, "processes to start")->required()->check(whole_number(1, 256));
  app->add_option("--timeout", choices->timeout, "seconds a rank waits for another before the run fails")
      ->check(number_above_zero())
      ->capture_default_str();
  app->add_option("program", choices->program, "what to run, after --, with its arguments")
      ->required()
      ->expected(-1)
      ->option_text("PROGRAM ...");
  app->callback([app] {  // without the mark, options of the program with names of ours would be taken from it
    if (const auto words = app->remaining(); std::ranges::find(words, "--") == words.end())
      throw UsageError("no -- stands before the program; write everyo launch -n 2 -- PROGRAM ...");
  });
  return {app, [&common, choices] {
            // Who ignores it has no exit statuses, and programs begin with what they are given.
            std::signal(SIGCHLD, SIG_DFL);
            return everyo::launch(choices->ranks, choices->program,
                                  {.timeout = everyo::Timeout(choices->timeout), .threads = common.threads});
          }};
}

}  // namespace cli
