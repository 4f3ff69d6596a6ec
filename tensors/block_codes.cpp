#include "gantry/tensors/block_codes.h"

#include "gantry/tensors/libtorch.h"

namespace gantry {
namespace {

// The scale of each element.
torch::Tensor spread(const torch::Tensor& scales, std::int64_t block, std::int64_t columns) {
  return scales.unsqueeze(2).expand({-1, -1, block}).reshape({scales.size(0), -1}).narrow(1, 0, columns);
}

}  // namespace

BlockCodes encode_blocks(const torch::Tensor& values, std::int64_t block, const torch::Tensor& table) {
  const std::int64_t rows = values.size(0), columns = values.size(1), blocks = (columns + block - 1) / block;
  const torch::Tensor padded = torch::constant_pad_nd(values, {0, blocks * block - columns});
  const torch::Tensor scales = padded.view({rows, blocks, block}).abs().amax(2);
  const torch::Tensor of_element = spread(scales, block, columns);
  const torch::Tensor relative = torch::where(of_element > 0, values / of_element, torch::zeros_like(values));
  const std::int64_t last = table.size(0) - 1;
  const torch::Tensor middles = (table.narrow(0, 0, last) + table.narrow(0, 1, last)) / 2;
  const torch::Tensor codes =
      torch::bucketize(relative.contiguous(), middles.to(values.device(), values.scalar_type()));
  return {codes.to(torch::kUInt8), scales};
}

torch::Tensor decode_blocks(const BlockCodes& coded, std::int64_t block, const torch::Tensor& table) {
  const torch::Tensor entries = table.to(coded.scales.device(), coded.scales.scalar_type());
  const torch::Tensor values =
      entries.index_select(0, coded.codes.reshape({-1}).to(torch::kInt32)).view_as(coded.codes);
  return values * spread(coded.scales, block, coded.codes.size(1));
}

}  // namespace gantry
