#include "verify/topics.h"

namespace everyo::verify_room {

std::vector<verify::Check> parallel_checks() {
  const Figures figures("parallel");
  Checks checks;
  add_shard_checks(checks, figures);
  add_rank_checks(checks, figures);
  add_worker_checks(checks, figures);
  add_virtual_shard_checks(checks, figures);
  add_overlap_checks(checks, figures);
  return checks;
}

}  // namespace everyo::verify_room
