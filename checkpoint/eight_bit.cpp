#include "gantry/checkpoint/eight_bit.h"

#include <algorithm>
#include <fmt/format.h>

#include "gantry/core/error.h"
#include "gantry/tensors/libtorch.h"

namespace gantry {
namespace {

constexpr std::int64_t kEightBitAtOnce = std::int64_t{1} << 22;  // elements

class EightBitTensor : public EncodedTensor {
 public:
  EightBitTensor(TensorPlace codes, TensorPlace scales) : codes_(std::move(codes)), scales_(std::move(scales)) {}

  std::string stored_name() const override { return codes_.name; }
  Shape shape() const override { return codes_.shape(); }
  torch::ScalarType type() const override { return torch::kFloat16; }
  void check(const Shape& expected) const override { check_stored_shape(codes_, codes_.name, expected); }

  torch::Tensor decode(const Range& rows) const override { return values_of(WeightCode::kInt8, coded_rows(rows)); }
  std::int64_t rows_at_once() const override {
    return std::max<std::int64_t>(1, kEightBitAtOnce / std::max<std::int64_t>(1, shape().back()));
  }
  std::optional<CodedWeight> coded(WeightCode code, const Range& rows) const override {
    if (code != WeightCode::kInt8)
      throw InputError({codes_.name, "the weight is stored in int8",
                        fmt::format("{}, as in model.quantize", name_of(code)), "set model.quantize to int8"});
    return coded_rows(rows);
  }

 private:
  CodedWeight coded_rows(const Range& rows) const {
    const torch::Tensor codes = codes_.file->read_slice(codes_.name, 0, {rows}).contiguous();
    const torch::Tensor scales = scales_.file->read_slice(scales_.name, 0, {rows}).to(torch::kFloat32);
    return {codes.view(torch::kUInt8), scales.unsqueeze(1).expand_as(codes).contiguous()};
  }

  TensorPlace codes_, scales_;
};

}  // namespace

std::unique_ptr<EncodedTensor> eight_bit_tensor(TensorPlace codes, TensorPlace scales,
                                                const std::optional<TensorPlace>& format) {
  if (codes.shape().size() != 2 || codes.type() != torch::kInt8)
    throw InputError({codes.name,
                      fmt::format("the tensor is {}, but it has the scales {}", dtype_name(codes.type()), scales.name),
                      "int8 with two dimensions", "use weights with another encoding"});
  check_stored_shape(scales, scales.name, {codes.shape().front()});
  if (!c10::isFloatingType(scales.type()))
    throw InputError({scales.name, std::string("the scales are ") + dtype_name(scales.type()), "real numbers",
                      "download the file again"});
  if (format && format->file->read(format->name).to(torch::kInt64).sum().item<std::int64_t>() != 0)
    throw InputError({format->name, "the codes are stored in the order of a kernel",
                      "the order of the weight, format 0", "save the model with a newer version of bitsandbytes"});
  return std::make_unique<EightBitTensor>(std::move(codes), std::move(scales));
}

}  // namespace gantry
