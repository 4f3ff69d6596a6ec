#include "gantry/tensors/double_scales.h"

#include <cmath>
#include <vector>

#include "gantry/tensors/block_codes.h"
#include "gantry/tensors/libtorch.h"

namespace gantry {
namespace {

constexpr int kDecadesOfScales = 7;

// In each power of ten the middles of even steps, twice as many as in the one below, with both signs. 0 and 1 complete
// it. The operations are those of bitsandbytes, whose float32 roundings are part of the values.
torch::Tensor make_scale_table() {
  std::vector<torch::Tensor> values = {torch::tensor({0.F, 1.F})};
  for (int decade = 0; decade < kDecadesOfScales; ++decade) {
    const std::int64_t steps = std::int64_t{1} << decade;
    const torch::Tensor ends = torch::linspace(0.1, 1, steps + 1, torch::kFloat32);
    const torch::Tensor middles = (ends.narrow(0, 0, steps) + ends.narrow(0, 1, steps)) / 2;
    const torch::Tensor scaled = middles * std::pow(10.0, decade - (kDecadesOfScales - 1));
    values.push_back(scaled);
    values.push_back(-scaled);
  }
  return std::get<0>(torch::cat(values).sort());
}

// The index of the run of each scale: it grows by 1 where a factor differs from the one before.
torch::Tensor runs_of(const torch::Tensor& factors) {
  const std::int64_t others = factors.size(1) - 1;
  const torch::Tensor grows = factors.narrow(1, 1, others).ne(factors.narrow(1, 0, others));
  return torch::constant_pad_nd(grows.to(torch::kInt64), {1, 0}).cumsum(1);
}

// A copy, because a dimension of size 1 may have another stride in contiguous tensors, which view() refuses.
torch::Tensor bytes_of(const torch::Tensor& numbers) {
  return numbers.clone(at::MemoryFormat::Contiguous).view(torch::kUInt8);
}

// Numbers of four bytes. The copy starts at an address that is a multiple of four.
torch::Tensor numbers_of(const torch::Tensor& bytes, std::int64_t first, std::int64_t count, torch::ScalarType type) {
  return bytes.narrow(1, 4 * first, 4 * count).clone(at::MemoryFormat::Contiguous).view(type);
}

}  // namespace

const torch::Tensor& scale_table() {
  static const torch::Tensor table = make_scale_table();
  return table;
}

DoubleScales encode_scales(const torch::Tensor& scales) {
  // The sum in float64 has the same float32 mean for every number of threads.
  const torch::Tensor mean = scales.mean(torch::kFloat64).to(torch::kFloat32).view({1});
  const BlockCodes coded = encode_blocks((scales - mean).unsqueeze(0), kScalesOfBlock, scale_table());
  return {coded.codes.squeeze(0), coded.scales.squeeze(0), mean};
}

torch::Tensor decode_scales(const DoubleScales& scales) {
  const torch::Tensor table = scale_table().to(scales.codes.device());
  const torch::Tensor values =
      table.index_select(0, scales.codes.reshape({-1}).to(torch::kInt32)).view_as(scales.codes);
  return values * scales.factors + scales.means;
}

torch::Tensor pack_double_scales(const RowEncoding& encoding, const DoubleScales& scales) {
  const std::int64_t rows = scales.codes.size(0);
  const torch::Tensor runs = runs_of(scales.factors);
  torch::Tensor factors = torch::zeros({rows, encoding.runs}, scales.factors.options());
  factors.scatter_(1, runs, scales.factors);
  std::vector<torch::Tensor> parts = {bytes_of(scales.means.narrow(1, 0, 1)), bytes_of(factors)};
  for (std::int64_t run = 0; run + 1 < encoding.runs; ++run)
    parts.push_back(bytes_of((runs.le(run).sum(1, /*keepdim=*/true) * encoding.group).to(torch::kInt32)));
  parts.push_back(scales.codes);
  return torch::cat(parts, 1);
}

std::int64_t most_runs(const torch::Tensor& factors) {
  return factors.numel() == 0 ? 0 : runs_of(factors).max().item<std::int64_t>() + 1;
}

torch::Tensor unpack_double_scales(const RowEncoding& encoding, const torch::Tensor& bytes) {
  const std::int64_t count = encoding.scales(), runs = encoding.runs;
  torch::Tensor factors = numbers_of(bytes, 1, runs, torch::kFloat32);
  if (runs > 1) {
    const torch::Tensor ends = numbers_of(bytes, 1 + runs, runs - 1, torch::kInt32);
    const torch::Tensor firsts = torch::arange(count, ends.options()).mul_(encoding.group).unsqueeze(0);
    torch::Tensor of_scale = torch::zeros({bytes.size(0), count}, ends.options().dtype(torch::kInt64));
    for (std::int64_t run = 0; run + 1 < runs; ++run) of_scale += firsts.ge(ends.narrow(1, run, 1));
    factors = factors.gather(1, of_scale);
  }
  const torch::Tensor codes = bytes.narrow(1, 8 * runs, count);
  return decode_scales({codes, factors, numbers_of(bytes, 0, 1, torch::kFloat32)});
}

}  // namespace gantry
