#pragma once
#include <utility>
#include <vector>

#include "everyo/nn.h"

namespace everyo::train {

/// Puts a model into one mode, and each of its modules back into its own.
class [[nodiscard]] ModeScope {
 public:
  ModeScope(ModuleBase& model, bool training) {
    for (const auto& [name, module] : model.named_modules()) modes_.emplace_back(module, module->training());
    model.train(training);
  }
  ~ModeScope() {
    for (const auto& [module, training] : modes_) module->train(training);  // parents come first
  }
  ModeScope(const ModeScope&) = delete;
  ModeScope& operator=(const ModeScope&) = delete;

 private:
  std::vector<std::pair<ModuleBase*, bool>> modes_;
};

}  // namespace everyo::train
