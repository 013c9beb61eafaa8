#include "everyo/archive.h"

#include "fuzz/fuzz.h"
#include "io/zip.h"

// A .evo archive. Checksums are right only by chance, so all but the first kind of input put them right. A byte for the
// kind, then 0: the file; 1: manifest.json, a zero byte, parameters.npz; 2: manifest.json, a zero byte, the array "w".
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace everyo;
  static const fuzz::MemoryFile file;
  if (size == 0) return 0;
  const std::string_view rest = fuzz::text_of(data + 1, size - 1);
  const auto bytes = [](std::string_view text) { return std::as_bytes(std::span(text)); };
  const int kind = data[0] % 3;
  if (kind == 0) {
    file.write(rest);
  } else {
    const std::size_t zero = std::min(rest.find('\0'), rest.size());
    std::string parameters(rest.substr(std::min(zero + 1, rest.size())));
    if (kind == 2) {
      io::ZipWriter npz;
      npz.add("w.npy", bytes(parameters), (data[0] & 0x80) != 0);
      parameters = std::move(npz).finish();
    }
    io::ZipWriter zip;
    zip.add("manifest.json", bytes(rest.substr(0, zero)), false);
    zip.add("parameters.npz", bytes(parameters), (data[0] & 0x40) != 0);
    file.write(std::move(zip).finish());
  }
  const auto read = fuzz::read_or_refuse(file.path(), [] { return load_archive(file.path()); });
  if (!read) return 0;

  const std::filesystem::path again = fuzz::scratch() / "again.evo";
  save_archive(again, *read);
  const ModelArchive back = load_archive(again);
  fuzz::expect(back.class_name == read->class_name && back.config == read->config && back.metadata == read->metadata &&
                   (back.created_at == read->created_at || read->created_at.empty()),
               "the manifest comes back");
  fuzz::expect(back.parameters.size() == read->parameters.size(), "every parameter comes back");
  for (std::size_t i = 0; i < back.parameters.size(); ++i)
    fuzz::expect(back.parameters[i].first == read->parameters[i].first &&
                     fuzz::same(back.parameters[i].second, read->parameters[i].second),
                 "a parameter comes back", back.parameters[i].first);
  return 0;
}
