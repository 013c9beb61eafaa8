#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "everyo/io.h"

namespace everyo::io {

/// One tensor of the header. Offsets count from the end of the header.
struct HeaderEntry {
  std::string name;
  Spec spec;
  std::uint64_t begin = 0, end = 0;
};

struct Header {
  std::vector<HeaderEntry> entries;
  Metadata metadata;
};

/// The header of a file whose elements take `data_bytes` bytes: entries ordered by place, which fill those bytes
/// without gap or overlap, each of the size that its dtype and shape ask for. Throws FileError that begins with `what`.
Header parse_header(std::string_view json, std::uint64_t data_bytes, std::string_view what);

/// The header as JSON, filled with spaces to a multiple of 8 bytes. Throws ValueError for text that is not UTF-8.
std::string print_header(const Header& header);

/// Whether the format stores `a` before `b`: wider elements first, so that all are aligned, then by name.
bool stored_before(const Spec& a, std::string_view a_name, const Spec& b, std::string_view b_name) noexcept;

}  // namespace everyo::io
