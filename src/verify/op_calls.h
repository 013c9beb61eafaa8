#pragma once
#include <optional>
#include <string_view>

#include "everyo/op.h"

namespace everyo::verify_room {

/// A small call of each op of the library, so that its dtypes can be seen.
struct OpCall {
  std::string_view op;
  Tensor (*run)(DType first, DType second);  ///< dtypes of the first and of any further floating operands
  std::optional<DType> own{};                ///< of its result, whatever the operands'
};
/// The call of an op, or null.
const OpCall* call_of(std::string_view op);

/// The dtype that an op's record gave in its call, autocast as it is; nullopt when the call does not reach the record.
std::optional<DType> result_dtype(const OpCall& call, DType first, DType second);

/// The dtype that the rule of docs/precision.md gives a call with operands of one dtype. `autocast`: what it is on in,
/// if it is on.
DType ruled_dtype(CastPolicy policy, const OpCall& call, DType operands, std::optional<DType> autocast);

}  // namespace everyo::verify_room
