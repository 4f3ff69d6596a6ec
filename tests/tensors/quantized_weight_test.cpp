// Codes, scales and records of weights in 4 and 8 bits.
#include "gantry/tensors/quantized_weight.h"

#include <gtest/gtest.h>

#include "gantry/tensors/libtorch.h"

namespace gantry::testing {
namespace {

class QuantizedWeight : public ::testing::TestWithParam<WeightCode> {};
INSTANTIATE_TEST_SUITE_P(Codes, QuantizedWeight,
                         ::testing::Values(WeightCode::kNf4, WeightCode::kFp4, WeightCode::kInt8,
                                           WeightCode::kNf4Double, WeightCode::kFp4Double),
                         [](const auto& info) {
                           return std::string(name_of(info.param)) + (is_double(info.param) ? "_double" : "");
                         });

torch::Tensor numbers(std::int64_t rows, std::int64_t columns) {
  return torch::sin(torch::arange(rows * columns, torch::kFloat64) * 1.7).view({rows, columns}) *
         torch::arange(1, rows + 1, torch::kFloat64).unsqueeze(1);
}

// Sizes with full blocks, blocks across rows, and a short last block.
TEST_P(QuantizedWeight, RecordsHaveTheValuesOfCodesAndScales) {
  for (const std::int64_t columns : {128, 64, 44, 7, 1}) {
    const CodedWeight coded = quantize(GetParam(), numbers(5, columns));
    const RowEncoding encoding = row_encoding(GetParam(), columns, {{0, columns}});
    const torch::Tensor records = pack_records(encoding, coded);
    EXPECT_EQ(records.size(1), encoding.record_bytes());
    const torch::Tensor expected = values_of(GetParam(), coded);
    EXPECT_TRUE(torch::equal(unpack_records(encoding, records, torch::kFloat32), expected)) << columns;
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
  if (GetParam() != WeightCode::kInt8) choices = code_values(GetParam());
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

TEST(QuantizedWeight, BytesOfAnElement) {
  EXPECT_EQ(row_encoding(WeightCode::kNf4, 4096, {{0, 4096}}).record_bytes(), 4096 / 2 + 4 * 4096 / 64);
  EXPECT_EQ(row_encoding(WeightCode::kInt8, 4096, {{0, 4096}}).record_bytes(), 4096 + 4);
  EXPECT_EQ(row_encoding(WeightCode::kNf4Double, 4096, {{0, 4096}}).record_bytes(), 4096 / 2 + 4096 / 64 + 8);
  EXPECT_EQ(row_encoding(WeightCode::kNf4Double, 11008, {{0, 11008}}).record_bytes(), 11008 / 2 + 11008 / 64 + 16);
  EXPECT_EQ(row_encoding(WeightCode::kFp4Double, 64, {{9, 9}}).record_bytes(), 0);
}

}  // namespace
}  // namespace gantry::testing
