#pragma once
#include <cstdint>

#include "everyo/dtype.h"
#include "kernels/broadcast.h"

// Functions of two elements, with broadcasting. Operands have one dtype; halves are computed in float32 and rounded
// once; an element's bits do not depend on where it lies. The result may be an operand that is not repeated.
namespace everyo::kernels {

/// maximum and minimum keep a NaN of either operand. Of bools: add and maximum are or, multiply and minimum and.
enum class Binary : std::uint8_t { add, subtract, multiply, divide, maximum, minimum };

/// out[plan.elements] = a op b. Integers modulo 2^bits. Not for integers: divide; for bool: subtract.
void binary(Binary op, DType dtype, const BroadcastPlan<2>& plan, const void* a, const void* b, void* out);

/// The same for operands of one shape, n elements.
void binary(Binary op, DType dtype, std::int64_t n, const void* a, const void* b, void* out);

/// <= and >= are the others with the operands exchanged. Comparisons with NaN are false, but not_equal.
enum class Comparison : std::uint8_t { equal, not_equal, less, less_equal };

/// out[plan.elements], bool.
void compare(Comparison op, DType dtype, const BroadcastPlan<2>& plan, const void* a, const void* b, bool* out);

/// Gradients that need three operands. Floating dtypes.
enum class Ternary : std::uint8_t {
  divisor_gradient,  ///< (g, y, b): -(g / b) y, of y = a / b by b
  larger_gradient,   ///< (g, a, b): g where a > b, half of it where equal, of maximum(a, b) by a
  smaller_gradient,  ///< (g, a, b): the same with a < b
};
void ternary(Ternary op, DType dtype, const BroadcastPlan<3>& plan, const void* a, const void* b, const void* c,
             void* out);

/// out = condition ? a : b, of elements of 1, 2, 4 or 8 bytes; the operands in this order.
void select(std::size_t element_size, const BroadcastPlan<3>& plan, const bool* condition, const void* a, const void* b,
            void* out);

}  // namespace everyo::kernels
