#pragma once
#include <cstddef>

#include "kernels/binary.h"

// The inner loops of binary, chosen once a call.
namespace everyo::kernels {

/// Which operand of a stretch of elements is one repeated element.
enum class Repeated : std::uint8_t { none, first, second };

using BinaryRun = void (*)(const void* a, const void* b, void* out, std::size_t count);
/// repeated: bit k for operand k.
using TernaryRun = void (*)(const void* a, const void* b, const void* c, void* out, std::size_t count,
                            unsigned repeated);

/// Plain loops: integers and bool; null for what binary does not take.
BinaryRun integer_run(Binary op, DType dtype, Repeated repeated);
BinaryRun comparison_run(Comparison op, DType dtype, Repeated repeated);
TernaryRun select_run(std::size_t element_size);

}  // namespace everyo::kernels
