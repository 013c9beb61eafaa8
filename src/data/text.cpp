#include "everyo/data/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "base/files.h"
#include "data/gather.h"

namespace everyo::inline v1 {
namespace {

constexpr std::uint64_t largest_file = std::uint64_t{1} << 32;
constexpr std::int64_t byte_count = 256;
constexpr char32_t last_character = 0x10FFFF, first_surrogate = 0xD800, last_surrogate = 0xDFFF;

bool is_character(char32_t c) { return c <= last_character && !(c >= first_surrogate && c <= last_surrogate); }

/// The character at the front of a UTF-8 text, and its bytes; nothing for what is none (RFC 3629: no overlong form, no
/// surrogate, nothing cut off).
struct Character {
  char32_t value;
  std::size_t bytes;
};
std::optional<Character> front(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(0);
  if (lead < 0x80) return Character{lead, 1};
  const std::size_t bytes = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  if (lead < 0xC2 || lead > 0xF4 || text.size() < bytes) return std::nullopt;
  char32_t value = lead & (0x7Fu >> bytes);
  for (std::size_t i = 1; i < bytes; ++i) {
    if ((byte(i) & 0xC0u) != 0x80u) return std::nullopt;
    value = value << 6 | (byte(i) & 0x3Fu);
  }
  constexpr char32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
  if (value < least[bytes] || !is_character(value)) return std::nullopt;
  return Character{value, bytes};
}

void append(std::string& text, char32_t c) {
  const auto put = [&](char32_t bits) { text.push_back(static_cast<char>(static_cast<unsigned char>(bits))); };
  if (c < 0x80) return put(c);
  if (c < 0x800) {
    put(0xC0 | c >> 6);
  } else {
    if (c < 0x10000) {
      put(0xE0 | c >> 12);
    } else {
      put(0xF0 | c >> 18);
      put(0x80 | (c >> 12 & 0x3F));
    }
    put(0x80 | (c >> 6 & 0x3F));
  }
  put(0x80 | (c & 0x3F));
}

std::string place(std::string_view text, std::size_t at) {
  return fmt::format("byte {} in line {}", at,
                     1 + std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(at), '\n'));
}

/// f(character, byte it begins at) for each.
template <class F>
void for_each_character(std::string_view text, F&& f) {
  for (std::size_t at = 0; at < text.size();) {
    const std::optional<Character> next = front(text.substr(at));
    if (!next)
      throw ValueError(fmt::format("[Vocabulary] {} begins no character of UTF-8; convert the text, or take its bytes",
                                   place(text, at)));
    f(next->value, at);
    at += next->bytes;
  }
}

Tensor input_tensor(std::int64_t count, DType dtype) {
  const Scoped<&Context::category> category(MemoryCategory::input);
  const Scoped<&Context::meta> with_values(false);
  return Tensor::empty({count}, dtype);
}

/// f.operator()<T>() for the integer dtypes that tokens have.
template <class F>
void visit_tokens(std::string_view op, DType dtype, F&& f) {
  switch (dtype) {
    case DType::uint8: return f.template operator()<std::uint8_t>();
    case DType::int32: return f.template operator()<std::int32_t>();
    case DType::int64: return f.template operator()<std::int64_t>();
    default: throw DTypeError(fmt::format("[{}] tokens are {}; need int64, int32 or uint8", op, name_of(dtype)));
  }
}

}  // namespace

std::string read_text(const std::string& path) { return base::read_file(path, largest_file); }

Vocabulary::Vocabulary(std::vector<char32_t> characters) : characters_(std::move(characters)) {
  if (characters_.empty()) throw ValueError("[Vocabulary] there are no characters; give at least one");
  for (std::size_t i = 0; i < characters_.size(); ++i)
    if (!is_character(characters_[i]) || (i > 0 && characters_[i] <= characters_[i - 1]))
      throw ValueError(fmt::format("[Vocabulary] character {} is U+{:04X}; need code points, ascending, each once", i,
                                   static_cast<std::uint32_t>(characters_[i])));
}

Vocabulary Vocabulary::characters(std::string_view text) {
  std::vector<bool> seen;  // to the largest character, since most texts have small ones alone
  for_each_character(text, [&](char32_t c, std::size_t) {
    if (c >= seen.size()) seen.resize(c + 1);
    seen[c] = true;
  });
  std::vector<char32_t> known;
  for (char32_t c = 0; c < seen.size(); ++c)
    if (seen[c]) known.push_back(c);
  return Vocabulary(std::move(known));
}

