#include "everyo/data.h"
#include "fuzz/fuzz.h"

namespace everyo {
namespace {

void append_big_endian(std::string& out, std::span<const std::byte> element) {
  for (std::size_t i = element.size(); i-- > 0;) out.push_back(static_cast<char>(element[i]));
}

// The tensor as the IDX file of its own dtype.
std::string print(const Tensor& tensor) {
  const DType dtype = tensor.dtype();
  const int code = dtype == uint8 ? 0x08 : dtype == int32 ? 0x0c : dtype == float32 ? 0x0d : 0x0e;
  std::string out{0, 0, static_cast<char>(code), static_cast<char>(tensor.shape().rank())};
  for (const std::int64_t size : tensor.shape().sizes()) {
    const auto small = static_cast<std::uint32_t>(size);
    append_big_endian(out, std::as_bytes(std::span(&small, 1)));
  }
  const std::span elements = fuzz::bytes_of(tensor);
  const std::size_t width = size_of(dtype);
  for (std::size_t at = 0; at < elements.size(); at += width) append_big_endian(out, elements.subspan(at, width));
  return out;
}

}  // namespace
}  // namespace everyo

// An IDX file.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace everyo;
  static const fuzz::MemoryFile file, again;
  file.write(fuzz::text_of(data, size));
  const auto read = fuzz::read_or_refuse(file.path(), [] { return load_idx(file.path()); });
  if (!read) return 0;
  fuzz::expect(read->spec().bytes() <= 4 * size, "a byte of the file makes four at most");
  again.write(print(*read));
  fuzz::expect(fuzz::same(load_idx(again.path()), *read), "the array comes back");
  return 0;
}
