#include "gantry/checkpoint/mxfp4.h"

#include <array>
#include <cmath>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "gantry/core/error.h"
#include "gantry/tensors/libtorch.h"

namespace gantry {
namespace {

class Mxfp4Tensor : public EncodedTensor {
 public:
  Mxfp4Tensor(TensorPlace blocks, TensorPlace scales) : blocks_(std::move(blocks)), scales_(std::move(scales)) {}

  std::string stored_name() const override {
    return blocks_.name.substr(0, blocks_.name.size() - std::string(kMxfp4Blocks).size());
  }
  Shape shape() const override {
    const Shape& stored = blocks_.shape();
    return stored.size() == 4 ? Shape{stored[0], stored[2] * kMxfp4Block, stored[1]} : Shape{};
  }
  void check(const Shape& full) const override {
    if (full.size() != 3 || full[1] % kMxfp4Block != 0)
      throw InputError({blocks_.name, fmt::format("the blocks belong to a weight [{}]", fmt::join(full, ", ")),
                        fmt::format("[experts, in, out] with a multiple of {} inputs", kMxfp4Block),
                        "check that config.json belongs to these weights"});
    const std::int64_t in_row = full[1] / kMxfp4Block;
    check_stored_shape(blocks_, blocks_.name, {full[0], full[2], in_row, kMxfp4Block / 2});
    check_stored_shape(scales_, scales_.name, {full[0], full[2], in_row});
    for (const TensorPlace* place : {&blocks_, &scales_})
      if (place->type() != torch::kUInt8)
        throw InputError({place->name, std::string("the tensor is ") + dtype_name(place->type()), "uint8",
                          "download the file again, because other kinds of blocks are not supported"});
  }
  torch::Tensor decode(const Range& rows) const override {
    const torch::Tensor values = mxfp4_values(blocks_.file->read_slice(blocks_.name, 0, {rows}),
                                              scales_.file->read_slice(scales_.name, 0, {rows}));
    return values.transpose(1, 2).contiguous();
  }
  std::int64_t rows_at_once() const override { return 1; }

 private:
  TensorPlace blocks_, scales_;
};

}  // namespace

torch::Tensor mxfp4_values(const torch::Tensor& blocks, const torch::Tensor& scales) {
  // By bits: sign, two of exponent, one of mantissa.
  constexpr std::array<float, 16> kNumbers = {0, .5F, 1, 1.5F, 2, 3, 4, 6, -0.F, -.5F, -1, -1.5F, -2, -3, -4, -6};
  const torch::Tensor packed = blocks.contiguous(), exponents = scales.contiguous();
  std::vector<std::int64_t> shape(exponents.sizes().begin(), exponents.sizes().end());
  shape.back() *= kMxfp4Block;
  torch::Tensor values = torch::empty(shape, torch::kFloat32);
  const auto* byte = packed.const_data_ptr<std::uint8_t>();
  const auto* exponent = exponents.const_data_ptr<std::uint8_t>();
  auto* value = values.data_ptr<float>();
  for (std::int64_t block = 0; block < exponents.numel(); ++block) {
    const float scale = exponent[block] == 255 ? NAN : std::ldexp(1.0F, exponent[block] - 127);
    for (int i = 0; i < kMxfp4Block / 2; ++i, ++byte) {
      *value++ = kNumbers[*byte & 15] * scale;
      *value++ = kNumbers[*byte >> 4] * scale;
    }
  }
  return values;
}

std::unique_ptr<EncodedTensor> mxfp4_tensor(TensorPlace blocks, TensorPlace scales) {
  return std::make_unique<Mxfp4Tensor>(std::move(blocks), std::move(scales));
}

}  // namespace gantry