std::int64_t Vocabulary::size() const noexcept {
  return of_bytes() ? byte_count : static_cast<std::int64_t>(characters_.size());
}

Tensor Vocabulary::encode(std::string_view text) const {
  if (of_bytes()) {
    Tensor tokens = input_tensor(static_cast<std::int64_t>(text.size()), uint8);
    std::ranges::transform(text, tokens.data<std::uint8_t>().begin(),
                           [](char c) { return static_cast<std::uint8_t>(c); });
    return tokens;
  }
  std::int64_t count = 0;
  for_each_character(text, [&](char32_t, std::size_t) { ++count; });
  Tensor tokens = input_tensor(count, size() <= byte_count ? uint8 : int32);
  visit_tokens("Vocabulary", tokens.dtype(), [&]<class T>() {
    auto next = tokens.data<T>().begin();
    for_each_character(text, [&](char32_t c, std::size_t at) {
      const auto found = std::ranges::lower_bound(characters_, c);
      if (found == characters_.end() || *found != c)
        throw ValueError(fmt::format("[Vocabulary] U+{:04X}, {}, is not among the {} characters that are known",
                                     static_cast<std::uint32_t>(c), place(text, at), characters_.size()));
      *next++ = static_cast<T>(found - characters_.begin());
    });
  });
  return tokens;
}

std::string Vocabulary::decode(const Tensor& tokens) const {
  std::string text;
  visit_tokens("Vocabulary", tokens.dtype(), [&]<class T>() {
    for (const T value : tokens.data<T>()) {
      const auto token = static_cast<std::int64_t>(value);
      if (token < 0 || token >= size())
        throw ValueError(
            fmt::format("[Vocabulary] token {} is out of range for a vocabulary of {}; tokens are 0..{}; decode with "
                        "the vocabulary that encoded",
                        token, size(), size() - 1));
      if (of_bytes())
        text.push_back(static_cast<char>(static_cast<unsigned char>(token)));
      else
        append(text, characters_[static_cast<std::size_t>(token)]);
    }
  });
  return text;
}

TextDataset::TextDataset(Tensor tokens, const TextDatasetOptions& options)
    : tokens_(std::move(tokens)), options_(options) {
  if (tokens_.rank() != 1)
    throw ShapeError(fmt::format("[TextDataset] tokens are {}; need one dimension", to_string(tokens_.shape())));
  visit_tokens("TextDataset", tokens_.dtype(), []<class T>() {});
  if (options.window < 1) throw ValueError(fmt::format("[TextDataset] window {} must be at least 1", options.window));
  if (options.stride < 0) throw ValueError(fmt::format("[TextDataset] stride {} must be at least 0", options.stride));
  if (tokens_.size() - 1 < options.window)
    throw ValueError(
        fmt::format("[TextDataset] a text of {} tokens is too short for a window of {} and the token after it",
                    tokens_.size(), options.window));
  if (options_.stride == 0) options_.stride = options_.window;
}
TextDataset::~TextDataset() = default;

std::int64_t TextDataset::size() const noexcept { return (tokens_.size() - 1 - options_.window) / options_.stride + 1; }

Batch TextDataset::rows(std::span<const std::int64_t> indices) const {
  data::check_indices("TextDataset", indices, size());
  const Scoped<&Context::category> category(MemoryCategory::input);
  const Scoped<&Context::meta> with_values(false);
  const Shape shape{static_cast<std::int64_t>(indices.size()), options_.window};
  Batch batch{Tensor::empty(shape, int64), Tensor::empty(shape, int64)};
  auto x = batch.features.data<std::int64_t>().begin(), y = batch.targets.data<std::int64_t>().begin();
  visit_tokens("TextDataset", tokens_.dtype(), [&]<class T>() {
    const auto tokens = tokens_.data<T>();
    for (const std::int64_t index : indices) {
      const auto window = tokens.subspan(static_cast<std::size_t>(index * options_.stride),
                                         static_cast<std::size_t>(options_.window) + 1);
      x = std::copy(window.begin(), window.end() - 1, x);
      y = std::copy(window.begin() + 1, window.end(), y);
    }
  });
  return batch;
}

}  // namespace everyo::inline v1
