#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>

#include "everyo/data.h"
#include "support/temporary_folder.h"

namespace everyo {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

std::string message_of(std::string_view text, const CsvOptions& options = {}) {
  try {
    parse_csv(text, "table.csv", options);
  } catch (const FileError& error) {
    EXPECT_EQ(error.kind(), ErrorKind::shape);
    return error.what();
  }
  return "no error";
}

TEST(Csv, ReadsNumbersRowByRow) {
  const Table t = parse_csv("1,2.5,-3e2\n4,+5,6\n", "t");
  EXPECT_EQ(t.rows, 2);
  EXPECT_EQ(t.columns, 3);
  EXPECT_TRUE(t.header.empty());
  EXPECT_THAT(t.values, ElementsAre(1, 2.5, -300, 4, 5, 6));
  EXPECT_THAT(t.lines, ElementsAre(1, 2));
}

TEST(Csv, EveryLineEndAndTheLastLineWithoutOne) {
  for (const char* text : {"1,2\n3,4\n", "1,2\r\n3,4\r\n", "1,2\r3,4\r", "1,2\n3,4", "1,2\r\n3,4\n\n \n",
                           "\xef\xbb\xbf"
                           "1,2\n3,4"})
    EXPECT_THAT(parse_csv(text, "t").values, ElementsAre(1, 2, 3, 4)) << text;
}

TEST(Csv, QuotesAndPadding) {
  const Table t = parse_csv("\"a, b\",\" say \"\"x\"\" \"\n \"1\" ,\t2 \n", "t");
  EXPECT_THAT(t.header, ElementsAre("a, b", " say \"x\" "));
  EXPECT_THAT(t.values, ElementsAre(1, 2));
  EXPECT_THAT(parse_csv("1\t2\n", "t", {.delimiter = '\t'}).values, ElementsAre(1, 2));
}

TEST(Csv, FindsTheHeaderOrIsTold) {
  EXPECT_THAT(parse_csv("x,y\n1,2\n", "t").header, ElementsAre("x", "y"));
  EXPECT_THAT(parse_csv("0,1\n1,2\n", "t", {.has_header = true}).header, ElementsAre("0", "1"));
  EXPECT_THAT(message_of("x,y\n1,2\n", {.has_header = false}), HasSubstr("line 1, column 1: 'x' is no finite number"));
  EXPECT_THAT(message_of("1,y\n1,2\n"),
              HasSubstr("line 1, column 2: 'y' is no finite number; a numeric table is needed "
                        "(set has_header"));
}

TEST(Csv, AnotherDelimiterIsSuspected) {
  EXPECT_EQ(
      message_of("a;b\n1;2\n"),
      "[read_csv] table.csv, line 2, column 1: '1;2' is no finite number; a numeric table is needed; if columns are "
      "separated by ';', set it as the delimiter");
  EXPECT_THAT(message_of("1\t2\n3\t4\n"), HasSubstr("if columns are separated by tabs, set it"));
  EXPECT_THAT(message_of("1,2\n3,4\n", {.delimiter = ';'}), HasSubstr("if columns are separated by ',', set it"));
  EXPECT_THAT(message_of("a\nword\n"), Not(HasSubstr("separated")));
}

TEST(Csv, ErrorsNameFileLineAndColumn) {
  EXPECT_EQ(message_of("a,b\n1,2\n3,four\n"),
            "[read_csv] table.csv, line 3, column 2: 'four' is no finite number; a numeric table is needed");
  EXPECT_EQ(
      message_of("1,2\n3\n"),
      "[read_csv] table.csv, line 2, column 2: the line has 1 field, the first line has 2; every line needs as many");
  EXPECT_EQ(
      message_of("1,2\n3,4,5\n"),
      "[read_csv] table.csv, line 2, column 3: the line has 3 fields, the first line has 2; every line needs as many");
  EXPECT_EQ(message_of("1,2\n\n3,4\n"),
            "[read_csv] table.csv, line 2, column 1: the line is empty; blank lines may only stand at the end");
  EXPECT_EQ(message_of("1,2\n3,\"4\n"),
            "[read_csv] table.csv, line 2, column 2: the quote stays open to the end of the line");
  EXPECT_THAT(message_of("\"1\"2,3\n"), HasSubstr("line 1, column 1: '2' follows a closing quote"));
  EXPECT_THAT(message_of(""), HasSubstr("there are no rows"));
  EXPECT_THAT(message_of("a,b\n"), HasSubstr("there are no rows"));
}

TEST(Csv, WhatIsNoFiniteNumber) {
  for (const char* field : {"", "nan", "inf", "-inf", "1e999", "0x10", "1.0.0", "1 2", "--1", "++1", "1e", "1,5"})
    EXPECT_THAT(message_of(std::string("7\n\"") + field + "\"\n"), HasSubstr("line 2, column 1")) << field;
}

TEST(Csv, AMessageShowsNoBytesOfABinaryFile) {
  const std::string message = message_of(std::string("1\n\x01\xff") + std::string(300, 'z'));
  EXPECT_THAT(message, HasSubstr("'??zzz"));
  EXPECT_LT(message.size(), 200u);
}

class CsvFile : public testing::Test {
 protected:
  std::string write(std::string_view text) {
    const std::string path = (folder_.path() / "table.csv").string();
    std::ofstream(path, std::ios::binary) << text;
    return path;
  }
  TemporaryFolder folder_;
};

TEST_F(CsvFile, BecomesADataset) {
  const ArrayDataset d = load_csv_dataset(write("a,b,label\n0.5,2,1\n-1,3,0\n"));
  EXPECT_EQ(d.features.spec(), (Spec{float32, {2, 2}}));
  EXPECT_EQ(d.targets.spec(), (Spec{int64, {2}}));
  EXPECT_THAT(d.features.to_vector(), ElementsAre(0.5, 2, -1, 3));
  EXPECT_THAT(d.targets.to_vector(), ElementsAre(1, 0));
}

TEST_F(CsvFile, TheTargetIsAnyColumn) {
  const std::string path = write("y,a,b\n7,1,2\n8,3,4\n");
  for (const auto& d : {load_csv_dataset(path, {.target_column = 0}), load_csv_dataset(path, {.target_name = "y"}),
                        load_csv_dataset(path, {.target_column = -3})}) {
    EXPECT_THAT(d.features.to_vector(), ElementsAre(1, 2, 3, 4));
    EXPECT_THAT(d.targets.to_vector(), ElementsAre(7, 8));
  }
  EXPECT_THROW(load_csv_dataset(path, {.target_column = 3}), ValueError);
  EXPECT_THROW(load_csv_dataset(path, {.target_name = "z"}), ValueError);
}

TEST_F(CsvFile, LabelsAreWholeNumbersUnlessAFloatingTargetIsAskedFor) {
  const std::string path = write("1,2\n3,4.5\n");
  try {
    load_csv_dataset(path);
    FAIL();
  } catch (const FileError& error) {
    EXPECT_THAT(error.what(), HasSubstr("table.csv, line 2, column 2: the label 4.5 is no whole number"));
  }
  EXPECT_THAT(load_csv_dataset(path, {.target_dtype = float32}).targets.to_vector(), ElementsAre(2, 4.5));
}

TEST_F(CsvFile, AMissingFileIsNamed) {
  try {
    read_csv((folder_.path() / "none.csv").string());
    FAIL();
  } catch (const FileError& error) {
    EXPECT_EQ(error.kind(), ErrorKind::file_not_found);
    EXPECT_THAT(error.what(), HasSubstr("none.csv"));
  }
}

TEST_F(CsvFile, ValuesThatDoNotFitTheirDTypeAreRefused) {
  const auto message = [&](const std::string& text, DType dtype) -> std::string {
    try {
      load_csv_dataset(write(text), {.target_dtype = dtype});
    } catch (const FileError& error) {
      return error.what();
    }
    return "no error";
  };
  EXPECT_THAT(message("1,300\n", uint8), HasSubstr("line 1, column 2: the label 300 does not fit into uint8"));
  EXPECT_THAT(message("1,-1\n", uint8), HasSubstr("the label -1 does not fit"));
  EXPECT_THAT(message("1e39,1\n", int64), HasSubstr("line 1, column 1: 1e+39 does not fit into float32"));
  EXPECT_EQ(message("1,255\n", uint8), "no error");
}

TEST(Csv, WhatIsSpelledAsANumberIsNoHeader) {
  EXPECT_THAT(message_of("nan,inf\n1,2\n"), HasSubstr("line 1"));
  EXPECT_THAT(message_of("1e999,2\n"), HasSubstr("line 1, column 1"));
  EXPECT_THAT(message_of("1,+-1\n"), HasSubstr("line 1, column 2"));
  EXPECT_THAT(parse_csv("1e-400,2\n", "t").values, ElementsAre(0, 2));
}

}  // namespace
}  // namespace everyo
