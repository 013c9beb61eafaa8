#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "everyo/tensor.h"

namespace everyo::data {

/// Bytes that are read a part at a time: of a file, or in memory.
struct ByteSource {
  std::uint64_t size = 0;
  std::function<void(std::uint64_t offset, std::span<std::byte>)> read;
};
/// The array of a .npy file, as load_npy; `name` stands for the file in messages.
Tensor read_npy(const ByteSource& source, const std::string& name);

/// What stands before the elements of a .npy file, so that they begin at a multiple of 64. Throws DTypeError for
/// bfloat16, which NumPy does not know.
std::string npy_header(const Spec& spec);

}  // namespace everyo::data
