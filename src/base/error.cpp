#include "everyo/error.h"

namespace everyo::inline v1 {

Error::~Error() = default;
ShapeError::~ShapeError() = default;
DTypeError::~DTypeError() = default;
ValueError::~ValueError() = default;
StateError::~StateError() = default;
FileError::~FileError() = default;

}  // namespace everyo::inline v1
