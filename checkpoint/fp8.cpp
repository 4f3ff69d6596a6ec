#include "gantry/checkpoint/fp8.h"

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "gantry/core/error.h"
#include "gantry/tensors/libtorch.h"

namespace gantry {
namespace {

constexpr std::int64_t kDecodedAtOnce = std::int64_t{1} << 22;  // elements

std::int64_t blocks_of(std::int64_t size, std::int64_t block) { return (size + block - 1) / block; }

class Fp8Tensor : public EncodedTensor {
 public:
  Fp8Tensor(TensorPlace values, TensorPlace scales, const Fp8Block& block)
      : values_(std::move(values)), scales_(std::move(scales)) {
    const Shape& shape = values_.shape();
    if (shape.size() != 2 && shape.size() != 3) refuse_scales();
    rows_ = shape[shape.size() - 2];
    columns_ = shape.back();
    find_block(block);
  }

  std::string stored_name() const override { return values_.name; }
  Shape shape() const override { return values_.shape(); }
  void check(const Shape& expected) const override { check_stored_shape(values_, values_.name, expected); }

  torch::Tensor decode(const Range& rows) const override {
    return stored_rows(rows).to(torch::kFloat32) * scales_of_rows(rows);
  }
  std::optional<CodedWeight> coded(WeightCode code, const Range& rows) const override {
    if (code != WeightCode::kFp8) return std::nullopt;
    if (values_.type() != torch::kFloat8_e4m3fn)
      throw InputError({values_.name, "the weight is stored in float8_e5m2", "float8_e4m3fn with model.quantize: fp8",
                        "remove model.quantize: the weights are then decoded"});
    return CodedWeight{stored_rows(rows).contiguous().view(torch::kUInt8), scales_of_rows(rows).contiguous()};
  }

  std::int64_t rows_at_once() const override {
    if (values_.shape().size() == 3) return 1;
    const std::int64_t rows = kDecodedAtOnce / std::max<std::int64_t>(columns_, 1) / block_.rows * block_.rows;
    return std::max(block_.rows, rows);
  }

 private:
  [[noreturn]] void refuse_scales() const {
    throw InputError({scales_.name,
                      fmt::format("the scales have the shape [{}] for a weight [{}]", fmt::join(scales_.shape(), ", "),
                                  fmt::join(values_.shape(), ", ")),
                      "one scale for each block, each row, or all values",
                      "check that config.json belongs to these weights"});
  }

  // Determines the size of a block from the shape of the scales.
  void find_block(const Fp8Block& block) {
    if (!c10::isFloatingType(scales_.type()))
      throw InputError({scales_.name, std::string("the scales are ") + dtype_name(scales_.type()), "real numbers",
                        "use weights with another encoding"});
    Shape own = scales_.shape();
    if (values_.shape().size() == 3 && !own.empty() && elements_of(own) != 1) {
      if (own.front() != values_.shape().front()) refuse_scales();
      own.erase(own.begin());
    }
    scale_shape_ = {blocks_of(rows_, block.rows), blocks_of(columns_, block.columns)};
    if (elements_of(own) == 1) {
      scale_shape_ = {1, 1};
      block_ = {std::max<std::int64_t>(rows_, 1), std::max<std::int64_t>(columns_, 1)};
    } else if (own == scale_shape_) {
      block_ = block;
    } else if (own == Shape{rows_, 1} || own == Shape{rows_}) {
      scale_shape_ = {rows_, 1};
      block_ = {1, std::max<std::int64_t>(columns_, 1)};
    } else {
      refuse_scales();
    }
  }

  torch::Tensor stored_rows(const Range& rows) const { return values_.file->read_slice(values_.name, 0, {rows}); }

  // Returns the scale of each element.
  torch::Tensor scales_of_rows(const Range& rows) const {
    const torch::Tensor scales = scales_.file->read(scales_.name).to(torch::kFloat32);
    if (values_.shape().size() == 2) {
      const std::int64_t first = rows.begin / block_.rows;
      return spread(scales.view(scale_shape_).narrow(0, first, blocks_of(rows.size(), block_.rows)), rows.size());
    }
    std::vector<torch::Tensor> experts;
    for (std::int64_t expert = rows.begin; expert < rows.end; ++expert)
      experts.push_back(spread((scales.numel() == 1 ? scales : scales[expert]).view(scale_shape_), rows_));
    return torch::stack(experts);
  }

  torch::Tensor spread(const torch::Tensor& scales, std::int64_t rows) const {
    return scales.repeat_interleave(block_.rows, 0)
        .narrow(0, 0, rows)
        .repeat_interleave(block_.columns, 1)
        .narrow(1, 0, columns_);
  }

  TensorPlace values_, scales_;
  std::int64_t rows_ = 0, columns_ = 0;
  Fp8Block block_;
  Shape scale_shape_;  // shape of the scales of one matrix
};

}  // namespace

std::unique_ptr<EncodedTensor> fp8_tensor(TensorPlace values, TensorPlace scales, const Fp8Block& block) {
  return std::make_unique<Fp8Tensor>(std::move(values), std::move(scales), block);
}

}  // namespace gantry
