#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <memory>

#include "everyo/error.h"
#include "verify/ranks.h"
#include "verify/topics.h"

// D3, D8: what ranks return, how one fails, and what the others are told.
namespace everyo::verify_room {
namespace {

constexpr int ranks_of_a_run = 3, culprit = 1;

/// The processes of a run, where the one that asks can see them.
class Processes {
 public:
  using Numbers = std::array<std::atomic<int>, ranks_of_a_run>;
  Processes()
      : memory_(mmap(nullptr, sizeof(Numbers), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)),
        numbers_(memory_ == MAP_FAILED ? nullptr : new (memory_) Numbers) {
    if (numbers_ == nullptr) throw Error("[verify] the system gives no memory", ErrorKind::distributed);
  }
  ~Processes() { munmap(memory_, sizeof(Numbers)); }
  Processes(const Processes&) = delete;
  Processes& operator=(const Processes&) = delete;
  void note(int rank) { (*numbers_)[static_cast<std::size_t>(rank)] = getpid(); }
  /// Those that still run, this one not counted.
  [[nodiscard]] double left() const {
    double count = 0;
    for (const std::atomic<int>& process : *numbers_)
      count += process != 0 && process != getpid() && (kill(process, 0) == 0 || errno != ESRCH) ? 1 : 0;
    return count;
  }

 private:
  void* memory_;
  Numbers* numbers_;
};

bool has(std::string_view text, std::string_view word) { return text.find(word) != text.npos; }

/// How many results came in rank order; of a run in which rank 1 throws a ValueError, whether the error names the rank,
/// the type and the message; how many processes are left.
std::vector<double> results_and_errors(Ranks ranks, bool silent) {
  double in_order = 0;
  const auto results =
      on_ranks(ranks, ranks_of_a_run, [](ProcessGroup& group) { return std::vector{10.0 * group.rank()}; });
  for (std::size_t r = 0; r < results.size(); ++r) in_order += results[r] == std::vector{10.0 * static_cast<double>(r)};
  Processes processes;
  try {
    on_ranks(ranks, ranks_of_a_run, [&](ProcessGroup& group) {
      processes.note(group.rank());
      group.barrier();
      if (group.rank() == culprit && silent) throw 1;
      if (group.rank() == culprit) throw ValueError("[worker] the data end");
      group.barrier();
      return std::vector<double>();
    });
  } catch (const DistributedError& error) {
    const std::string_view what = error.what();
    return {in_order, error.rank() == culprit ? 1.0 : 0.0, has(what, "ValueError") ? 1.0 : 0.0,
            has(what, "[worker] the data end") ? 1.0 : 0.0, processes.left()};
  }
  return {in_order, 0, 0, 0, processes.left()};
}

enum class Divergence { collective, size, dtype, number };

/// How many ranks raise an error that names two ranks and both calls when rank 1 calls something else.
double told(Ranks ranks, Divergence divergence, bool silent) {
  const auto names_both = [&](std::string_view what) {
    const bool two_ranks = has(what, "rank 1") && (has(what, "rank 0") || has(what, "rank 2"));
    switch (divergence) {
      case Divergence::collective:
        return two_ranks && has(what, "all_reduce number 1") && has(what, "barrier number 1");
      case Divergence::size: return two_ranks && has(what, "4 elements") && has(what, "3 elements");
      case Divergence::dtype: return two_ranks && has(what, "float32") && has(what, "int32");
      case Divergence::number: return two_ranks && has(what, "has left the group") && has(what, "barrier number 2");
    }
    return false;
  };
  const auto diverge = [&](ProcessGroup& group) {
    std::array<float, 4> values{};
    std::array<std::int32_t, 4> numbers{};
    const std::span all(values);
    const bool other = group.rank() == culprit;
    if (other && silent) group.end("something is wrong");
    if (other && divergence == Divergence::collective) return group.barrier();
    if (other && divergence == Divergence::dtype) return group.all_reduce(std::span(numbers));
    group.all_reduce(other && divergence == Divergence::size ? all.first(3) : all);
    if (other) group.barrier();
  };
  double count = 0;
  for (const auto& rank : on_ranks(ranks, ranks_of_a_run, [&](ProcessGroup& group) {
         try {
           diverge(group);
         } catch (const DistributedError& error) {
           return std::vector{names_both(error.what()) ? 1.0 : 0.0};
         }
         return std::vector{0.0};
       }))
    count += rank[0];
  return count;
}

}  // namespace

void add_rank_checks(Checks& checks, const Figures& figures) {
  for (const Ranks ranks : {Ranks::threads, Ranks::processes})
    checks.push_back(
        {.requirement = "D3",
         .what = std::string("results in rank order, and what is told of an exception on a rank: ") + name_of(ranks),
         .figure = figures.at("results_and_errors"),
         .measure = [=](bool sabotaged) { return results_and_errors(ranks, sabotaged); },
         .sabotage = "it throws what is no exception",
         .columns = {"in order", "its rank", "type", "message", "left"}});
  for (const Ranks ranks : {Ranks::threads, Ranks::processes})
    checks.push_back(
        {.requirement = "D8",
         .what = std::string("ranks of three that are told both calls when one differs: ") + name_of(ranks),
         .figure = figures.at("diverging_calls"),
         .measure =
             [=](bool sabotaged) {
               return std::vector{told(ranks, Divergence::collective, sabotaged),
                                  told(ranks, Divergence::size, sabotaged), told(ranks, Divergence::dtype, sabotaged),
                                  told(ranks, Divergence::number, sabotaged)};
             },
         .sabotage = "the group ends without a reason",
         .note = "of one call too many only its own rank can know: the others have left",
         .columns = {"operation", "size", "dtype", "number"}});
}

}  // namespace everyo::verify_room
