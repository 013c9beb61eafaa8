#include "everyo/context.h"

#include "base/thread_context.h"

namespace everyo::inline v1 {
constinit thread_local Context thread_context;

Context& context() noexcept { return thread_context; }

std::string module_path() {
  std::string path;
  for (const ModuleScope* scope = context().scope; scope; scope = scope->parent) {
    if (scope->name.empty()) continue;
    path = path.empty() ? std::string(scope->name) : std::string(scope->name) + "." + path;
  }
  return path;
}

}  // namespace everyo::inline v1
