#include "onnx/operator_structure.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "onnx/hand_built.h"

// Each kind ended the process, or a load that never returned, before it was refused.
namespace everyo {
namespace {

using namespace hand_built;
using testing::HasSubstr;

TEST(OnnxOperatorStructure, AnEinsumsEquationIsOfTerms) {
  const auto with = [](const std::string& equation) {
    return refusal([&](Model& m) {
      attribute(m.node("Einsum", {"x", "w"}, {"e"}), "equation", AttributeProto::STRING).set_s(equation);
    });
  };
  for (const char* fine :
       {"bij,bjk->bik", " bij , bjk -> bik", "...ij,...jk->...ik", "ij,jk", "ii->i", "Bi,ij->", "b...j,j->b..."}) {
    EXPECT_EQ(with(fine), "") << fine;
  }
  for (const char* wrong :
       {"bij,(bjk->bik", "bij,b.jk->bik", "..ij,jk->ik", "....ij,bjk->bik", "bi...j...,jk->bik", "bij,bjk-bik",
        "bij,bjk>bik", "bij,bjk->bik->", "bij,bjk->b(ik", "b1,1k->bk", "\xff,b->b"}) {
    EXPECT_THAT(with(wrong), HasSubstr("node 2 'Einsum_node' (Einsum): its equation is '")) << wrong;
  }
}

TEST(OnnxOperatorStructure, ASplitHasAsManyOutputsAsItSays) {
  const auto with = [](std::int64_t outputs) {
    return refusal([&](Model& m) {
      m.message.mutable_opset_import(0)->set_version(18);
      attribute(m.node("Split", {"x"}, {"p", "q"}), "num_outputs", AttributeProto::INT).set_i(outputs);
    });
  };
  EXPECT_EQ(with(2), "");
  for (const std::int64_t wrong : {-1, 0, 1, 3}) {
    EXPECT_EQ(with(wrong), "[test] 'm': node 2 'Split_node' (Split): its num_outputs is " + std::to_string(wrong) +
                               "; it has 2 outputs");
  }
}

}  // namespace
}  // namespace everyo
