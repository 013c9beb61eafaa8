// Meta models: shapes without data, values later.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "everyo/memory.h"
#include "nn/dense.h"

namespace everyo {
namespace {

using testing::HasSubstr;
using namespace testing_nn;  // NOLINT: the tests' own modules

Net meta_net() {
  const MetaScope meta;
  return Net();
}

TEST(Materialise, AMetaModelHasShapesAndNoBytes) {
  const auto before = memory::report().total.now;
  Net net = meta_net();
  EXPECT_EQ(memory::report().total.now, before);
  for (const auto& [name, value] : net.state_dict()) EXPECT_TRUE(value.is_meta()) << name;
  EXPECT_EQ(net.num_parameters(), 16 + 3 * 64);
  const Tensor y = net(Tensor::meta({float32, {64, 4}}));
  EXPECT_TRUE(y.is_meta());
  EXPECT_EQ(y.shape(), (Shape{64, 4}));
}

TEST(Materialise, FillsByNameAndSeed) {
  Net a = meta_net(), b = a.clone(), c = a.clone();
  materialise(a, 7);
  materialise(b, 7);
  materialise(c, 8);
  EXPECT_EQ(a.state_dict().back().second.to_vector(), std::vector<double>(4, 0));
  const Tensor x = ramp({3, 4});
  EXPECT_EQ(bits(a(x)), bits(b(x)));
  EXPECT_NE(bits(a(x)), bits(c(x)));
  EXPECT_NE(bits(a.blocks[0].up.weight), bits(a.blocks[1].up.weight));
  EXPECT_EQ(a.stem.weight.tensor().body(), a.head.weight.tensor().body());
  EXPECT_EQ(a.stem.weight.tensor().body()->storage->category(), MemoryCategory::parameter);
}

TEST(Materialise, APartOfTheModelGetsTheWholesValues) {
  Net whole = meta_net(), parts = meta_net();
  (void)parts.parameters();
  materialise(whole, 7);
  materialise(parts.blocks[1], 7);
  EXPECT_EQ(bits(parts.blocks[1].up.weight), bits(whole.blocks[1].up.weight));
  EXPECT_TRUE(parts.stem.weight.tensor().is_meta());
}

TEST(Materialise, LeavesWhatHasValuesAndTrainsAfterwards) {
  Net net = meta_net();
  net.blocks[2] = Block(4, 5);
  const std::string given = bits(net.blocks[2].up.weight);
  materialise(net, 7);
  EXPECT_EQ(bits(net.blocks[2].up.weight), given);
  total(net(ramp({2, 4}))).backward();
  for (const Tensor& slot : net.parameters()) EXPECT_TRUE(slot.grad().defined()) << slot.body()->leaf->name;
}

TEST(Materialise, LoadingGivesMemoryToo) {
  Net net, meta = meta_net();
  (void)meta.load_state_dict(net.state_dict());
  net.eval();
  meta.eval();
  EXPECT_EQ(bits(meta(ramp({2, 4}))), bits(net(ramp({2, 4}))));
}

struct Given : Module<Given> {
  void visit(Visitor& v) { v("scale", scale); }
  [[nodiscard]] Tensor forward(const Tensor& x) const { return product(x, scale); }
  Parameter scale = Parameter::of(Tensor::meta({float32, {2, 2}}));
};
TEST(Materialise, WithoutAnInitializerItSaysHowToGoOn) {
  Given net;
  EXPECT_THAT(error_of([&] { materialise(net, 1); }), HasSubstr("'scale' was made from values"));
}

}  // namespace
}  // namespace everyo
