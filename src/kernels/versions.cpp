#include "kernels/versions.h"

#include <dnnl.h>
#include <fmt/format.h>
#include <hwy/highway.h>

namespace everyo::kernels {

std::string onednn_version() {
  const dnnl_version_t* version = dnnl_version();
  return fmt::format("{}.{}.{}", version->major, version->minor, version->patch);
}

std::string highway_version() { return fmt::format("{}.{}.{}", HWY_MAJOR, HWY_MINOR, HWY_PATCH); }

}  // namespace everyo::kernels
