#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "everyo/data/dataset.h"

// Text as tokens, byte by byte or character by character. Letters: L tokens of a text, T of a window, V of a
// vocabulary.
namespace everyo::inline v1 {

/// The bytes of a file, up to 4 GiB. Throws FileError.
EVERYO_API std::string read_text(const std::string& path);

/// Which tokens there are: the 256 bytes, or the characters (Unicode code points) of a text.
class EVERYO_API Vocabulary {
 public:
  /// V = 256; any text has these.
  static Vocabulary bytes() { return Vocabulary(); }
  /// The characters of a UTF-8 text, a number each in the order of their code points. Throws ValueError that names byte
  /// and line of what is no UTF-8, and for an empty text.
  static Vocabulary characters(std::string_view text);
  /// That of characters known before, ascending. Throws ValueError for others, and for what is no character.
  explicit Vocabulary(std::vector<char32_t> characters);

  [[nodiscard]] std::int64_t size() const noexcept;
  [[nodiscard]] bool of_bytes() const noexcept { return characters_.empty(); }
  /// Ascending; empty for bytes.
  [[nodiscard]] const std::vector<char32_t>& known() const noexcept { return characters_; }

  /// Tokens [L], uint8 when V <= 256 and int32 otherwise. Throws ValueError for a character that is not known and, with
  /// byte and line, for what is no UTF-8.
  [[nodiscard]] Tensor encode(std::string_view text) const;
  /// The text of tokens of any shape, an integer dtype each. Throws DTypeError, and ValueError for a token outside
  /// 0..V-1.
  [[nodiscard]] std::string decode(const Tensor& tokens) const;

 private:
  Vocabulary() = default;
  std::vector<char32_t> characters_;
};

struct TextDatasetOptions {
  std::int64_t window = 128;  ///< T
  std::int64_t stride = 0;    ///< tokens from the start of one window to that of the next; 0: T, no overlap
};

/// Windows of a text: features [T] int64 are the tokens from i * stride on, targets [T] int64 those one further on.
class EVERYO_API TextDataset : public Dataset {
 public:
  /// Shares `tokens` [L] of an integer dtype. Throws ShapeError for another rank, DTypeError, and ValueError for a
  /// window below 1, a stride below 0, or a text of less than T + 1 tokens.
  explicit TextDataset(Tensor tokens, const TextDatasetOptions& options = {});
  ~TextDataset() override;

  [[nodiscard]] std::int64_t size() const noexcept override;
  /// [B, T] each. Throws ShapeError for an index outside 0..size()-1.
  [[nodiscard]] Batch rows(std::span<const std::int64_t> indices) const override;
  [[nodiscard]] const TextDatasetOptions& options() const noexcept { return options_; }

 private:
  Tensor tokens_;
  TextDatasetOptions options_;
};

}  // namespace everyo::inline v1
