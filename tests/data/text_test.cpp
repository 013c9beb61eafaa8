#include "everyo/data/text.h"

#include <gmock/gmock.h>

#include <fstream>

#include "data/numbered.h"
#include "support/temporary_folder.h"

namespace everyo {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

template <class F>
std::string message_of(F&& f) {
  try {
    f();
  } catch (const ValueError& error) {
    return error.what();
  }
  return "no error";
}

TEST(Vocabulary, OfBytesHoldsAnyText) {
  const Vocabulary bytes = Vocabulary::bytes();
  EXPECT_EQ(bytes.size(), 256);
  EXPECT_TRUE(bytes.of_bytes());
  const std::string text("a\0\xff\n", 4);
  const Tensor tokens = bytes.encode(text);
  EXPECT_EQ(tokens.spec(), (Spec{uint8, {4}}));
  EXPECT_THAT(tokens.to_vector(), ElementsAre(97, 0, 255, 10));
  EXPECT_EQ(bytes.decode(tokens), text);
  EXPECT_EQ(bytes.encode("").size(), 0);
}

TEST(Vocabulary, OfCharactersCountsCodePoints) {
  const std::string text = "z\u00fcga\u20acz\U0001F600\n";  // of one to four bytes
  const Vocabulary known = Vocabulary::characters(text);
  EXPECT_THAT(known.known(), ElementsAre(U'\n', U'a', U'g', U'z', U'\u00fc', U'\u20ac', U'\U0001F600'));
  const Tensor tokens = known.encode(text);
  EXPECT_EQ(tokens.dtype(), uint8);
  EXPECT_THAT(tokens.to_vector(), ElementsAre(3, 4, 2, 1, 5, 3, 6, 0));
  EXPECT_EQ(known.decode(tokens), text);
  EXPECT_EQ(Vocabulary(known.known()).encode(text).to_vector(), tokens.to_vector());
  EXPECT_EQ(known.decode(Tensor::from<std::int64_t>({1, 6})), "a\U0001F600");
}

TEST(Vocabulary, OfManyCharactersHasWideTokens) {
  std::vector<char32_t> many;
  for (char32_t c = 0x4e00; c < 0x4e00 + 300; ++c) many.push_back(c);
  const Vocabulary known(many);
  const Tensor last = Tensor::from<std::int32_t>({299});
  EXPECT_EQ(known.encode(known.decode(last)).spec(), last.spec());
  EXPECT_EQ(known.encode(known.decode(last)).item(), 299);
}

TEST(Vocabulary, RefusesWhatIsNoUtf8AndSaysWhere) {
  for (const std::string& bad :
       {std::string("\x80"), std::string("\xc3"), std::string("\xc0\xaf"), std::string("\xe0\x80\xaf"),
        std::string("\xed\xa0\x80"), std::string("\xf4\x90\x80\x80"), std::string("\xf5\x80\x80\x80"),
        std::string("\xe2\x82"), std::string("\xe2\x28\xa1"), std::string("\xff"), std::string("\xf0\x82\x82\xac")})
    EXPECT_THAT(message_of([&] { Vocabulary::characters("one\ntwo" + bad + "x"); }),
                HasSubstr("byte 7 in line 2 begins no character of UTF-8"))
        << testing::PrintToString(bad);
  const Vocabulary known = Vocabulary::characters("ab");
  EXPECT_THAT(message_of([&] { static_cast<void>(known.encode("a\n\u00fc")); }), HasSubstr("U+000A, byte 1 in line 1"));
  EXPECT_THAT(message_of([&] { static_cast<void>(known.decode(Tensor::from<std::int64_t>({2}))); }),
              HasSubstr("[Vocabulary] token 2 is out of range for a vocabulary of 2; tokens are 0..1; decode with"));
  EXPECT_THAT(message_of([&] { static_cast<void>(known.decode(Tensor::from<std::int64_t>({-1}))); }),
              HasSubstr("token -1"));
  EXPECT_THROW(static_cast<void>(known.decode(Tensor::zeros({1}))), DTypeError);
  EXPECT_THAT(message_of([] { Vocabulary::characters(""); }), HasSubstr("no characters"));
  EXPECT_THAT(message_of([] { Vocabulary({U'b', U'a'}); }), HasSubstr("character 1 is U+0061"));
  EXPECT_THAT(message_of([] { Vocabulary({char32_t{0xD800}}); }), HasSubstr("U+D800"));
}

TEST(TextDataset, GivesWindowsAndTheTokensThatFollow) {
  const Tensor tokens = Vocabulary::bytes().encode("abcdefghij");
  const TextDataset apart(tokens, {.window = 3});
  EXPECT_EQ(apart.size(), 3);
  const Batch rows = apart.rows(std::vector<std::int64_t>{2, 0});
  EXPECT_EQ(rows.features.spec(), (Spec{int64, {2, 3}}));
  EXPECT_THAT(rows.features.to_vector(), ElementsAre('g', 'h', 'i', 'a', 'b', 'c'));
  EXPECT_THAT(rows.targets.to_vector(), ElementsAre('h', 'i', 'j', 'b', 'c', 'd'));
  const TextDataset dense(tokens, {.window = 3, .stride = 1});
  EXPECT_EQ(dense.size(), 7);
  EXPECT_THAT(dense.rows(std::vector<std::int64_t>{6}).targets.to_vector(), ElementsAre('h', 'i', 'j'));
  EXPECT_EQ(TextDataset(tokens, {.window = 9}).size(), 1);
  EXPECT_THROW(static_cast<void>(dense.rows(std::vector<std::int64_t>{7})), ShapeError);
  EXPECT_EQ(dense.rows({}).targets.shape(), (Shape{0, 3}));

  Loader loader(apart, {.batch = 2, .shuffle = true, .workers = 2});
  std::int64_t seen = 0;
  for (const auto& [x, y] : loader) seen += x.shape()[0];
  EXPECT_EQ(seen, 3);
}

TEST(TextDataset, RefusesWhatCannotWork) {
  const Tensor tokens = Vocabulary::bytes().encode("abc");
  EXPECT_THAT(message_of([&] { TextDataset(tokens, {.window = 3}); }),
              HasSubstr("3 tokens is too short for a window of 3"));
  EXPECT_THAT(message_of([&] { TextDataset(tokens, {.window = 0}); }), HasSubstr("window 0"));
  EXPECT_THAT(message_of([&] { TextDataset(tokens, {.window = 1, .stride = -1}); }), HasSubstr("stride -1"));
  EXPECT_THROW(TextDataset(Tensor::zeros({3}), {.window = 1}), DTypeError);
  EXPECT_THROW(TextDataset(Tensor::zeros({3, 1}, int64), {.window = 1}), ShapeError);
}

TEST(ReadText, GivesAFilesBytes) {
  const TemporaryFolder folder;
  const std::string path = (folder.path() / "text").string();
  std::ofstream(path) << "line\r\n\xff";
  EXPECT_EQ(read_text(path), "line\r\n\xff");
  EXPECT_THROW(static_cast<void>(read_text(path + "x")), FileError);
}

}  // namespace
}  // namespace everyo
