#include <gmock/gmock.h>

#include <cstdlib>
#include <fstream>
#include <numeric>

#include "everyo/data.h"
#include "support/temporary_folder.h"

namespace everyo {
namespace {

using testing::HasSubstr;

std::vector<float> row_of(const ArrayDataset& data, std::int64_t row) {
  const auto pixels = data.features.data<float>().subspan(static_cast<std::size_t>(row * 64), 64);
  return {pixels.begin(), pixels.end()};
}

TEST(Digits, AreTheWholeSetScaledToOne) {
  const ArrayDataset digits = load_digits();
  EXPECT_EQ(digits.features.spec(), (Spec{float32, {1797, 64}}));
  EXPECT_EQ(digits.targets.spec(), (Spec{int64, {1797}}));
  double pixels = 0, largest = 0;
  for (const float pixel : digits.features.data<float>()) {
    pixels += static_cast<double>(pixel);
    largest = std::max(largest, static_cast<double>(pixel));
  }
  const auto labels = digits.targets.data<std::int64_t>();
  EXPECT_EQ(largest, 1);
  EXPECT_EQ(pixels, 561718 / 16.0);  // the sum of the file's pixels; exact, sums of sixteenths
  EXPECT_EQ(std::accumulate(labels.begin(), labels.end(), std::int64_t{0}), 8070);
}

TEST(Digits, HeldOutRowsAreNumPysPermutationOfSeedZero) {
  const ArrayDataset all = load_digits();
  const auto [train, test] = digits_split();
  EXPECT_EQ(train.size(), 1437);
  EXPECT_EQ(test.size(), 360);
  // numpy.random.default_rng(0).permutation(1797): [360, 1773, 1482, ...], [-360:] is [256, 1340, 1067, ..., 975, 607]
  EXPECT_EQ(row_of(train, 0), row_of(all, 360));
  EXPECT_EQ(row_of(train, 2), row_of(all, 1482));
  EXPECT_EQ(row_of(test, 0), row_of(all, 256));
  EXPECT_EQ(row_of(test, 359), row_of(all, 607));
  std::vector<int> counts(10);
  for (const std::int64_t label : test.targets.data<std::int64_t>()) ++counts[static_cast<std::size_t>(label)];
  EXPECT_EQ(counts, (std::vector<int>{39, 37, 47, 28, 42, 32, 37, 27, 30, 41}));
}

TEST(Digits, HoldOutKeepsSomethingOnBothSides) {
  const ArrayDataset two(Tensor::from<float>({1, 2}, {2, 1}), Tensor::from<std::int64_t>({0, 1}));
  EXPECT_EQ(hold_out(two, 1).train.size(), 1);
  EXPECT_THROW(hold_out(two, 0), ValueError);
  EXPECT_THROW(hold_out(two, 2), ValueError);
}

class DigitsFile : public testing::Test {
 protected:
  /// The message for one digit whose last pixel and label are as given.
  std::string message_of(std::string_view pixel, std::string_view label) {
    const std::string path = (folder_.path() / "digits.csv").string();
    std::ofstream file(path);
    for (int i = 0; i < 63; ++i) file << "0,";
    file << pixel << ',' << label << '\n';
    file.close();
    try {
      load_digits(path);
    } catch (const FileError& error) {
      return error.what();
    }
    return "no error";
  }
  TemporaryFolder folder_;
};

TEST_F(DigitsFile, IsCheckedForRange) {
  EXPECT_EQ(message_of("16", "9"), "no error");
  EXPECT_THAT(message_of("17", "9"), HasSubstr("row 1, column 64: pixel 17 lies outside 0..16"));
  EXPECT_THAT(message_of("-1", "9"), HasSubstr("pixel -1 lies outside 0..16"));
  EXPECT_THAT(message_of("16", "10"), HasSubstr("row 1: label 10 lies outside 0..9"));
  EXPECT_THAT(message_of("16", "1.5"), HasSubstr("line 1, column 65: the label 1.5"));
  EXPECT_THAT(message_of("16,0", "1"), HasSubstr("66 columns; digits have 64 pixels and a label"));
}

TEST_F(DigitsFile, TheEnvironmentNamesItsFolder) {
  const std::string path = (folder_.path() / "own.csv").string();
  EXPECT_THROW(find_data_file("own.csv"), FileError);
  std::ofstream(path) << "1\n";
  setenv("EVERYO_DATA", folder_.path().c_str(), 1);
  EXPECT_EQ(find_data_file("own.csv"), path);
  unsetenv("EVERYO_DATA");
}

}  // namespace
}  // namespace everyo
