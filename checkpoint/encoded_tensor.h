// A weight that files store in fewer bits, together with scales. It is decoded in pieces, so that memory
// never holds it twice in full.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "gantry/checkpoint/safetensors.h"
#include "gantry/core/slice.h"
#include "gantry/tensors/quantized_weight.h"

namespace gantry {

// A tensor of one of the model's files, by its name there.
struct TensorPlace {
  const SafetensorsFile* file = nullptr;
  std::string name;

  const Shape& shape() const { return file->shape(name); }
  torch::ScalarType type() const { return file->dtype(name); }
};

class EncodedTensor {
 public:
  virtual ~EncodedTensor() = default;
  virtual std::string stored_name() const = 0;  // the name of the decoded tensor in the files
  virtual Shape shape() const = 0;              // shape of the decoded tensor
  // Element type of the decoded tensor in exported files.
  virtual torch::ScalarType type() const { return torch::kBFloat16; }
  // Throws InputError if the files do not encode a tensor of this shape, or have another encoding.
  virtual void check(const Shape& expected) const = 0;
  // Decodes `rows` of the first dimension to float32. They begin at a multiple of rows_at_once().
  virtual torch::Tensor decode(const Range& rows) const = 0;
  virtual std::int64_t rows_at_once() const = 0;
  // The codes of `rows` of the first dimension, or of all, if the files have codes that can be used without decoding.
  // Throws InputError if they are of another kind than `code`. The rows begin at a multiple of rows_at_once(). Stacks
  // in mxfp4 are [experts, out, in], the order of their blocks.
  virtual std::optional<CodedWeight> coded(WeightCode, const Range& /*rows*/) const { return std::nullopt; }
  std::optional<CodedWeight> coded(WeightCode code) const { return coded(code, {0, shape().front()}); }
};

// Throws InputError if a tensor has another shape.
void check_stored_shape(const TensorPlace& place, const std::string& name, const Shape& expected);
// Throws InputError if the elements of a tensor are not real numbers, for example codes of an unknown
// encoding.
void check_stored_real(const TensorPlace& place, const std::string& name);

}  // namespace gantry
