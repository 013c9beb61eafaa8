#include "base/files.h"
#include "everyo/io.h"

namespace everyo::inline v1 {

void save_text(const std::filesystem::path& path, std::string_view text) { base::write_file(path, text); }

}  // namespace everyo::inline v1
