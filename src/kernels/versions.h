#pragma once
#include <string>

namespace everyo::kernels {

/// Of the library that is loaded.
std::string onednn_version();
/// Of the headers that were compiled.
std::string highway_version();

}  // namespace everyo::kernels
