// Codes, scales and records of weights in 4 and 8 bits.
#include "gantry/tensors/quantized_weight.h"

#include <cmath>
#include <gtest/gtest.h>

#include "gantry/tensors/libtorch.h"

namespace gantry::testing {
namespace {

class QuantizedWeight : public ::testing::TestWithParam<WeightCode> {};
INSTANTIATE_TEST_SUITE_P(Codes, QuantizedWeight,
                         ::testing::Values(WeightCode::kNf4, WeightCode::kFp4, WeightCode::kInt8,
                                           WeightCode::kNf4Double, WeightCode::kFp4Double, WeightCode::kFp8),
                         [](const auto& info) {
                           return std::string(name_of(info.param)) + (is_double(info.param) ? "_double" : "");
                         });

torch::Tensor numbers(std::int64_t rows, std::int64_t columns) {
  return torch::sin(torch::arange(rows * columns, torch::kFloat64) * 1.7).view({rows, columns}) *
         torch::arange(1, rows + 1, torch::kFloat64).unsqueeze(1);
}

// Sizes with full blocks, blocks across rows, and a short last block.
TEST_P(QuantizedWeight, RecordsHaveTheValuesOfCodesAndScales) {
  for (const std::int64_t rows : {5, 1})
    for (const std::int64_t columns : {160, 128, 64, 44, 24, 7, 1}) {
      const CodedWeight coded = quantize(GetParam(), numbers(rows, columns));
      const RowEncoding encoding = row_encoding(GetParam(), columns, {{0, columns}});
      const torch::Tensor records = pack_records(encoding, coded);
      EXPECT_EQ(records.size(1), encoding.record_bytes());
      const torch::Tensor expected = values_of(GetParam(), coded);
      EXPECT_TRUE(torch::equal(unpack_records(encoding, records, torch::kFloat32), expected)) << rows << " " << columns;
      EXPECT_TRUE(torch::equal(unpack_records(encoding, records, torch::kBFloat16), expected.to(torch::kBFloat16)));
    }
}

TEST_P(QuantizedWeight, PartsOfTheInputsHaveTheValuesOfTheWhole) {
  const CodedWeight coded = quantize(GetParam(), numbers(4, 96));
  const torch::Tensor full = values_of(GetParam(), coded);
  for (const Range part : {Range{0, 96}, Range{32, 96}, Range{64, 96}, Range{5, 12}, Range{5, 37}, Range{9, 9}}) {
    const RowEncoding encoding = row_encoding(GetParam(), 96, {part});
    const CodedWeight mine =
        for_each(coded, [&](const torch::Tensor& tensor) { return tensor.narrow(1, part.begin, part.size()); });
    EXPECT_TRUE(has_scales_of(encoding, mine));
    const torch::Tensor values = unpack_records(encoding, pack_records(encoding, mine), torch::kFloat32);
    EXPECT_TRUE(torch::equal(values, full.narrow(1, part.begin, part.size()))) << part.begin;
  }
}

TEST_P(QuantizedWeight, EachCodeIsTheNearestOne) {
  const torch::Tensor weight = numbers(3, 64).to(torch::kFloat32);
  const CodedWeight coded = quantize(GetParam(), weight);
  torch::Tensor choices = torch::arange(-127, 128, torch::kFloat32) / 127;
  if (GetParam() != WeightCode::kInt8) choices = code_values(GetParam()).nan_to_num(0);
  if (is_double(GetParam())) {  // nearest with the scales before they are quantised
    EXPECT_TRUE(torch::equal(coded.codes, quantize(*weight_code(name_of(GetParam())), weight).codes));
    return;
  }
  const torch::Tensor distances = (weight.unsqueeze(-1) - coded.scales.unsqueeze(-1) * choices).abs().amin(-1);
  EXPECT_LE(((values_of(GetParam(), coded) - weight).abs() - distances).abs().max().item<float>(), 1e-6F);
}

TEST_P(QuantizedWeight, ZerosStayZeros) {
  const torch::Tensor zeros = torch::zeros({2, 70});
  EXPECT_TRUE(torch::equal(values_of(GetParam(), quantize(GetParam(), zeros)).abs(), zeros));
}

// Each block of 128 rows and columns has a scale that maps its largest magnitude to the largest code.
TEST(QuantizedWeight, Fp8HasAScaleForEachBlock) {
  torch::Tensor weight = torch::zeros({2, 200, 140});
  weight[0][3][5] = 896;
  weight[0][130][2] = -44.8;
  weight[1][199][139] = 448;
  weight[1][199][138] = 100;
  const CodedWeight coded = quantize(WeightCode::kFp8, weight);
  ASSERT_EQ(coded.scales.sizes(), weight.sizes());
  EXPECT_EQ(coded.scales[0][127][127].item<float>(), 2);
  EXPECT_EQ(coded.scales[0][128][127].item<float>(), 44.8F / 448);
  EXPECT_EQ(coded.scales[0][127][128].item<float>(), 0);
  EXPECT_EQ(coded.scales[1][128][128].item<float>(), 1);
  const torch::Tensor values = values_of(WeightCode::kFp8, coded);
  EXPECT_EQ(values[0][3][5].item<float>(), 896);
  EXPECT_EQ(values[0][130][2].item<float>(), -44.8F);
  EXPECT_EQ(values[1][199][138].item<float>(), 96);  // the even one of the neighbours 96 and 104
  EXPECT_EQ(values.count_nonzero().item<std::int64_t>(), 4);
}

// All codes with the smallest, the largest and an invalid exponent; parts of rows have groups of their own.
TEST(QuantizedWeight, Mxfp4RecordsHaveThePowersOfTwo) {
  const torch::Tensor codes = torch::arange(4 * 64).remainder(16).to(torch::kUInt8).view({4, 64});
  const torch::Tensor scales =
      torch::tensor({0, 1, 127, 126, 253, 130, 255, 127}, torch::kUInt8).view({4, 2}).repeat_interleave(32, 1);
  const CodedWeight weight{codes, scales};
  const torch::Tensor values = values_of(WeightCode::kMxfp4, weight);
  EXPECT_EQ(values[0][1].item<float>(), std::ldexp(0.5F, -127));
  EXPECT_EQ(values[1][7].item<float>(), 6);
  EXPECT_EQ(values[1][34].item<float>(), 0.5F);
  EXPECT_EQ(values[2][15].item<float>(), -6 * std::ldexp(1.0F, 126));
  EXPECT_TRUE(values[3].narrow(0, 0, 32).isnan().all().item<bool>());
  for (const Range part : {Range{0, 64}, Range{32, 64}, Range{16, 48}, Range{5, 38}}) {
    const RowEncoding encoding = row_encoding(WeightCode::kMxfp4, 64, {part});
    const CodedWeight mine =
        for_each(weight, [&](const torch::Tensor& tensor) { return tensor.narrow(1, part.begin, part.size()); });
    ASSERT_TRUE(has_scales_of(encoding, mine));
    const torch::Tensor records = pack_records(encoding, mine);
    EXPECT_EQ(records.size(1), encoding.record_bytes());
    EXPECT_TRUE(torch::allclose(unpack_records(encoding, records, torch::kFloat32),
                                values.narrow(1, part.begin, part.size()), 0, 0, /*equal_nan=*/true));
  }
}

TEST(QuantizedWeight, BytesOfAnElement) {
  EXPECT_EQ(row_encoding(WeightCode::kNf4, 4096, {{0, 4096}}).record_bytes(), 4096 / 2 + 4 * 4096 / 64);
  EXPECT_EQ(row_encoding(WeightCode::kInt8, 4096, {{0, 4096}}).record_bytes(), 4096 + 4);
  EXPECT_EQ(row_encoding(WeightCode::kNf4Double, 4096, {{0, 4096}}).record_bytes(), 4096 / 2 + 4096 / 64 + 8);
  EXPECT_EQ(row_encoding(WeightCode::kNf4Double, 11008, {{0, 11008}}).record_bytes(), 11008 / 2 + 11008 / 64 + 16);
  EXPECT_EQ(row_encoding(WeightCode::kFp4Double, 64, {{9, 9}}).record_bytes(), 0);
}

}  // namespace
}  // namespace gantry::testing
