#include "base/json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace everyo {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

std::string refusal(std::string_view text) {
  try {
    (void)base::parse_json(text, "[op] 'file'");
  } catch (const FileError& error) {
    return error.what();
  }
  return "no error";
}

std::string nested(std::size_t levels) { return std::string(levels, '[') + std::string(levels, ']'); }

TEST(Json, IsReadAsItStands) {
  EXPECT_EQ(base::parse_json(R"({"a":[1,-2,0.5,null,true,"\u00fc"],"b":{"a":{}}})", "").dump(),
            "{\"a\":[1,-2,0.5,null,true,\"\u00fc\"],\"b\":{\"a\":{}}}");
  EXPECT_EQ(base::parse_json(R"([{"a":1},{"a":2}])", "").size(), 2u);  // a name of two objects is not there twice
}

TEST(Json, WhatIsNoneIsRefusedInWordsThatAreText) {
  for (const std::string_view text : {"", "{", "{}x", "[1,]", "{\"a\"}", "nan", "\xff", "\"\xc3\"", "{} // why"})
    EXPECT_THAT(refusal(text), StartsWith("[op] 'file': it is no valid JSON: ")) << text;
  EXPECT_EQ(nlohmann::json(refusal("\"\xc3(\"")).dump().find("\\u00"), std::string::npos);
  EXPECT_THAT(refusal(std::string_view("{}\0x", 4)), HasSubstr("zero byte"));
  EXPECT_LT(refusal("\"" + std::string(100'000, 'a')).size(), 300u);
}

TEST(Json, DepthIsBounded) {
  EXPECT_EQ(refusal(nested(100)), "no error");
  EXPECT_THAT(refusal(nested(101)), HasSubstr("more than 100 deep"));
  EXPECT_THAT(refusal(std::string(10'000'000, '[')), HasSubstr("more than 100 deep"));
  EXPECT_THAT(refusal([] {
                std::string text;
                for (int i = 0; i < 100'000; ++i) text += "{\"a\":";
                return text;
              }()),
              HasSubstr("more than 100 deep"));
}

TEST(Json, ANameTwiceIsRefused) {
  EXPECT_THAT(refusal(R"({"b":{"a":1,"c":2,"a":3}})"), HasSubstr("the name 'a' twice"));
  EXPECT_EQ(refusal(R"({"a":{"a":1}})"), "no error");
}

TEST(Json, PrintableTextIsShortUtf8WithoutControlCharacters) {
  EXPECT_EQ(base::printable("plain \u00fc"), "plain \u00fc");
  EXPECT_EQ(base::printable("a\n\x1b[31m\xff"), "a\\n\\u001b[31m\ufffd");
  EXPECT_EQ(base::printable("abcdef", 3), "abc...");
  EXPECT_EQ(base::printable("ab\u00fc", 3), "ab\ufffd...");  // cut inside a character
  EXPECT_EQ(base::printable(""), "");
}

}  // namespace
}  // namespace everyo
