#pragma once
#include <cstdint>
#include <stdexcept>
#include <string>

#include "everyo/export.h"

namespace everyo::inline v1 {

/// What kind of mistake an error reports. Bindings map a kind to their own exception class; C++ programs usually
/// catch one of the types below.
enum class ErrorKind : std::uint8_t {
  shape,
  dtype,
  device,
  gradient,
  state,
  value,
  type,
  key,
  index,
  configuration,
  serialization,
  file_not_found,
  distributed,
  backend,
};

/// Base of every error the library throws. what() reads `[op] what differs, both values; the rule; what to do`.
/// docs/errors.md says which errors a caller may recover from.
class EVERYO_API Error : public std::runtime_error {
 public:
  explicit Error(const std::string& message, ErrorKind kind = ErrorKind::backend)
      : std::runtime_error(message), kind_(kind) {}
  ~Error() override;  // in the library: one typeinfo across the binary edge
  [[nodiscard]] ErrorKind kind() const noexcept { return kind_; }

 private:
  ErrorKind kind_;
};

/// Shapes, ranks, axes or indices that do not fit together.
class EVERYO_API ShapeError : public Error {
 public:
  explicit ShapeError(const std::string& message) : Error(message, ErrorKind::shape) {}
  ~ShapeError() override;
};

/// A dtype that the operation does not take.
class EVERYO_API DTypeError : public Error {
 public:
  explicit DTypeError(const std::string& message) : Error(message, ErrorKind::dtype) {}
  ~DTypeError() override;
};

/// An argument outside its range: a learning rate of 0, a label no class has, an unknown name.
class EVERYO_API ValueError : public Error {
 public:
  explicit ValueError(const std::string& message, ErrorKind kind = ErrorKind::value) : Error(message, kind) {}
  ~ValueError() override;
};

/// A call at the wrong time: backward without a graph, a slot nobody owns, a parameter that no visit() shows.
class EVERYO_API StateError : public Error {
 public:
  explicit StateError(const std::string& message, ErrorKind kind = ErrorKind::state) : Error(message, kind) {}
  ~StateError() override;
};

/// A file that is missing, damaged, or not what it claims to be.
class EVERYO_API FileError : public Error {
 public:
  explicit FileError(const std::string& message, ErrorKind kind = ErrorKind::serialization) : Error(message, kind) {}
  ~FileError() override;
};

}  // namespace everyo::inline v1
