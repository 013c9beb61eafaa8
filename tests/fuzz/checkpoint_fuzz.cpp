#include "everyo/checkpoint.h"

#include "base/digest.h"
#include "base/files.h"
#include "base/json.h"
#include "fuzz/fuzz.h"

namespace everyo {
namespace {

using nlohmann::json;

// Sums are right only by chance, so that nothing behind them would be reached: put them right.
std::string sealed(std::string_view manifest, std::string_view arrays, bool also_files) {
  json body;
  try {
    body = base::parse_json(manifest, "");
  } catch (const FileError&) {
    return std::string(manifest);
  }
  const auto sum = [](std::string_view text) { return base::sha256(std::as_bytes(std::span(text))); };
  if (also_files && body.is_object())
    body["files"] = {{"state.safetensors", {{"bytes", arrays.size()}, {"sha256", sum(arrays)}}}};
  const std::string text = body.dump();
  return fmt::format(R"({{"body":{},"sha256":"{}"}})", text, sum(text));
}

}  // namespace
}  // namespace everyo

// A checkpoint's folder: a byte that says which sums are put right, the manifest, a zero byte, the arrays.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace everyo;
  static const fuzz::MemoryFile manifest_file, arrays_file;
  static const std::filesystem::path folder = [] {
    std::filesystem::path made = fuzz::scratch() / "checkpoint";
    std::filesystem::create_directory(made);
    std::filesystem::create_symlink(manifest_file.path(), made / "manifest.json");
    std::filesystem::create_symlink(arrays_file.path(), made / "state.safetensors");
    return made;
  }();
  if (size == 0) return 0;
  std::string_view manifest = fuzz::text_of(data + 1, size - 1), arrays;
  if (const std::size_t zero = manifest.find('\0'); zero != std::string_view::npos) {
    arrays = manifest.substr(zero + 1);
    manifest = manifest.substr(0, zero);
  }
  manifest_file.write((data[0] & 1) != 0 ? sealed(manifest, arrays, (data[0] & 2) != 0) : std::string(manifest));
  arrays_file.write(arrays);
  const auto read = fuzz::read_or_refuse(folder.string(), [&] { return load_state(folder); });
  if (!read) return 0;

  // Twice, since a NaN is not equal to itself: the files must be.
  std::filesystem::path saved[2];
  for (const StateTree* state = &*read; std::filesystem::path & target : saved) {
    target = fuzz::scratch() / (&target == saved ? "first" : "second");
    std::filesystem::remove_all(target);
    save_state(target, *state);
  }
  const StateTree back = load_state(saved[0]);
  std::filesystem::remove_all(saved[1]);
  save_state(saved[1], back);
  for (const char* name : {"manifest.json", "state.safetensors"})
    fuzz::expect(base::read_file(saved[0] / name, 1 << 20) == base::read_file(saved[1] / name, 1 << 20),
                 "a state comes back", name);
  return 0;
}
