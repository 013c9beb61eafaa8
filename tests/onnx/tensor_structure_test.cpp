#include "onnx/tensor_structure.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "onnx/hand_built.h"

namespace everyo {
namespace {

using namespace hand_built;
using testing::HasSubstr;

/// What check_structure says of the small net after a change of its initializer b.
std::string tensor_refusal(const std::function<void(TensorProto&)>& change) {
  return refusal([&](Model& m) { change(*m.graph().mutable_initializer(1)); });
}

TEST(OnnxTensorStructure, ValuesOfTensors) {
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

TEST(OnnxTensorStructure, EachTypeHasItsField) {
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

TEST(OnnxTensorStructure, ValuesInAnotherFile) {
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
  const auto external = onnx_export::check_structure(model.message, "[test]");
  ASSERT_EQ(external.size(), 1U);
  EXPECT_EQ(external[0].tensor, "w");
  EXPECT_EQ(external[0].location, "w.data");
  EXPECT_EQ(external[0].offset, 32U);
  EXPECT_EQ(external[0].bytes, 24U);
}

TEST(OnnxTensorStructure, SparseTensors) {
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

}  // namespace
}  // namespace everyo
