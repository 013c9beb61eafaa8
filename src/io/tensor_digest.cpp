#include <fmt/format.h>

#include <string_view>

#include "base/digest.h"
#include "everyo/error.h"
#include "everyo/io.h"

namespace everyo::inline v1 {

std::string digest(std::span<const NamedTensor> tensors) {
  base::Sha256 sha;
  const auto text = [&](std::string_view value) {
    sha.update(value);
    sha.update(std::string_view("\0", 1));
  };
  for (const auto& [name, tensor] : tensors) {
    if (name.find('\0') != std::string::npos) {
      throw ValueError("[digest] a name has a zero byte, which ends a name here; rename the tensor");
    }
    if (!tensor.defined() || tensor.is_meta()) {
      throw StateError(fmt::format("[digest] tensor '{}' has no data; only values have a digest", name));
    }
    text(name);
    text(name_of(tensor.dtype()));
    text(to_string(tensor.shape()));
    sha.update(std::span<const std::byte>(tensor.bytes(), tensor.spec().bytes()));
  }
  return sha.finish();
}

}  // namespace everyo::inline v1
