// Sums over ranks on plain memory, shared by the backends so that they give the same bits: element by element, in rank
// order, half precisions in float32 rounded once.
#pragma once

#include "gantry/comm/process_group.h"
#include "gantry/tensors/tensor.h"

namespace gantry {

// Who copies a sum on does so by pieces of as many bytes: they are still in the first-level cache.
inline constexpr std::int64_t kReducePieceBytes = 8 << 10;

// out[i] = inputs[0][i] op inputs[1][i] op ...; out may be one of the inputs. ConfigError-free: types without an order
// or sum (bool, complex) throw UsageError.
void reduce_span(void* out, const void* const* inputs, int count, std::int64_t elements, torch::ScalarType type,
                 ReduceOp op);

// The same in steps, for sums whose terms are not in one place. A running sum has float32 elements for half precisions,
// else the type's own: sum_item(type) bytes each. extend_sum() adds the inputs, beginning it unless `begun`;
// round_sum() gives its values in the type.
std::int64_t sum_item(torch::ScalarType type);
void extend_sum(void* running, bool begun, const void* const* inputs, int count, std::int64_t elements,
                torch::ScalarType type, ReduceOp op);
void round_sum(void* out, const void* running, std::int64_t elements, torch::ScalarType type);

}  // namespace gantry
