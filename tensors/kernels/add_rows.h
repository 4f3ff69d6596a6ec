// Adds rows to the rows of a table that an index selects, as for the gradient of an embedding. The additions
// have the order of the rows, so the results of all runs, ranks and devices are bitwise identical. LibTorch's
// index_add_ has this order on the CPU only.
//
// It is an operator of LibTorch's dispatcher (gantry::add_rows_), with a kernel for the CPU and one for CUDA,
// which sorts the index and computes each row of the table separately.
#pragma once

#include "gantry/tensors/kernels/add_rows_element.h"
#include "gantry/tensors/tensor.h"

namespace gantry::kernels {

// table[index[i]] += rows[i], for i = 0, 1, .... table [any, columns] with adjacent columns; rows
// [count, columns]; index int64 [count], rows of the table. Rows in bfloat16 and float16 are added to a
// float32 table directly; other rows are first converted to the type of the table. Tables in half precision
// are summed in float32 and rounded once. No graph is made, and the host does not wait for the device.
void add_rows(torch::Tensor& table, const torch::Tensor& index, const torch::Tensor& rows);

// `to` and `from`: the values and the indices that a stable sort() of an index returns.
SortedRows sorted_rows(const torch::Tensor& table, const torch::Tensor& to, const torch::Tensor& from,
                       const torch::Tensor& rows);

}  // namespace gantry::kernels
