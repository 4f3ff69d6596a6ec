// Double quantization: scales in 8 bits.
#include "gantry/tensors/double_scales.h"

#include <algorithm>
#include <cmath>
#include <gtest/gtest.h>
#include <vector>

#include "gantry/tensors/libtorch.h"
#include "gantry/tensors/quantized_weight.h"

namespace gantry::testing {
namespace {

// The formula of the table, in float64.
std::vector<double> exact_table() {
  std::vector<double> values = {0, 1};
  for (int decade = 0; decade < 7; ++decade)
    for (int step = 0; step < 1 << decade; ++step)
      for (const int sign : {-1, 1})
        values.push_back(sign * std::pow(10.0, decade - 6) * (0.1 + 0.9 * (step + 0.5) / (1 << decade)));
  std::ranges::sort(values);
  return values;
}

torch::Tensor some_weight(std::int64_t rows, std::int64_t columns) {
  const torch::Tensor index = torch::arange(rows * columns, torch::kFloat64);
  return (torch::sin(index * 1.7) * (0.02 + 0.01 * torch::cos(index * 0.003)))
      .to(torch::kFloat32)
      .view({rows, columns});
}

TEST(DoubleScales, TheTableIsTheDynamicMap) {
  const torch::Tensor expected = torch::tensor(exact_table(), torch::kFloat64);
  ASSERT_EQ(scale_table().numel(), 256);
  EXPECT_LE((scale_table().to(torch::kFloat64) - expected).abs().div(expected.abs() + 1e-9).max().item<double>(), 2e-7);
}

// Compares single values with the formula. With 120 columns, blocks extend across rows, and the last blocks
// are not full.
TEST(DoubleScales, ValuesAreThoseOfTheFormula) {
  const std::int64_t rows = 300, columns = 120;
  const torch::Tensor weight = some_weight(rows, columns), flat = weight.view({-1});
  std::vector<float> scales;
  for (std::int64_t first = 0; first < flat.numel(); first += 64)
    scales.push_back(flat.slice(0, first, first + 64).abs().max().item<float>());
  double sum = 0;
  for (const float scale : scales) sum += scale;
  const auto mean = static_cast<float>(sum / static_cast<double>(scales.size()));
  const std::vector<double> table = exact_table();
  std::vector<float> decoded(scales.size());
  for (std::size_t first = 0; first < scales.size(); first += 256) {
    const std::size_t end = std::min(scales.size(), first + 256);
    float largest = 0;
    for (std::size_t i = first; i < end; ++i) largest = std::max(largest, std::abs(scales[i] - mean));
    for (std::size_t i = first; i < end; ++i) {
      const double relative = (scales[i] - mean) / largest;
      const auto nearest = std::ranges::min_element(
          table, [&](double one, double other) { return std::abs(one - relative) < std::abs(other - relative); });
      decoded[i] = static_cast<float>(*nearest * largest) + mean;
    }
  }
  const torch::Tensor of_element = torch::tensor(decoded).repeat_interleave(64).narrow(0, 0, flat.numel());
  const CodedWeight plain = quantize(WeightCode::kNf4, weight), nested = quantize(WeightCode::kNf4Double, weight);
  EXPECT_TRUE(torch::equal(plain.codes, nested.codes));
  const torch::Tensor expected =
      code_values(WeightCode::kNf4).index_select(0, plain.codes.view({-1}).to(torch::kInt64)) * of_element;
  EXPECT_LE((values_of(WeightCode::kNf4Double, nested).view({-1}) - expected).abs().max().item<float>(), 1e-8F);
  EXPECT_GT((values_of(WeightCode::kNf4, plain).view({-1}) - expected).abs().max().item<float>(), 1e-6F);
}

// Blocks of 16384 elements end within rows: records have more than one run. Parts of the rows, as tensor parallel ranks
// hold them, and of the inputs in two ranges.
TEST(DoubleScales, RecordsOfRowsAcrossBlocks) {
  for (const std::int64_t columns : {11008, 5000, 16384, 20000, 4096}) {
    const CodedWeight coded = quantize(WeightCode::kFp4Double, some_weight(5, columns));
    const torch::Tensor values = values_of(WeightCode::kFp4Double, coded);
    const std::int64_t half = columns / 2;
    for (const std::vector<Range>& held :
         std::vector<std::vector<Range>>{{{0, columns}}, {{0, half}}, {{half, columns}}, {{8, 72}, {half, columns}}}) {
      const auto part = [&](const torch::Tensor& tensor) {
        std::vector<torch::Tensor> pieces;
        for (const Range& range : held) pieces.push_back(tensor.slice(1, range.begin, range.end));
        return torch::cat(pieces, 1);
      };
      const RowEncoding encoding = row_encoding(WeightCode::kFp4Double, columns, held);
      const CodedWeight mine = for_each(coded, part);
      ASSERT_TRUE(has_scales_of(encoding, mine)) << columns;
      const torch::Tensor records = pack_records(encoding, mine);
      EXPECT_EQ(records.size(1), encoding.record_bytes());
      EXPECT_TRUE(torch::equal(unpack_records(encoding, records, torch::kFloat32), part(values))) << columns;
      // Only rows, as ZeRO holds them.
      EXPECT_TRUE(torch::equal(unpack_records(encoding, records.narrow(0, 3, 1), torch::kFloat32),
                               part(values).narrow(0, 3, 1)));
    }
  }
}

TEST(DoubleScales, RowsWithOtherBlocksHaveNoRecord) {
  const RowEncoding encoding = row_encoding(WeightCode::kNf4Double, 128, {{0, 128}});
  CodedWeight weight = quantize(WeightCode::kNf4Double, some_weight(4, 128));
  EXPECT_TRUE(has_scales_of(encoding, weight));
  weight.scales = weight.scales.clone();
  weight.scales.slice(1, 64) += 1;  // two factors in a row of one block
  EXPECT_FALSE(has_scales_of(encoding, weight));
  weight = quantize(WeightCode::kNf4Double, some_weight(4, 128));
  weight.means = weight.means.clone();
  weight.means.slice(1, 64) += 1;
  EXPECT_FALSE(has_scales_of(encoding, weight));
  weight = quantize(WeightCode::kNf4Double, some_weight(4, 128));
  weight.scale_codes[0][3] += 1;
  EXPECT_FALSE(has_scales_of(encoding, weight));
}

// The expected numbers are those of quantize_4bit(compress_statistics=True) in bitsandbytes 0.50.2.
TEST(DoubleScales, AreThoseOfBitsandbytes) {
  const torch::Tensor index = torch::arange(1024, torch::kFloat64), block = (index / 64).floor();
  const torch::Tensor weight = torch::sin(index * 1.7) * (0.02 + 0.01 * torch::cos(block * 0.3));
  struct Expected {
    WeightCode code;
    std::vector<float> values;  // one of each hundred
  };
  for (const auto& [code, values] :
       {Expected{WeightCode::kNf4Double,
                 {0, 0.009995521977543831F, 0.018991656601428986F, 0.023620979860424995F, 0.017724523320794106F,
                  0.014976766891777515F, 0.007955494336783886F, 0.005725455470383167F, 0.0037184555549174547F, 0,
                  -0.0070650940760970116F}},
        Expected{WeightCode::kFp4Double,
                 {0, 0.009859990328550339F, 0.01751294732093811F, 0.023620979860424995F, 0.017724523320794106F,
                  0.014976766891777515F, 0.01100410707294941F, 0.006784313824027777F, 0.0036680358462035656F,
                  -7.886612002039328e-05F, -0.005963350646197796F}}}) {
    const CodedWeight coded = quantize(code, weight.view({8, 128}));
    EXPECT_FLOAT_EQ(coded.means[0][0].item<float>(), 0.01822294481098652F);
    EXPECT_FLOAT_EQ(coded.scales[7][127].item<float>(), 0.011770842596888542F);
    EXPECT_TRUE(torch::equal(
        coded.scale_codes.view({-1}).slice(0, 0, 1024, 64),
        torch::tensor({255, 252, 244, 232, 216, 198, 84, 51, 37, 27, 22, 22, 27, 37, 52, 89}, torch::kUInt8)));
    const torch::Tensor decoded = values_of(code, coded).view({-1}).slice(0, 0, 1024, 100);
    EXPECT_TRUE(torch::allclose(decoded, torch::tensor(values), 1e-6, 1e-12)) << decoded;
  }
}

}  // namespace
}  // namespace gantry::testing
