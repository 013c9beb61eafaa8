#pragma once
#include "parallel/shared_world.h"

namespace everyo::parallel {

/// The state letter of /proc/PID/stat: 'T' stopped, 't' held by a debugger or a leak checker, which let it go on, 'Z'
/// dead and not yet reaped; 0 when there is none.
char process_state(int process);

/// Whether a process has been stopped for so long that it counts as lost: a job's suspension may last a moment.
class StoppedLooks {
 public:
  /// One look at its state; they should come 20 ms apart.
  bool add(char state) noexcept {
    looks_ = state == 'T' ? looks_ + 1 : 0;
    return lost();
  }
  [[nodiscard]] bool lost() const noexcept { return looks_ > most; }

 private:
  static constexpr int most = 20;
  int looks_ = 0;
};

/// Ends the world for a rank that is lost so.
void fail_as_stopped(SharedWorld& world, int rank, int process) noexcept;

}  // namespace everyo::parallel
