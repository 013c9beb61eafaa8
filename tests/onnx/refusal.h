#pragma once
#include <functional>
#include <string>

#include "everyo/error.h"

namespace everyo {

/// What an error of ours says that `run` ends with.
inline std::string refusal_of(const std::function<void()>& run) {
  try {
    run();
  } catch (const Error& error) {
    return error.what();
  }
  return "nothing was refused";
}

}  // namespace everyo
