// Names of codes, and the bytes of records.
#include "gantry/core/row_encoding.h"

#include <gtest/gtest.h>

#include "gantry/core/error.h"

namespace gantry {
namespace {

TEST(RowEncoding, CodesOfTheKeys) {
  EXPECT_EQ(weight_code("", true), std::nullopt);
  EXPECT_EQ(weight_code("nf4"), WeightCode::kNf4);
  EXPECT_EQ(weight_code("nf4", true), WeightCode::kNf4Double);
  EXPECT_EQ(weight_code("fp4", true), WeightCode::kFp4Double);
  EXPECT_EQ(weight_code("int8"), WeightCode::kInt8);
  try {
    weight_code("int8", true);
    FAIL() << "no error";
  } catch (const ConfigError& error) {
    EXPECT_STREQ(error.what(),
                 "model.quantize_double: the scales of int8 are not quantized, because each row has one; expected "
                 "model.quantize: nf4 or fp4; remove the key");
  }
}

// A block of 256 scales has 16384 inputs.
TEST(RowEncoding, RunsAreTheMostBlocksOfARow) {
  const auto runs = [](std::int64_t inputs, const std::vector<Range>& held) {
    return row_encoding(WeightCode::kNf4Double, inputs, held).runs;
  };
  EXPECT_EQ(runs(4096, {{0, 4096}}), 1);
  EXPECT_EQ(runs(4096, {{1024, 4096}}), 1);
  EXPECT_EQ(runs(6144, {{0, 4096}}), 2);
  EXPECT_EQ(runs(11008, {{0, 11008}}), 2);
  EXPECT_EQ(runs(16384, {{0, 16384}}), 1);
  EXPECT_EQ(runs(20000, {{0, 20000}}), 3);
  EXPECT_EQ(runs(4096, {{0, 64}, {128, 192}, {256, 256}}), 2);
  EXPECT_EQ(row_encoding(WeightCode::kNf4, 11008, {{0, 11008}}).runs, 0);
}

}  // namespace
}  // namespace gantry
