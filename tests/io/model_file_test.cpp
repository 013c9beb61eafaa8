#include "everyo/model_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "everyo/error.h"
#include "nn/dense.h"
#include "support/temporary_folder.h"

namespace everyo {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;
using namespace testing_nn;  // NOLINT: the tests' own modules

/// A network whose last layer has its first one's weight.
struct Ends : Module<Ends> {
  explicit Ends(bool tied = true, std::uint64_t seed = 1) : in(2, 2, seed), out(2, 2, seed + 1) {
    if (tied) out.weight = in.weight.tie();
  }
  Dense in, out;
  void visit(Visitor& v) { v("in", in)("out", out); }
  [[nodiscard]] Tensor forward(const Tensor& x) const { return out(in(x)); }
};

class ModelFile : public testing::Test {
 protected:
  static std::string refusal(const std::function<void()>& call) {
    try {
      call();
    } catch (const StateError& error) {
      EXPECT_EQ(error.kind(), ErrorKind::serialization);
      return error.what();
    }
    return "no error";
  }
  /// The tied network's file, its tensors and metadata changed.
  void write(const std::function<void(SafetensorsFile&)>& change) const {
    save_model(path, Ends());
    SafetensorsFile file = load_safetensors(path);
    change(file);
    save_safetensors(path, file.tensors, file.metadata);
  }
  TemporaryFolder folder;
  fs::path path = folder.path() / "model.safetensors";
};

const char* const in_name = "in.weight";
const char* const out_name = "out.weight";

TEST_F(ModelFile, F05ATiedWeightIsWrittenOnceAndBothNamesComeBackToOneStorage) {
  const Ends model;
  save_model(path, model, {{"note", "x"}});
  const SafetensorsFile file = load_safetensors(path);
  EXPECT_EQ(file.tensors.size(), model.state_dict().size());
  EXPECT_EQ(file.metadata, (Metadata{{"note", "x"}, {out_name, in_name}}));

  Ends fresh(true, 7);
  EXPECT_EQ(load_model(path, fresh), (Metadata{{"note", "x"}}));
  EXPECT_EQ(fresh.in.weight.tensor().body(), fresh.out.weight.tensor().body());
  EXPECT_EQ(digest(fresh.state_dict()), digest(model.state_dict()));
}

TEST_F(ModelFile, F05AnyOfTheNamesWillDoAndNoneIsAnError) {
  const Ends model;
  write([](SafetensorsFile& file) {
    for (auto& [name, tensor] : file.tensors)
      if (name == in_name) name = out_name;
    file.metadata.clear();
  });
  Ends fresh(true, 7);
  load_model(path, fresh);
  EXPECT_EQ(digest(fresh.state_dict()), digest(model.state_dict()));

  write([](SafetensorsFile& file) {
    std::erase_if(file.tensors, [](const NamedTensor& named) { return named.first == in_name; });
  });
  Ends untouched(true, 7);
  const std::string before = digest(untouched.state_dict());
  EXPECT_THAT(refusal([&] { load_model(path, untouched); }), AllOf(HasSubstr("Missing keys"), HasSubstr("in.weight")));
  EXPECT_EQ(digest(untouched.state_dict()), before);
}

TEST_F(ModelFile, F05ANetworkThatIsNotTiedTakesTheValueUnderBothNames) {
  const Ends model;
  save_model(path, model);
  Ends untied(false, 7);
  load_model(path, untied);
  EXPECT_NE(untied.in.weight.tensor().body(), untied.out.weight.tensor().body());
  EXPECT_EQ(bits(untied.out.weight), bits(model.in.weight));
  EXPECT_EQ(bits(untied.in.weight), bits(model.in.weight));
}

TEST_F(ModelFile, F07AnExtraTiedKeyIsTakenWhenEqualAndRefusedWhenNot) {
  const Ends model;
  const auto with_extra = [&](const Tensor& extra) {
    write([&](SafetensorsFile& file) {
      file.metadata.clear();
      file.tensors.emplace_back(out_name, extra);
    });
  };
  with_extra(model.in.weight.tensor().copy());
  Ends fresh(true, 7);
  EXPECT_EQ(refusal([&] { load_model(path, fresh); }), "no error");
  EXPECT_EQ(digest(fresh.state_dict()), digest(model.state_dict()));

  Tensor other = model.in.weight.tensor().copy();
  other.data<float>()[3] += 1;
  with_extra(other);
  Ends untouched(true, 7);
  const std::string before = digest(untouched.state_dict());
  EXPECT_THAT(refusal([&] { load_model(path, untouched); }),
              AllOf(HasSubstr("in.weight"), HasSubstr("out.weight"), HasSubstr("different values")));
  EXPECT_THAT(refusal([&] { load_model(path, untouched, {.strict = false}); }), HasSubstr("different values"));
  EXPECT_EQ(digest(untouched.state_dict()), before);
}

// tied.safetensors is the public package's: save_model of two linear layers with one weight (make_safetensors.py).
TEST_F(ModelFile, F05AFileOfThePublicPackagesSaveModelIsRead) {
  Ends model(true, 7);
  load_model(fs::path(std::getenv("EVERYO_SOURCE_DIR")) / "tests" / "io" / "tied.safetensors", model);
  EXPECT_THAT(model.out.weight.tensor().to_vector(), testing::ElementsAre(0, 1, 2, 3));
  Ends untied(false, 7);
  load_model(fs::path(std::getenv("EVERYO_SOURCE_DIR")) / "tests" / "io" / "tied.safetensors", untied);
  EXPECT_THAT(untied.in.weight.tensor().to_vector(), testing::ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(untied.out.weight.tensor().to_vector(), testing::ElementsAre(0, 1, 2, 3));
}

}  // namespace
}  // namespace everyo
