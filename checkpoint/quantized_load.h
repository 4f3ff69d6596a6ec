// Reads the weights of layers and experts that are in memory in 4 or 8 bits (`model.quantize`).
#pragma once

#include "gantry/checkpoint/stored_model.h"
#include "gantry/core/row_encoding.h"
#include "gantry/models/model_family.h"
#include "gantry/tensors/quantized_weight.h"
#include "gantry/tensors/state_source.h"

namespace gantry {

// Returns the full weight [out, in] from a tensor of the files. Codes in the files are used unchanged; other
// weights are quantised. Throws InputError if the files have codes of another kind or, with mxfp4, no codes.
CodedWeight coded_weight(const StoredModel& model, const models::TensorName& name, const Shape& full, WeightCode code);

// Writes this rank's records of a weight to the tensor of `held`. Returns the number of bytes that were read.
// Throws InputError if the blocks of the files are smaller than scale_block(code) or kScalesOfBlock.
std::uint64_t load_records(const StoredModel& model, const models::TensorName& name, const HeldTensor& held,
                           const Coordinates& coordinates, WeightCode code);

// Throws UsageError, naming the weight, for a weight in 4 or 8 bits. For code that saves or loads a full
// model.
void refuse_records(const HeldTensor& held);

}  // namespace gantry
