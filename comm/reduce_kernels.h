// Reductions over ranks in host memory. All backends use them, so that their results are bitwise identical:
// element by element, in rank order, half precisions in float32 and rounded once.
#pragma once

#include "gantry/comm/process_group.h"
#include "gantry/tensors/tensor.h"

namespace gantry {

// Piece size for callers that also copy a reduction's result: a piece is still in the first-level cache then.
inline constexpr std::int64_t kReducePieceBytes = 8 << 10;

// out[i] = inputs[0][i] op inputs[1][i] op ...; out may be one of the inputs. Throws UsageError for types
// without an order or a sum (bool, complex).
void reduce_span(void* out, const void* const* inputs, int count, std::int64_t elements, torch::ScalarType type,
                 ReduceOp op);

// The same in steps, for reductions whose terms are not all in one place. The elements of the running sum are
// float32 for half precisions, otherwise of the type itself, with sum_item(type) bytes each. The inputs are
// added by extend_sum(), which starts with them if `begun` is false. The running sum is converted to the type
// by round_sum().
std::int64_t sum_item(torch::ScalarType type);
void extend_sum(void* running, bool begun, const void* const* inputs, int count, std::int64_t elements,
                torch::ScalarType type, ReduceOp op);
void round_sum(void* out, const void* running, std::int64_t elements, torch::ScalarType type);

}  // namespace gantry
