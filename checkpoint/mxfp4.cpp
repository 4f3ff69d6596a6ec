#include "gantry/checkpoint/mxfp4.h"

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
    return stored.size() == 4 ? Shape{stored[0], stored[2] * kMxfp4Columns, stored[1]} : Shape{};
  }
  void check(const Shape& full) const override {
    if (full.size() != 3 || full[1] % kMxfp4Columns != 0)
      throw InputError({blocks_.name, fmt::format("the blocks belong to a weight [{}]", fmt::join(full, ", ")),
                        fmt::format("[experts, in, out] with a multiple of {} inputs", kMxfp4Columns),
                        "check that config.json belongs to these weights"});
    const std::int64_t in_row = full[1] / kMxfp4Columns;
    check_stored_shape(blocks_, blocks_.name, {full[0], full[2], in_row, kMxfp4Columns / 2});
    check_stored_shape(scales_, scales_.name, {full[0], full[2], in_row});
    for (const TensorPlace* place : {&blocks_, &scales_})
      if (place->type() != torch::kUInt8)
        throw InputError({place->name, std::string("the tensor is ") + dtype_name(place->type()), "uint8",
                          "download the file again, because other kinds of blocks are not supported"});
  }
  torch::Tensor decode(const Range& rows) const override {
    return values_of(WeightCode::kMxfp4, coded_rows(rows)).transpose(1, 2).contiguous();
  }
  std::optional<CodedWeight> coded(WeightCode code, const Range& rows) const override {
    if (code != WeightCode::kMxfp4) return std::nullopt;
    return coded_rows(rows);
  }
  std::int64_t rows_at_once() const override { return 1; }

 private:
  CodedWeight coded_rows(const Range& rows) const {
    return mxfp4_codes(blocks_.file->read_slice(blocks_.name, 0, {rows}),
                       scales_.file->read_slice(scales_.name, 0, {rows}));
  }

  TensorPlace blocks_, scales_;
};

}  // namespace

CodedWeight mxfp4_codes(const torch::Tensor& blocks, const torch::Tensor& scales) {
  std::vector<std::int64_t> shape = scales.sizes().vec();
  shape.back() *= kMxfp4Columns;
  const torch::Tensor codes = torch::stack({blocks.bitwise_and(15), blocks.bitwise_right_shift(4)}, -1);
  return {codes.reshape(shape), scales.repeat_interleave(kMxfp4Columns, -1)};
}

std::unique_ptr<EncodedTensor> mxfp4_tensor(TensorPlace blocks, TensorPlace scales) {
  return std::make_unique<Mxfp4Tensor>(std::move(blocks), std::move(scales));
}

}  // namespace gantry
