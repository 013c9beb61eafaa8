#include "everyo/model_file.h"

#include <algorithm>
#include <iterator>

#include "nn/collect.h"

namespace everyo::inline v1 {

void save_model(const std::filesystem::path& path, const ModuleBase& model, const Metadata& metadata) {
  Collected all;
  collect(model, all);
  Metadata with_aliases = metadata;
  for (const Collected::Slot& slot : all.slots) {
    const std::string key = all.key_of(slot);
    for (const std::string& name : slot.paths)
      if (name != key) with_aliases[name] = key;
  }
  save_safetensors(path, model.state_dict(), with_aliases);
}

Metadata load_model(const std::filesystem::path& path, ModuleBase& model, const LoadOptions& options) {
  SafetensorsFile file = load_safetensors(path);
  std::vector<NamedTensor> aliases;
  for (const auto& [alias, name] : file.metadata) {
    const auto target = std::ranges::find(file.tensors, name, &NamedTensor::first);
    const bool is_new = std::ranges::find(file.tensors, alias, &NamedTensor::first) == file.tensors.end();
    if (target != file.tensors.end() && is_new) aliases.emplace_back(alias, target->second);
  }
  for (const NamedTensor& alias : aliases) file.metadata.erase(alias.first);
  std::ranges::move(aliases, std::back_inserter(file.tensors));
  (void)model.load_state_dict(file.tensors, options);
  return std::move(file.metadata);
}

}  // namespace everyo::inline v1
