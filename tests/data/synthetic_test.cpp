#include "everyo/data/synthetic.h"

#include <gmock/gmock.h>

#include "base/digest.h"

namespace everyo {
namespace {

using testing::HasSubstr;

std::string digest_of(const Tensor& t) { return base::sha256({t.bytes(), t.spec().bytes()}).substr(0, 16); }

// The digests are of the arrays that everyo.datasets makes in Python with NumPy's own draws: the first 16 digits of
// hashlib.sha256(x.tobytes()).hexdigest().
void expect(const ArrayDataset& data, const Spec& features, const Spec& targets, const std::string& x,
            const std::string& y) {
  EXPECT_EQ(data.features.spec(), features);
  EXPECT_EQ(data.targets.spec(), targets);
  EXPECT_EQ(digest_of(data.features), x);
  EXPECT_EQ(digest_of(data.targets), y);
}

TEST(Synthetic, SetsAreThoseThatPythonMakes) {
  expect(make_digits(), {float32, {2000, 64}}, {int64, {2000}}, "cba38b9a3cbaa493", "62f28e6d97aedbec");
  expect(make_digits({.samples_per_class = 3, .noise = 0.4, .max_shift = 2, .flatten = false, .seed = 5}),
         {float32, {30, 8, 8, 1}}, {int64, {30}}, "4ecd595cbfacad2f", "6e8d3ae42195ea45");
  expect(make_regression(), {float32, {200, 1}}, {float32, {200, 1}}, "5b4cd7f6b3834111", "3d5106f2b6f863a5");
  expect(make_blobs(), {float32, {300, 2}}, {int64, {300}}, "2a4667e66c8499b2", "825fc60564f2da00");
  expect(make_blobs({.n_samples = 11, .n_features = 3, .centers = 4, .spread = 2, .seed = 9}), {float32, {11, 3}},
         {int64, {11}}, "8fc73ab7c74e23b7", "a4d23c70cc3e1eda");
  expect(make_xor(), {float32, {400, 2}}, {int64, {400}}, "353d870ef73fbce7", "5616df7a0f8725b8");
  expect(make_recall_task(), {int64, {2000, 20}}, {int64, {2000}}, "6ce9c879d5ab8ddb", "a4a48c295143b07a");
  expect(make_copy_task(), {int64, {2000, 10}}, {int64, {2000, 10}}, "c664d12801843849", "c664d12801843849");
  expect(make_parity_task({.seed = 3}), {float32, {2000, 10, 1}}, {int64, {2000}}, "e9d5eca4a2b5d360",
         "e102138aa13b2c2d");
}

// A sine that is wrong in float64's last place is right again in float32, but for one value in 2^29.
TEST(Synthetic, SetsOfAnglesAreThoseThatPythonMakes) {
  expect(make_moons(), {float32, {300, 2}}, {int64, {300}}, "165f2794b60f2dd6", "1937b051af47c5bb");
  expect(make_spirals(), {float32, {300, 2}}, {int64, {300}}, "d2b6fbcd00291943", "cf0c91e2a48de0e8");
}

TEST(Synthetic, ARegressionOfSeveralFeaturesDrawsWhatPythonDraws) {
  const ArrayDataset data = make_regression({.n_samples = 4, .n_features = 4, .noise = 0.1, .bias = 0.5, .seed = 2});
  EXPECT_EQ(data.features.data<float>()[3], -2.44146728515625f);
  const double expected[] = {5.390158653259277, 5.5826005935668945, 0.6605224609375, -1.360952615737915};
  for (std::size_t i = 0; i < 4;
       ++i)  // the order of a float32 sum of four is NumPy's own: a few units of its last place
    EXPECT_NEAR(data.targets.to_vector()[i], expected[i], 2e-6);
}

TEST(Synthetic, WrongNumbersAreNamed) {
  const auto message_of = [](auto make) -> std::string {
    try {
      make();
    } catch (const ValueError& error) {
      return error.what();
    }
    return "no error";
  };
  EXPECT_THAT(message_of([] { make_blobs({.centers = 0}); }),
              HasSubstr("[make_blobs] centers is 0; it must be positive"));
  EXPECT_THAT(message_of([] { make_moons({.n_samples = -1}); }), HasSubstr("n_samples is -1"));
  EXPECT_THAT(message_of([] { make_moons({.noise = -1}); }), HasSubstr("-1"));
  EXPECT_THAT(message_of([] { make_digits({.max_shift = 9}); }), HasSubstr("max_shift is 9"));
  EXPECT_THAT(message_of([] { make_recall_task({.num_classes = 4, .vocab_size = 4}); }),
              HasSubstr("vocab_size is 4; it must be greater than num_classes, 4"));
  EXPECT_THAT(message_of([] { render_digit(10); }), HasSubstr("digit is 10"));
  EXPECT_EQ(render_digit(1).shape(), (Shape{8, 8}));
}

}  // namespace
}  // namespace everyo
