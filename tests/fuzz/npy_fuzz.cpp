#include "everyo/data.h"
#include "fuzz/fuzz.h"

namespace everyo {
namespace {

// The tensor as NumPy would save it.
std::string print(const Tensor& tensor) {
  const DType dtype = tensor.dtype();
  const char* descr = dtype == float32   ? "<f4"
                      : dtype == float64 ? "<f8"
                      : dtype == float16 ? "<f2"
                      : dtype == int64   ? "<i8"
                      : dtype == int32   ? "<i4"
                      : dtype == uint8   ? "|u1"
                                         : "|b1";
  std::string shape;
  for (const std::int64_t size : tensor.shape().sizes()) shape += fmt::format("{},", size);
  const std::string header = fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}), }}\n", descr, shape);
  std::string out = "\x93NUMPY";
  out += {1, 0, static_cast<char>(header.size() & 0xff), static_cast<char>(header.size() >> 8)};
  out += header;
  for (const std::byte b : fuzz::bytes_of(tensor)) out.push_back(static_cast<char>(b));
  return out;
}

}  // namespace
}  // namespace everyo

// A .npy file.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace everyo;
  static const fuzz::MemoryFile file, again;
  file.write(fuzz::text_of(data, size));
  const auto read = fuzz::read_or_refuse(file.path(), [] { return load_npy(file.path()); });
  if (!read) return 0;
  fuzz::expect(read->spec().bytes() <= size, "an array is no larger than its file");
  again.write(print(*read));
  fuzz::expect(fuzz::same(load_npy(again.path()), *read), "the array comes back");
  return 0;
}
