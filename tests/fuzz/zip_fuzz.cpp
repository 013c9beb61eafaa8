#include "io/zip.h"

#include "fuzz/fuzz.h"

// A ZIP archive.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace everyo;
  constexpr std::string_view name = "archive.zip";
  constexpr std::uint64_t limit = 1 << 23;
  const std::span bytes = std::as_bytes(std::span(data, size));
  const auto zip = fuzz::read_or_refuse(name, [&] { return io::ZipReader(bytes, std::string(name)); });
  if (!zip) return 0;
  io::ZipWriter writer;
  std::vector<std::pair<std::string, std::string>> contents;
  for (const std::string& entry : zip->names()) {
    auto content = fuzz::read_or_refuse(name, [&] { return zip->extract(entry, limit); });
    if (!content) continue;
    fuzz::expect(content->size() <= 1032 * size, "a byte makes 1032 at most", entry);
    writer.add(entry, std::as_bytes(std::span(*content)), contents.size() % 2 == 0);
    contents.emplace_back(entry, std::move(*content));
  }
  const std::string again = std::move(writer).finish();
  const io::ZipReader back(std::as_bytes(std::span(again)), std::string(name));
  fuzz::expect(back.names().size() == contents.size(), "every entry comes back");
  for (const auto& [entry, content] : contents)
    fuzz::expect(back.extract(entry, limit) == content, "a content comes back", entry);
  return 0;
}
