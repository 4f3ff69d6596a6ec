// Names of codes, and the bytes of records.
#include "gantry/core/row_encoding.h"

#include <gtest/gtest.h>
#include <string>

#include "gantry/core/error.h"

namespace gantry {
namespace {

TEST(RowEncoding, CodesOfTheKeys) {
  EXPECT_EQ(weight_code("", true), std::nullopt);
  EXPECT_EQ(weight_code("nf4"), WeightCode::kNf4);
  EXPECT_EQ(weight_code("nf4", true), WeightCode::kNf4Double);
  EXPECT_EQ(weight_code("fp4", true), WeightCode::kFp4Double);
  EXPECT_EQ(weight_code("int8"), WeightCode::kInt8);
  EXPECT_EQ(weight_code("fp8"), WeightCode::kFp8);
  EXPECT_EQ(weight_code("mxfp4"), WeightCode::kMxfp4);
  const auto refusal = [](const char* name, bool is_double) -> std::string {
    try {
      weight_code(name, is_double);
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "no error";
  };
  EXPECT_EQ(refusal("int8", true),
            "model.quantize_double: the scales of int8 are not quantized, because each row has one; expected "
            "model.quantize: nf4 or fp4; remove the key");
  EXPECT_EQ(refusal("fp8", true),
            "model.quantize_double: the scales of fp8 are not quantized, because they keep the form of the files; "
            "expected model.quantize: nf4 or fp4; remove the key");
  EXPECT_EQ(refusal("fp6", false), "model.quantize: the value is 'fp6'; expected nf4, fp4, int8, fp8 or mxfp4");
}

// Columns of one block share a scale, also if the last block or a rank's part is smaller.
TEST(RowEncoding, ScalesOfPublishedBlocks) {
  EXPECT_EQ(row_encoding(WeightCode::kFp8, 7168, {{0, 7168}}).group, 128);
  EXPECT_EQ(row_encoding(WeightCode::kFp8, 576, {{0, 576}}).group, 64);
  EXPECT_EQ(row_encoding(WeightCode::kFp8, 2048, {{0, 683}}).group, 1);
  EXPECT_EQ(row_encoding(WeightCode::kMxfp4, 2880, {{720, 1440}}).group, 16);
  EXPECT_EQ(row_encoding(WeightCode::kFp8, 7168, {{0, 7168}}).record_bytes(), 7168 + 4 * 56);
  EXPECT_EQ(row_encoding(WeightCode::kMxfp4, 2880, {{0, 2880}}).record_bytes(), 1440 + 90);
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
