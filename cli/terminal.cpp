#include "cli/terminal.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <string_view>

namespace cli {
namespace {

// Shared with the processes that are forked from here on, so that a signal to any of them stops the run.
volatile std::sig_atomic_t own_flag = 0;
volatile std::sig_atomic_t* interrupted = &own_flag;

std::int64_t milliseconds() {
  using namespace std::chrono;
  return duration_cast<std::chrono::milliseconds>(steady_clock::now().time_since_epoch()).count();
}

std::string bar(double part) {
  constexpr int width = 20;
  const int full = static_cast<int>(part * width);
  return std::string(static_cast<std::size_t>(full), '#') + std::string(static_cast<std::size_t>(width - full), '.');
}

/// Whether it is a terminal on which a line can be written over.
bool can_write_over(int file) {
  const char* name = std::getenv("TERM");
  return isatty(file) != 0 && name != nullptr && std::string_view(name) != "dumb";
}

/// The loss scale, and how many steps of the epoch were left out for which parameter.
std::string scaling_of(const everyo::TrainProgress& now) {
  if (!now.scaling) return {};
  const auto& [scale, skipped, overflowed] = *now.scaling;
  return fmt::format("  scale {:g}{}", scale,
                     skipped == 0 ? "" : fmt::format(", {} skipped for '{}'", skipped, overflowed));
}

}  // namespace

void note_interrupts() {
  void* const shared = mmap(nullptr, sizeof own_flag, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared != MAP_FAILED) interrupted = new (shared) volatile std::sig_atomic_t(0);
  struct sigaction action {};
  action.sa_handler = [](int) { *interrupted = 1; };
  action.sa_flags = static_cast<int>(SA_RESETHAND);
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}
bool was_interrupted() { return *interrupted != 0; }

void say(const std::string& message) {
  std::fflush(stdout);
  std::fprintf(stderr, "%severyo: %s\n", can_write_over(STDERR_FILENO) ? "\r\033[K" : "", message.c_str());
}

std::string duration(double seconds) {
  const auto total = static_cast<std::int64_t>(std::ceil(seconds));
  if (total >= 3600) return fmt::format("{} h {:02} min", total / 3600, total / 60 % 60);
  if (total >= 60) return fmt::format("{} min {:02} s", total / 60, total % 60);
  return seconds < 1 ? "<1 s" : fmt::format("{} s", total);
}

Progress::Progress() : terminal_(can_write_over(STDOUT_FILENO)) {}

void Progress::show(const everyo::TrainProgress& s) {
  const bool epoch_done = s.epoch_done(), done = epoch_done && s.epoch == s.epochs;
  const std::string numbers =
      fmt::format("epoch {}/{}  loss {:.4f}  accuracy {:.2f} %  {:.0f} samples/s{}  {} left", s.epoch, s.epochs, s.loss,
                  100 * s.accuracy, s.samples_per_second, scaling_of(s), done ? "0 s" : duration(s.seconds_left));
  if (!terminal_) {
    if (!epoch_done) return;
    fmt::print("{}\n", numbers);
    std::fflush(stdout);
    return;
  }
  constexpr std::int64_t between_updates = 50;
  const std::int64_t now = milliseconds();
  if (now < next_update_ && !done) return;
  next_update_ = now + between_updates;
  const double part = (static_cast<double>(s.epoch - 1) + static_cast<double>(s.step) / static_cast<double>(s.steps)) /
                      static_cast<double>(s.epochs);
  fmt::print("\r\033[K[{}] {}{}", bar(part), numbers, validation_);
  line_open_ = true;
  if (done) {
    fmt::print("\n");
    line_open_ = false;
  }
  std::fflush(stdout);
}

void Progress::show_validation(double loss, double accuracy, bool best) {
  validation_ =
      fmt::format("  validation loss {:.4f}  accuracy {:.2f} %{}", loss, 100 * accuracy, best ? "  best" : "");
  if (line_open_) return;
  fmt::print("          {}\n", validation_);
  std::fflush(stdout);
}

void Progress::clear() {
  if (!line_open_) return;
  fmt::print("\r\033[K");
  std::fflush(stdout);
  line_open_ = false;
}

}  // namespace cli
