#include "onnx/structure.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "everyo/error.h"
#include "onnx/hand_built.h"

namespace everyo {
namespace {

using namespace hand_built;
using onnx_export::check_structure;
using testing::HasSubstr;
using testing::StartsWith;

using Change = std::function<void(Model&)>;

/// What check_structure says of the small net after a change; "" for one it takes.
std::string refusal(const Change& change) {
  Model model = small_net();
  change(model);
  try {
    (void)check_structure(model.message, "[test] 'm'");
  } catch (const FileError& error) {
    return error.what();
  }
  return {};
}

/// The same for a tensor among its initializers.
std::string tensor_refusal(const std::function<void(TensorProto&)>& change) {
  return refusal([&](Model& m) { change(*m.graph().mutable_initializer(1)); });
}

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

TEST(OnnxStructure, ValuesOfTensors) {
  const std::string place = "[test] 'm': initializer 'b': ";
  EXPECT_EQ(tensor_refusal([](TensorProto& t) { t.set_raw_data("1234567"); }),
            place + "its sizes make 8 bytes of raw_data; it has 7");
  EXPECT_EQ(tensor_refusal([](TensorProto& t) { t.clear_raw_data(); }),
            place + "its sizes make 2 entries of float_data; it has 0");
  EXPECT_EQ(tensor_refusal([](TensorProto& t) { t.set_dims(0, -2); }), place + "a size of -2; sizes are not negative");
  EXPECT_EQ(tensor_refusal([](TensorProto& t) {
              t.set_dims(0, std::int64_t{1} << 40);
              t.add_dims(std::int64_t{1} << 40);
            }),
            place + "more than 576460752303423488 elements");
  EXPECT_EQ(tensor_refusal([](TensorProto& t) {
              t.set_dims(0, 0);
              t.set_raw_data("");
              t.add_dims(std::int64_t{1} << 60);
            }),
            place + "more than 576460752303423488 elements");
  EXPECT_EQ(tensor_refusal([](TensorProto& t) { t.set_data_type(0); }),
            place + "its data type is 0; the format has 1 to 26");
  EXPECT_EQ(tensor_refusal([](TensorProto& t) { t.set_data_type(27); }),
            place + "its data type is 27; the format has 1 to 26");
  EXPECT_EQ(tensor_refusal([](TensorProto& t) { t.set_data_type(-1); }),
            place + "its data type is -1; the format has 1 to 26");
  EXPECT_EQ(tensor_refusal([](TensorProto& t) { t.add_float_data(1); }),
            place + "its float_data is not empty; a tensor of type 1 has its values in raw_data alone");
  EXPECT_EQ(tensor_refusal([](TensorProto& t) {
              t.clear_raw_data();
              t.add_int32_data(1);
            }),
            place + "its int32_data is not empty; a tensor of type 1 has its values in float_data");
  EXPECT_EQ(tensor_refusal([](TensorProto& t) { t.mutable_segment()->set_begin(1); }),
            place + "it is a segment of a tensor; no runtime reads those");
  EXPECT_EQ(tensor_refusal([](TensorProto& t) { t.clear_name(); }), "[test] 'm': initializer: it has no name");
  EXPECT_EQ(tensor_refusal([](TensorProto& t) { t.set_name("w"); }),
            "[test] 'm': initializer 'w': there are two of this name");
  EXPECT_EQ(tensor_refusal([](TensorProto& t) { t.set_data_type(TensorProto::STRING); }),
            place + "its raw_data is not empty; a tensor of type 8 has its values in string_data");
}

TEST(OnnxStructure, EachTypeHasItsField) {
  const auto with = [](std::int32_t type, std::int64_t size, const std::function<void(TensorProto&)>& fill_in) {
    return tensor_refusal([&](TensorProto& t) {
      t.clear_raw_data();
      t.set_data_type(type);
      t.set_dims(0, size);
      fill_in(t);
    });
  };
  for (const int type : {2, 3, 4, 5, 6, 9, 10, 16, 17, 18, 19, 20, 24}) {
    EXPECT_EQ(with(type, 1, [](TensorProto& t) { t.add_int32_data(1); }), "") << type;
  }
  for (const int type : {21, 22, 23}) {  // two in a byte
    EXPECT_EQ(with(type, 3, [](TensorProto& t) { t.mutable_int32_data()->Resize(2, 0); }), "") << type;
    EXPECT_EQ(with(type, 3, [](TensorProto& t) { t.set_raw_data("12"); }), "") << type;
  }
  for (const int type : {25, 26}) EXPECT_EQ(with(type, 5, [](TensorProto& t) { t.set_raw_data("12"); }), "") << type;
  EXPECT_EQ(with(7, 1, [](TensorProto& t) { t.add_int64_data(1); }), "");
  EXPECT_EQ(with(8, 1, [](TensorProto& t) { t.add_string_data("one"); }), "");
  EXPECT_EQ(with(11, 1, [](TensorProto& t) { t.add_double_data(1); }), "");
  EXPECT_EQ(with(12, 1, [](TensorProto& t) { t.add_uint64_data(1); }), "");
  EXPECT_EQ(with(13, 1, [](TensorProto& t) { t.add_uint64_data(1); }), "");
  EXPECT_EQ(with(14, 2, [](TensorProto& t) { t.mutable_float_data()->Resize(4, 0); }), "");
  EXPECT_EQ(with(15, 1, [](TensorProto& t) { t.set_raw_data(std::string(16, '\0')); }), "");
  EXPECT_EQ(with(1, 0, [](TensorProto&) {}), "");
}

TEST(OnnxStructure, ValuesInAnotherFile) {
  using Entries = std::vector<std::pair<std::string, std::string>>;
  const auto with = [](const Entries& entries) {
    return tensor_refusal([&](TensorProto& t) {
      t.clear_raw_data();
      t.set_data_location(TensorProto::EXTERNAL);
      for (const auto& [key, value] : entries) {
        t.add_external_data()->set_key(key);
        t.mutable_external_data(t.external_data_size() - 1)->set_value(value);
      }
    });
  };
  EXPECT_EQ(with({{"location", "w.data"}, {"offset", "16"}, {"length", "8"}, {"checksum", "any"}}), "");
  EXPECT_EQ(with({{"location", "a/b..c/w.data"}}), "");
  const std::string place = "[test] 'm': initializer 'b': ";
  for (const std::string location :
       {"", "/etc/passwd", "../w", "a/../../w", "..", "a/..", "..\\w", "*/_ORT_MEM_ADDR_/*"}) {
    EXPECT_THAT(with({{"location", location}}), HasSubstr("; a path inside the model's folder is wanted")) << location;
  }
  EXPECT_THAT(with({{"location", std::string("w\0", 2)}}), HasSubstr("a path inside the model's folder is wanted"));
  EXPECT_THAT(with({}), HasSubstr("a path inside the model's folder is wanted"));
  EXPECT_EQ(with({{"location", "w"}, {"length", "9"}}), place + "its sizes make 8 bytes; its external data have 9");
  for (const std::string number : {"", "-1", "1x", "0x10", " 1", "9223372036854775808", "99999999999999999999"}) {
    EXPECT_THAT(with({{"location", "w"}, {"offset", number}}), HasSubstr("which is no number of bytes")) << number;
  }
  EXPECT_EQ(with({{"location", "w"}, {"location", "w"}}), place + "'location' of its external data is there twice");
  EXPECT_EQ(tensor_refusal([](TensorProto& t) { t.set_data_location(TensorProto::EXTERNAL); }),
            place + "its raw_data is not empty; a tensor of type 1 has its values in another file");

  Model model = small_net();
  TensorProto& tensor = *model.graph().mutable_initializer(0);
  tensor.clear_raw_data();
  tensor.set_data_location(TensorProto::EXTERNAL);
  for (const auto& [key, value] : Entries{{"location", "w.data"}, {"offset", "32"}}) {
    tensor.add_external_data()->set_key(key);
    tensor.mutable_external_data(tensor.external_data_size() - 1)->set_value(value);
  }
  const auto external = check_structure(model.message, "[test]");
  ASSERT_EQ(external.size(), 1U);
  EXPECT_EQ(external[0].tensor, "w");
  EXPECT_EQ(external[0].location, "w.data");
  EXPECT_EQ(external[0].offset, 32U);
  EXPECT_EQ(external[0].bytes, 24U);
}

TEST(OnnxStructure, SparseTensors) {
  const auto with = [](const std::function<void(onnx_file::SparseTensorProto&)>& change) {
    return refusal([&](Model& m) {
      auto& sparse = *m.graph().add_sparse_initializer();
      fill(*sparse.mutable_values(), "s", Tensor::from<float>({1, 2}));
      fill(*sparse.mutable_indices(), "", Tensor::from<std::int64_t>({0, 5}));
      sparse.add_dims(2);
      sparse.add_dims(3);
      change(sparse);
    });
  };
  using Sparse = onnx_file::SparseTensorProto;
  const auto indices = [](Sparse& s, const Tensor& values) {
    s.clear_indices();
    fill(*s.mutable_indices(), "", values);
  };
  EXPECT_EQ(with([](Sparse&) {}), "");
  EXPECT_EQ(with([&](Sparse& s) { indices(s, Tensor::from<std::int64_t>({0, 0, 1, 2}, {2, 2})); }), "");
  const std::string place = "[test] 'm': sparse initializer 's', indices: ";
  EXPECT_EQ(with([&](Sparse& s) {
              indices(s, Tensor::from<std::int64_t>({0, 6}));
            }),
            place + "index 6 is outside of 0 to 5");
  EXPECT_EQ(with([&](Sparse& s) {
              indices(s, Tensor::from<std::int64_t>({0, -1}));
            }),
            place + "index -1 is outside of 0 to 5");
  EXPECT_EQ(with([&](Sparse& s) {
              indices(s, Tensor::from<std::int64_t>({0, 0, 2, 0}, {2, 2}));
            }),
            place + "index 2 is outside of 0 to 1");
  EXPECT_EQ(with([](Sparse& s) {
              s.mutable_indices()->clear_raw_data();
              s.mutable_indices()->add_int64_data(1);
              s.mutable_indices()->add_int64_data(9);
            }),
            place + "index 9 is outside of 0 to 5");
  EXPECT_THAT(with([&](Sparse& s) {
                indices(s, Tensor::from<std::int64_t>({0, 1, 2}));
              }),
              HasSubstr("they are not of type int64 and shape"));
  EXPECT_THAT(with([&](Sparse& s) {
                indices(s, Tensor::from<std::int32_t>({0, 1}));
              }),
              HasSubstr("they are not of type int64 and shape"));
  EXPECT_EQ(with([](Sparse& s) { s.mutable_values()->set_name("w"); }),
            "[test] 'm': sparse initializer 'w': there are two of this name");
  EXPECT_THAT(with([](Sparse& s) { s.mutable_values()->add_dims(1); }),
              HasSubstr("its values have 2 axes; one is wanted"));
  EXPECT_THAT(with([](Sparse& s) { s.clear_values(); }), HasSubstr("it has no name"));
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
