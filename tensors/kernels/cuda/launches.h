// The kernels for CUDA, called by code of the host's compiler. Plain C++, so that neither compiler reads the
// other's headers. Each kernel runs on `stream`, a cudaStream_t, of the current device. The functions return
// CUDA's text for an error, or null.
#pragma once

#include <cstdint>

#include "gantry/tensors/kernels/add_rows_element.h"
#include "gantry/tensors/kernels/draw_element.h"
#include "gantry/tensors/kernels/gated_element.h"
#include "gantry/tensors/kernels/reduce_element.h"
#include "gantry/tensors/kernels/rotate_element.h"

namespace gantry::kernels {

enum class Element : int { kFloat32, kFloat64, kFloat16, kBFloat16 };

const char* launch_draw(void* out, Element type, const Box& box, std::int64_t elements, const Drawn& drawn,
                        void* stream);

// Logits of a cross entropy, see tensors/kernels/cross_entropy.h. `row_stride` is in elements. Sums are
// double for kFloat64, else float.
struct Rows {
  const void* logits = nullptr;
  Element type = Element::kFloat32;
  std::int64_t rows = 0, columns = 0, row_stride = 0, width = 0;
};
const char* launch_row_maximum(void* out, const Rows& rows, void* stream);
// `labels` [rows]; out [3, rows].
const char* launch_row_sums(void* out, const Rows& rows, const void* largest, const std::int64_t* labels, void* stream);

struct GradientTerms {
  const void *largest = nullptr, *total = nullptr, *scale = nullptr;
  const void* weight = nullptr;  // null: 1
  const std::int64_t* labels = nullptr;
  double of_label = 1, of_all = 0;
  std::int64_t out_stride = 0;  // elements from one row of the result to the next
};
const char* launch_loss_gradient(void* out, const Rows& rows, const GradientTerms& terms, void* stream);

// The rows have the type of the table, or a half precision with a float32 table.
const char* launch_add_rows(void* table, Element type, const void* rows, Element rows_type, const SortedRows& sorted,
                            void* stream);

// The inputs of rotate(), with the type of `out`.
struct RotationOperands {
  const void *heads = nullptr, *cosine = nullptr, *sine = nullptr;
};
const char* launch_rotate(void* out, Element type, const RotationOperands& from, const RotatedHeads& heads,
                          void* stream);

// Matrices [rows, columns] with adjacent columns; strides in elements from one row to the next.
struct GatedOperands {
  const void *gate = nullptr, *values = nullptr;
  Element type = Element::kFloat32;
  std::int64_t rows = 0, columns = 0, gate_stride = 0, values_stride = 0;
};
const char* launch_gated(void* out, std::int64_t out_stride, const GatedOperands& from, GateFunction function,
                         void* stream);
struct GatedGradients {
  void *gate = nullptr, *values = nullptr;
  const void* out = nullptr;  // the gradient of the product
  std::int64_t gate_stride = 0, values_stride = 0, out_stride = 0;
};
const char* launch_gated_backward(const GatedGradients& gradients, const GatedOperands& from, GateFunction function,
                                  void* stream);

// The terms have the type of `out`. `out` may be the memory of one of them. `running`: as many elements as
// `out`, float for half precisions, else of the same type. It may be null for at most Terms::kMost terms.
enum class ReducedType : int { kFloat32, kFloat64, kFloat16, kBFloat16, kInt64, kInt32, kUInt8 };
struct Reduced {
  void *out = nullptr, *running = nullptr;
  ReducedType type = ReducedType::kFloat32;
  Reduction how = Reduction::kSum;
  const void* const* terms = nullptr;  // a list on the host
  int count = 0;
  std::int64_t elements = 0;
};
const char* launch_reduce(const Reduced& what, void* stream);

}  // namespace gantry::kernels
