#include "everyo/data/packed.h"

#include <cstring>

#include "base/digest.h"
#include "fuzz/fuzz.h"

namespace everyo {
namespace {

// The header's checksum is right only by chance: put it right.
void seal(std::string& file) {
  constexpr std::size_t checksum_at = 224, header_bytes = 256;
  if (file.size() < header_bytes) return;
  const std::string sum = base::sha256(std::as_bytes(std::span(file)).first(checksum_at));
  for (std::size_t i = checksum_at; i < header_bytes; ++i)
    file[i] = static_cast<char>(std::stoi(sum.substr(2 * (i - checksum_at), 2), nullptr, 16));
}

}  // namespace
}  // namespace everyo

// A byte that says whether the header's checksum is put right, and a packed data set.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace everyo;
  static const fuzz::MemoryFile file;
  if (size == 0) return 0;
  std::string content(fuzz::text_of(data + 1, size - 1));
  if ((data[0] & 1) != 0) seal(content);
  file.write(content);
  const auto read = fuzz::read_or_refuse(file.path(), [] { return PackedDataset(file.path()); });
  if (!read) return 0;

  const std::int64_t samples = read->size();
  const Batch all = read->range(0, samples);
  fuzz::expect(all.features.spec().bytes() + all.targets.spec().bytes() <= content.size(), "rows are the file's");
  fuzz::read_or_refuse(file.path(), [&] { return read->verify(), true; });
  if (samples == 0 || samples > 4096) return 0;
  const std::string again = (fuzz::scratch() / "again.evpack").string();
  pack(*read, again);
  const PackedDataset back(again);
  back.verify();
  fuzz::expect(fuzz::same(back.range(0, samples).features, all.features) &&
                   fuzz::same(back.range(0, samples).targets, all.targets),
               "the rows come back");
  const std::int64_t last[] = {samples - 1};
  fuzz::expect(fuzz::same(read->rows(last).features, read->range(samples - 1, 1).features), "a row is what it is");
  return 0;
}
