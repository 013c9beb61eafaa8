#include "everyo/io.h"
#include "fuzz/fuzz.h"

// A safetensors file.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace everyo;
  static const fuzz::MemoryFile file;
  file.write(fuzz::text_of(data, size));
  const auto read = fuzz::read_or_refuse(file.path(), [] { return load_safetensors(file.path()); });
  if (!read) return 0;

  const std::filesystem::path again = fuzz::scratch() / "again.safetensors";
  save_safetensors(again, read->tensors, read->metadata);
  const SafetensorsFile back = load_safetensors(again);
  fuzz::expect(back.metadata == read->metadata, "metadata comes back");
  fuzz::expect(back.tensors.size() == read->tensors.size(), "every tensor comes back");
  for (const auto& [name, tensor] : read->tensors) {
    const auto found = std::ranges::find(back.tensors, name, &NamedTensor::first);
    fuzz::expect(found != back.tensors.end() && fuzz::same(found->second, tensor), "a tensor comes back", name);
  }
  return 0;
}
