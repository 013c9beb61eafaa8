#include <gtest/gtest.h>

#include "base/digest.h"
#include "everyo/error.h"
#include "everyo/io.h"

namespace everyo {
namespace {

using namespace std::string_literals;

TEST(Digest, IsTheHashOfNamesTypesShapesAndBytes) {
  const std::vector<NamedTensor> tensors{{"w", Tensor::from<std::uint8_t>({1, 2}, {2, 1})},
                                         {"b", Tensor::from<std::int32_t>({-2})}};
  const std::string text = "w\0uint8\0(2, 1)\0\1\2b\0int32\0(1,)\0\xfe\xff\xff\xff"s;
  EXPECT_EQ(digest(tensors), base::sha256(std::as_bytes(std::span(text))));
}

TEST(Digest, EveryPartCounts) {
  const Tensor ones = Tensor::ones({2, 3});
  const std::vector<NamedTensor> base{{"a", ones}, {"b", ones}};
  Tensor changed = ones.copy();
  changed.data<float>()[5] = 1.0000001f;
  const std::vector<std::vector<NamedTensor>> others{{{"a", ones}},
                                                     {{"b", ones}, {"a", ones}},
                                                     {{"a", ones}, {"c", ones}},
                                                     {{"a", ones}, {"b", Tensor::ones({3, 2})}},
                                                     {{"a", ones}, {"b", Tensor::full({2, 3}, 0x3f800000, int32)}},
                                                     {{"a", ones}, {"b", changed}}};
  for (const auto& other : others) EXPECT_NE(digest(other), digest(base));
  EXPECT_EQ(digest(std::vector<NamedTensor>{{"a", ones.copy()}, {"b", ones.copy()}}), digest(base));
  EXPECT_EQ(digest({}), base::sha256({}));
}

TEST(Digest, RefusesWhatHasNone) {
  EXPECT_THROW(digest(std::vector<NamedTensor>{{"a\0b"s, Tensor::ones({1})}}), ValueError);
  EXPECT_THROW(digest(std::vector<NamedTensor>{{"a", Tensor()}}), StateError);
  EXPECT_THROW(digest(std::vector<NamedTensor>{{"a", Tensor::meta({float32, {1}})}}), StateError);
}

}  // namespace
}  // namespace everyo
