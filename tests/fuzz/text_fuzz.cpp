#include "everyo/data/text.h"
#include "fuzz/fuzz.h"

// A text: what it is as characters, as bytes, and as windows of tokens.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace everyo;
  static const fuzz::MemoryFile file;
  file.write(fuzz::text_of(data, size));
  const std::string text = read_text(file.path());
  fuzz::expect(text == fuzz::text_of(data, size), "a text is the file's bytes");
  const Vocabulary bytes = Vocabulary::bytes();
  fuzz::expect(bytes.decode(bytes.encode(text)) == text, "the bytes come back");
  const auto vocabulary = fuzz::read_or_refuse("[Vocabulary]", [&] { return Vocabulary::characters(text); });
  fuzz::expect(vocabulary.has_value() == (!text.empty() && fuzz::is_utf8(text)), "UTF-8 is read, and nothing else");
  if (!vocabulary) return 0;

  const Tensor tokens = vocabulary->encode(text);
  fuzz::expect(vocabulary->decode(tokens) == text, "the characters come back");
  const std::vector<double> values = tokens.to_vector();
  for (const double token : values)
    fuzz::expect(token >= 0 && token < static_cast<double>(vocabulary->size()), "a token is in the vocabulary");
  if (values.size() < 3) return 0;
  const TextDataset windows(tokens, {.window = 2, .stride = 1});
  const std::int64_t last[] = {windows.size() - 1};
  const Batch batch = windows.rows(last);
  fuzz::expect(batch.targets.to_vector() == std::vector<double>(values.end() - 2, values.end()),
               "the last window ends with the text");
  return 0;
}
