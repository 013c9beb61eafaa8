#include "onnx/structure.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "everyo/error.h"
#include "onnx/hand_built.h"

namespace everyo {
namespace {

using namespace hand_built;
using testing::HasSubstr;
using testing::StartsWith;

TEST(OnnxStructure, AWholeModelPasses) {
  EXPECT_EQ(refusal([](Model&) {}), "");
}

TEST(OnnxStructure, TheModelItself) {
  EXPECT_EQ(refusal([](Model& m) { m.message.clear_ir_version(); }),
            "[test] 'm': it has no version of the format; it is cut short, or no ONNX file");
  EXPECT_EQ(refusal([](Model& m) { m.message.set_ir_version(2); }),
            "[test] 'm': its version of the format is 2; 3 and above are read");
  EXPECT_EQ(refusal([](Model& m) { m.message.clear_graph(); }),
            "[test] 'm': it has no graph; it is cut short, or no model");
  EXPECT_THAT(refusal([](Model& m) { m.message.clear_opset_import(); }),
              HasSubstr("does not say which operators' version it uses"));
  EXPECT_THAT(refusal([](Model& m) { m.message.mutable_opset_import(0)->set_version(0); }),
              HasSubstr("the version of the standard operators is 0; the first is 1"));
  EXPECT_THAT(refusal([](Model& m) {
                m.message.add_opset_import()->set_domain("ai.onnx");
                m.message.mutable_opset_import(1)->set_version(17);
              }),
              HasSubstr("the version of the standard operators is given twice"));
}

TEST(OnnxStructure, InputsAndOutputs) {
  EXPECT_EQ(refusal([](Model& m) { m.graph().clear_output(); }), "[test] 'm': graph 'graph': it has no outputs");
  EXPECT_EQ(refusal([](Model& m) { m.output("q", float32, {}); }),
            "[test] 'm': output 'q': no node makes it, and it is no input");
  EXPECT_EQ(refusal([](Model& m) { m.output("y", float32, {}); }),
            "[test] 'm': output 'y': there are two of this name");
  EXPECT_EQ(refusal([](Model& m) { m.input("x", float32, {}); }),
            "[test] 'm': input 'x': the name 'x' is defined before");
  EXPECT_EQ(refusal([](Model& m) { m.input("", float32, {}); }), "[test] 'm': input: it has no name");
  EXPECT_EQ(refusal([](Model& m) { m.graph().mutable_input(0)->clear_type(); }),
            "[test] 'm': input 'x': it has no type");
  EXPECT_EQ(refusal([](Model& m) { m.graph().mutable_output(0)->clear_type(); }),
            "[test] 'm': output 'y': it has no type");
  EXPECT_EQ(
      refusal([](Model& m) { m.graph().mutable_input(0)->mutable_type()->mutable_tensor_type()->clear_elem_type(); }),
      "[test] 'm': input 'x': it has no data type");
  EXPECT_EQ(refusal([](Model& m) { m.graph().mutable_input(0)->mutable_type()->clear_tensor_type(); }),
            "[test] 'm': input 'x': its type says nothing");
  EXPECT_THAT(refusal([](Model& m) { m.input("n", float32, {-1}); }),
              HasSubstr("input 'n': a size of -1; leave an open size"));
  EXPECT_EQ(refusal([](Model& m) { m.input("b", float32, {2}); }), "");  // its default is the initializer
  EXPECT_EQ(refusal([](Model& m) { m.output("x", float32, {}); }), "");
}

TEST(OnnxStructure, Nodes) {
  EXPECT_EQ(refusal([](Model& m) { m.graph().mutable_node(1)->set_input(0, "q"); }),
            "[test] 'm': node 1 'Relu_node' (Relu): it uses 'q', which nothing before it makes");
  EXPECT_EQ(refusal([](Model& m) { m.graph().mutable_node()->SwapElements(0, 1); }),
            "[test] 'm': node 0 'Relu_node' (Relu): it uses 'z', which nothing before it makes");
  EXPECT_EQ(refusal([](Model& m) { m.node("Neg", {"x"}, {"z"}); }),
            "[test] 'm': node 2 'Neg_node' (Neg): the name 'z' is defined before");
  EXPECT_EQ(refusal([](Model& m) { m.node("Neg", {"x"}, {"w"}); }),
            "[test] 'm': node 2 'Neg_node' (Neg): the name 'w' is defined before");
  EXPECT_EQ(refusal([](Model& m) { m.node("Relu", {"x"}, {"r"}); }),
            "[test] 'm': node 2 'Relu_node' (Relu): there are two of this name");
  EXPECT_EQ(refusal([](Model& m) { m.node("", {"x"}, {"r"}); }), "[test] 'm': node 2 '_node': it names no operator");
  EXPECT_EQ(refusal([](Model& m) { m.node("Neg", {"x"}, {"r"}).set_domain("com.example"); }),
            "[test] 'm': node 2 'Neg_node' (Neg): the model does not say which version of 'com.example' it uses");
  EXPECT_EQ(refusal([](Model& m) { m.node("Neg", {"x"}, {"r"}).set_domain("ai.onnx"); }), "");
  EXPECT_EQ(refusal([](Model& m) { m.node("Clip", {"x", "", "b"}, {"r", ""}); }), "");  // left out: optional
}

TEST(OnnxStructure, Attributes) {
  const auto with = [](AttributeProto::AttributeType type, const std::function<void(AttributeProto&)>& change) {
    return refusal([&](Model& m) { change(attribute(*m.graph().mutable_node(0), "a", type)); });
  };
  const std::string place = "[test] 'm': node 0 'Gemm_node' (Gemm), attribute 'a': ";
  EXPECT_EQ(with(AttributeProto::INT, [](AttributeProto& a) { a.set_i(3); }), "");
  EXPECT_EQ(with(AttributeProto::INT, [](AttributeProto&) {}), "");  // 0, to some writers
  EXPECT_EQ(with(AttributeProto::INTS, [](AttributeProto&) {}), "");
  EXPECT_EQ(with(AttributeProto::INT, [](AttributeProto& a) { a.set_f(3); }),
            place + "what it holds is not what its type says");
  EXPECT_EQ(with(AttributeProto::INTS,
                 [](AttributeProto& a) {
                   a.add_ints(3);
                   a.set_i(3);
                 }),
            place + "what it holds is not what its type says");
  EXPECT_EQ(with(AttributeProto::TENSOR, [](AttributeProto&) {}), place + "what it holds is not what its type says");
  EXPECT_EQ(with(AttributeProto::UNDEFINED, [](AttributeProto& a) { a.set_i(3); }),
            place + "its type is missing or unknown");
  EXPECT_THAT(with(AttributeProto::TENSOR, [](AttributeProto& a) { a.mutable_t()->set_data_type(1); }),
              StartsWith(place + "its sizes make 1 entries of float_data; it has 0"));
  EXPECT_THAT(with(AttributeProto::TENSORS, [](AttributeProto& a) { a.add_tensors(); }),
              StartsWith(place + "its data type is 0"));
  EXPECT_EQ(with(AttributeProto::INT, [](AttributeProto& a) { a.clear_name(); }),
            "[test] 'm': node 0 'Gemm_node' (Gemm), attribute: it has no name");
  EXPECT_EQ(with(AttributeProto::INT, [](AttributeProto& a) { a.set_ref_attr_name("b"); }),
            place + "it refers to a function's attribute, but stands in no function");
  EXPECT_EQ(refusal([](Model& m) {
              for (int i = 0; i < 2; ++i) attribute(*m.graph().mutable_node(0), "a", AttributeProto::INT).set_i(i);
            }),
            place + "there are two of this name");
}

// A graph inside a node sees what the graph around it has made so far.
TEST(OnnxStructure, GraphsInsideNodes) {
  const auto branch = [](Model& m, std::string_view uses, std::string_view gives) {
    NodeProto& node = m.node("If", {"x"}, {"r"});
    GraphProto& inner = *attribute(node, "then_branch", AttributeProto::GRAPH).mutable_g();
    NodeProto& negate = *inner.add_node();
    negate.set_op_type("Neg");
    negate.add_input(std::string(uses));
    negate.add_output("inside");
    inner.add_output()->set_name(std::string(gives));
    m.node("Abs", {"x"}, {"later"});
  };
  const std::string place = "[test] 'm': node 2 'If_node' (If), attribute 'then_branch', ";
  EXPECT_EQ(refusal([&](Model& m) { branch(m, "z", "inside"); }), "");
  EXPECT_EQ(refusal([&](Model& m) { branch(m, "later", "inside"); }),
            place + "node 0 (Neg): it uses 'later', which nothing before it makes");
  EXPECT_EQ(refusal([&](Model& m) { branch(m, "z", "outside"); }),
            place + "output 'outside': no node makes it, and it is no input");
  EXPECT_EQ(refusal([&](Model& m) {
              branch(m, "z", "inside");
              m.node("Exp", {"inside"}, {"e"});
            }),
            "[test] 'm': node 4 'Exp_node' (Exp): it uses 'inside', which nothing before it makes");
}

onnx_file::FunctionProto& function(Model& m, const std::string& name, const std::vector<std::string>& calls) {
  auto& made = *m.message.add_functions();
  made.set_name(name);
  made.set_domain("local");
  for (const char* domain : {"", "local"}) {
    made.add_opset_import()->set_domain(domain);
    made.mutable_opset_import(made.opset_import_size() - 1)->set_version(17);
  }
  made.add_input("in");
  std::string last = "in";
  for (const std::string& callee : calls) {
    NodeProto& node = *made.add_node();
    node.set_op_type(callee);
    if (callee != "Neg") node.set_domain("local");
    node.add_input(last);
    node.add_output(last += "'");
  }
  made.add_output(last);
  return made;
}

void call(Model& m, const std::string& name) {
  m.message.add_opset_import()->set_domain("local");
  m.message.mutable_opset_import(m.message.opset_import_size() - 1)->set_version(1);
  m.node(name, {"x"}, {"called"}).set_domain("local");
}

TEST(OnnxStructure, Functions) {
  EXPECT_EQ(refusal([](Model& m) {
              attribute(*function(m, "f", {"Neg"}).mutable_node(0), "a", AttributeProto::INT).set_ref_attr_name("a");
              call(m, "f");
            }),
            "");
  EXPECT_EQ(refusal([](Model& m) { function(m, "f", {"Neg"}).mutable_node(0)->set_input(0, "x"); }),
            "[test] 'm': function 'f', node 0 (Neg): it uses 'x', which nothing before it makes");
  EXPECT_EQ(refusal([](Model& m) { function(m, "f", {"Neg"}).set_output(0, "q"); }),
            "[test] 'm': function 'f', output 'q': no node makes it, and it is no input");
  EXPECT_THAT(refusal([](Model& m) { function(m, "f", {"Neg"}).clear_opset_import(); }),
              HasSubstr("function 'f': it does not say"));
  EXPECT_EQ(refusal([](Model& m) { function(m, "", {"Neg"}); }), "[test] 'm': function: it has no name");
  EXPECT_EQ(
      refusal([](Model& m) {
        attribute(*function(m, "f", {"Neg"}).mutable_node(0), "a", AttributeProto::INT).set_ref_attr_name("a");
        m.message.mutable_functions(0)->mutable_node(0)->mutable_attribute(0)->set_i(1);
      }),
      "[test] 'm': function 'f', node 0 (Neg), attribute 'a': it has a value and refers to another attribute, too");
}

TEST(OnnxStructure, FunctionsThatNeverEnd) {
  EXPECT_EQ(refusal([](Model& m) {
              function(m, "f", {"Neg", "g"});
              function(m, "g", {"f"});
              call(m, "f");
            }),
            "[test] 'm': function 'f': it calls itself");
  // Each of 30 calls the next twice: 2^30 nodes from a small file.
  EXPECT_THAT(refusal([](Model& m) {
                for (int i = 0; i < 30; ++i)
                  function(m, std::to_string(i), {std::to_string(i + 1), std::to_string(i + 1)});
                function(m, "30", {"Neg"});
                call(m, "0");
              }),
              HasSubstr("more than 10000000 nodes"));
  EXPECT_THAT(refusal([](Model& m) {
                for (int i = 0; i < 200; ++i) function(m, std::to_string(i), {std::to_string(i + 1)});
                function(m, "200", {"Neg"});
                call(m, "0");
              }),
              HasSubstr("calls of functions nest more than 100 deep"));
}

TEST(OnnxStructure, APlaceIsNotMoreThanALine) {
  const std::string message = refusal([](Model& m) {
    GraphProto* graph = &m.graph();
    for (int i = 0; i < 20; ++i) {
      NodeProto& node = *graph->add_node();
      node.set_op_type("If");
      node.set_name(std::string(1000, 'n') + std::string("\n\xff"));
      graph = attribute(node, "then_branch", AttributeProto::GRAPH).mutable_g();
    }
    graph->add_output()->set_name("q");
  });
  EXPECT_THAT(message, StartsWith("[test] 'm': …, "));
  EXPECT_LT(message.size(), 500U);
}

}  // namespace
}  // namespace everyo
