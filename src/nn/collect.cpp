#include "nn/collect.h"

#include <fmt/format.h>

#include <algorithm>

namespace everyo::inline v1 {

void Collected::parameter(Parameter& member) {
  const auto [at, fresh] = index_.try_emplace(member.tensor().body(), slots.size());
  if (fresh) slots.push_back({member.tensor(), {}, {}});
  Slot& slot = slots[at->second];
  slot.paths.push_back(path());
  if (std::ranges::find(slot.owners, owner()) == slot.owners.end()) slot.owners.push_back(owner());
}

bool part_of_tie(const Collected::Slot& slot) {
  const Leaf& leaf = *slot.tensor.body()->leaf;
  return leaf.use_paths.size() > 1 && std::ranges::all_of(slot.owners, [&](std::uint64_t owner) {
           return std::ranges::find(leaf.use_paths, owner) != leaf.use_paths.end();
         });
}

std::string Collected::key_of(const Slot& slot) const {
  const std::string& name = slot.tensor.body()->leaf->name;
  if (part_of_tie(slot) && name.starts_with(above) && name.size() > above.size()) return name.substr(above.size());
  return slot.paths[0];
}

void collect(const ModuleBase& module, Collected& into) {
  into.above = module.path().empty() ? "" : module.path() + ".";
  into.walk(const_cast<ModuleBase&>(module));  // visit() is not const; this walk only reads
  std::vector<std::string_view> paths;
  for (const auto& slot : into.slots) paths.insert(paths.end(), slot.paths.begin(), slot.paths.end());
  for (const auto& [path, buffer] : into.buffers) paths.push_back(path);
  std::ranges::sort(paths);
  if (const auto twice = std::ranges::adjacent_find(paths); twice != paths.end())
    throw StateError(fmt::format("[visit] '{}' names two members; give each its own name", *twice));
}

}  // namespace everyo::inline v1
