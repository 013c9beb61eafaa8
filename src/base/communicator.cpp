#include "everyo/communicator.h"

#include <array>

namespace everyo::inline v1 {

std::string_view name_of(ReduceOp op) noexcept {
  constexpr std::array<std::string_view, 4> names{"sum", "mean", "min", "max"};
  return names[static_cast<std::size_t>(op)];
}

Communicator::~Communicator() = default;
Agreement::~Agreement() = default;

}  // namespace everyo::inline v1
