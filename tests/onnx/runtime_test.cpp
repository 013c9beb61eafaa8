#include "onnx/runtime.h"

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <link.h>
#include <onnxruntime/onnxruntime_c_api.h>

#include <cstdlib>
#include <thread>

#include "everyo/error.h"
#include "onnx/hand_built.h"

namespace everyo {
namespace {

namespace fs = std::filesystem;
using namespace hand_built;
using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

class OnnxRuntimeTest : public Files {};

/// An environment variable, set for one scope.
class Variable {
 public:
  Variable(const char* name, const std::string& value) : name_(name) {
    if (const char* old = std::getenv(name)) old_ = old;
    setenv(name, value.c_str(), 1);
  }
  ~Variable() { old_ ? setenv(name_, old_->c_str(), 1) : unsetenv(name_); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  const char* name_;
  std::optional<std::string> old_;
};

TEST_F(OnnxRuntimeTest, SaysItsVersionAndWhereItIs) {
  EXPECT_TRUE(onnx_available());
  EXPECT_THAT(onnx_runtime_version(), AllOf(StartsWith("1."), HasSubstr("/libonnxruntime.so.1")));
}

TEST_F(OnnxRuntimeTest, IsLoadedOnce) {
  const onnx_runtime::Runtime* first = &onnx_runtime::load({});
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) threads.emplace_back([&] { EXPECT_EQ(&onnx_runtime::load({}), first); });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(&onnx_runtime::load({.library = first->path}), first);
  const fs::path link = folder.path() / "link.so";
  fs::create_symlink(first->path, link);
  EXPECT_EQ(&onnx_runtime::load({.library = link}), first);
  const Variable named("EVERYO_ONNXRUNTIME", link.string());
  EXPECT_EQ(&onnx_runtime::load({}), first);
}

TEST_F(OnnxRuntimeTest, WhatIsMissingOrAnotherLibraryIsNamedWithAHint) {
  const fs::path model = write(small_net());
  const auto words = [&](const fs::path& library) {
    EXPECT_FALSE(onnx_available({.library = library}));
    EXPECT_THROW((void)onnx_runtime_version({.library = library}), StateError);
    try {
      (void)run_onnx(model, {}, {.library = library});
    } catch (const StateError& error) {
      EXPECT_EQ(error.kind(), ErrorKind::backend);
      return std::string(error.what());
    }
    return std::string("no error");
  };
  EXPECT_THAT(
      words("/nowhere/libonnxruntime.so.1"),
      AllOf(StartsWith(
                "[run_onnx] ONNX Runtime was not found; install it (pip install onnxruntime) or name its library by "
                "EVERYO_ONNXRUNTIME="),
            HasSubstr("Tried /nowhere/libonnxruntime.so.1 (given in the call): "), HasSubstr("No such file")));
  EXPECT_THAT(words("libz.so.1"),
              HasSubstr("Tried libz.so.1 (given in the call): ./libz.so.1"));  // a path, not for the loader
  EXPECT_THAT(words(write("no library at all", "text.so")), HasSubstr("text.so (given in the call)"));
  EXPECT_THAT(words(write("", "empty.so")), HasSubstr("empty.so (given in the call)"));
  EXPECT_THAT(words(folder.path()), HasSubstr("(given in the call)"));
  // Another library, wherever the system has it.
  const std::unique_ptr<void, int (*)(void*)> other(dlopen("libm.so.6", RTLD_NOW | RTLD_LOCAL), dlclose);
  struct link_map* map = nullptr;
  ASSERT_EQ(dlinfo(other.get(), RTLD_DI_LINKMAP, &map), 0);
  EXPECT_THAT(words(map->l_name), HasSubstr("libm.so.6' is a library, but not ONNX Runtime: it has no OrtGetApiBase"));
}

TEST_F(OnnxRuntimeTest, IsLookedForInOrder) {
  const fs::path capi = folder.path() / "lib/python3.11/site-packages/onnxruntime/capi";
  fs::create_directories(capi);
  fs::create_directories(folder.path() / "lib/python3.9");
  (void)write("", "lib/python3.11/site-packages/onnxruntime/capi/libonnxruntime.so.1.30.0");
  (void)write("", "lib/python3.11/site-packages/onnxruntime/capi/libonnxruntime_providers_shared.so");
  const Variable unset("EVERYO_ONNXRUNTIME", "");
  const Variable environment("VIRTUAL_ENV", folder.path().string());
  const auto all = onnx_runtime::candidates({});
  ASSERT_EQ(all.size(), 2U);
  EXPECT_EQ(all[0].name, "libonnxruntime.so.1");
  EXPECT_EQ(all[1].name, (capi / "libonnxruntime.so.1.30.0").string());
  EXPECT_THAT(all[1].words, HasSubstr("the active Python environment"));
  {
    const Variable elsewhere("VIRTUAL_ENV", "/nowhere");
    EXPECT_EQ(onnx_runtime::candidates({}).size(), 1U);
  }
  const Variable named("EVERYO_ONNXRUNTIME", "/named/by.so");
  ASSERT_EQ(onnx_runtime::candidates({}).size(), 1U);
  EXPECT_EQ(onnx_runtime::candidates({})[0].words, "/named/by.so (EVERYO_ONNXRUNTIME)");
  EXPECT_EQ(onnx_runtime::candidates({.library = "/in/the/call.so"})[0].name, "/in/the/call.so");
}

TEST_F(OnnxRuntimeTest, AnOldOneIsRefusedBeforeItIsAskedForMore) {
  const auto words = [](const char* (*version)() noexcept) {
    OrtApiBase base{};
    base.GetVersionString = version;
    base.GetApi = [](std::uint32_t) noexcept -> const OrtApi* {
      ADD_FAILURE() << "asked for an interface that it has not, it would print";
      return nullptr;
    };
    return words_of<StateError>([&] { (void)onnx_runtime::interface_of(&base, "/old.so"); });
  };
  EXPECT_EQ(words([]() noexcept { return "1.20.2"; }),
            "[run_onnx] '/old.so' is ONNX Runtime 1.20.2; 1.21 and above, below 2, are used here (pip install "
            "--upgrade onnxruntime)");
  EXPECT_THAT(words([]() noexcept { return "2.40.0"; }), HasSubstr("is ONNX Runtime 2.40.0;"));
  EXPECT_THAT(words([]() noexcept { return "of another kind"; }), HasSubstr("is ONNX Runtime of another kind;"));
  EXPECT_THAT(words_of<StateError>([] { (void)onnx_runtime::interface_of(nullptr, "/none.so"); }),
              HasSubstr("'/none.so' gives no interface"));
}

TEST_F(OnnxRuntimeTest, ElementTypesAreTheFormats) {
  for (const DType dtype : {float32, float64, float16, bfloat16, int64, int32, uint8, boolean}) {
    const std::int32_t element = onnx_runtime::element_of_dtype(dtype);
    EXPECT_EQ(onnx_runtime::dtype_of_element(element), dtype);
    EXPECT_EQ(onnx_runtime::name_of_element(element), name_of(dtype));
  }
  EXPECT_EQ(onnx_runtime::element_of_dtype(float32), TensorProto::FLOAT);
  EXPECT_EQ(onnx_runtime::element_of_dtype(float64), TensorProto::DOUBLE);
  EXPECT_EQ(onnx_runtime::element_of_dtype(float16), TensorProto::FLOAT16);
  EXPECT_EQ(onnx_runtime::element_of_dtype(bfloat16), TensorProto::BFLOAT16);
  EXPECT_EQ(onnx_runtime::element_of_dtype(int64), TensorProto::INT64);
  EXPECT_EQ(onnx_runtime::element_of_dtype(int32), TensorProto::INT32);
  EXPECT_EQ(onnx_runtime::element_of_dtype(uint8), TensorProto::UINT8);
  EXPECT_EQ(onnx_runtime::element_of_dtype(boolean), TensorProto::BOOL);
  EXPECT_EQ(onnx_runtime::name_of_element(26), "int2");
  EXPECT_EQ(onnx_runtime::name_of_element(27), "number 27");
  EXPECT_FALSE(onnx_runtime::dtype_of_element(0));
  EXPECT_FALSE(onnx_runtime::dtype_of_element(-1));
  EXPECT_FALSE(onnx_runtime::dtype_of_element(TensorProto::STRING));
}

}  // namespace
}  // namespace everyo
