#pragma once
#include <cstdint>
#include <string>

#include "everyo/train.h"

namespace cli {

/// Shows where a run stands: one line that is written over on a terminal, a line for each epoch otherwise.
class Progress {
 public:
  Progress();
  ~Progress() { clear(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void show(const everyo::TrainProgress& now);
  /// What the validation after an epoch came to: a line, or a part of the next ones on a terminal.
  void show_validation(double loss, double accuracy, bool best);
  /// Removes the unfinished line, so that something else can be printed.
  void clear();

 private:
  bool terminal_;
  bool line_open_ = false;
  std::string validation_;
  std::int64_t next_update_ = 0;  // milliseconds of the steady clock
};

/// A line on standard error; on a terminal in place of the one that is being written over.
void say(const std::string& message);

/// "1 h 02 min", "3 min 05 s", "12 s".
std::string duration(double seconds);

/// From here on the first SIGINT or SIGTERM is noted instead of ending the program; a second one ends it.
void note_interrupts();
bool was_interrupted();

}  // namespace cli
