// Reads the weights of layers and experts that are in memory in 4 or 8 bits (`model.quantize`).
#pragma once

#include "gantry/checkpoint/stored_model.h"
#include "gantry/core/row_encoding.h"
#include "gantry/models/model_family.h"
#include "gantry/tensors/quantized_weight.h"
#include "gantry/tensors/state_source.h"

namespace gantry {

// The full weight [out, in] of a tensor of the files. Codes that the files have are taken as they are; other weights
// are quantised. Throws InputError if the files have codes of another kind or, with mxfp4, no codes.
CodedWeight coded_weight(const StoredModel& model, const models::TensorName& name, const Shape& full, WeightCode code);

// Writes this rank's records of a weight to `held`, whose tensor they are. Returns the number of bytes that were read.
// Throws InputError if the blocks of the files are smaller than scale_block(code) or kScalesOfBlock.
std::uint64_t load_records(const StoredModel& model, const models::TensorName& name, const HeldTensor& held,
                           const Coordinates& coordinates, WeightCode code);

// Refuses weights in 4 or 8 bits where a full model is saved or loaded: throws UsageError with the name of one.
void refuse_records(const HeldTensor& held);

}  // namespace gantry
