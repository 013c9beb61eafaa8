#pragma once
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "everyo/nn/module.h"

namespace everyo::inline v1 {

/// All that one walk over a model shows.
struct Collected : Visitor {
  struct Slot {
    Tensor tensor;
    std::vector<std::string> paths;     // of each place that owns it, in visit order
    std::vector<std::uint64_t> owners;  // path hashes of the modules of those places, each once
  };
  std::vector<Slot> slots;
  std::vector<std::pair<std::string, Buffer*>> buffers;
  std::vector<std::pair<std::string, ModuleBase*>> modules;
  std::string above;  // path of the walk's root within the whole model, with a dot

  /// Key of a slot in the state: its first path; in a part of a model whose tie reaches out of it, the whole model's.
  [[nodiscard]] std::string key_of(const Slot& slot) const;

 protected:
  void enter(ModuleBase& module) override { modules.emplace_back(path(), &module); }
  void parameter(Parameter& member) override;
  void buffer(Buffer& member) override { buffers.emplace_back(path(), &member); }

 private:
  std::unordered_map<const Body*, std::size_t> index_;
};

/// True when `slot` is tied and all its places here are among those a walk over the whole model stamped.
bool part_of_tie(const Collected::Slot& slot);

/// Walks a model to read it. Throws StateError when two members have one path.
void collect(const ModuleBase& module, Collected& into);

}  // namespace everyo::inline v1
