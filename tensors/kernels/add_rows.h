// Adds rows to those of a table that an index names, as an embedding's gradient is made: in the order of the rows, so
// that every run, rank and device has the same bits. LibTorch's index_add_ has that order on the CPU alone.
//
// It is an operator of LibTorch's dispatcher (gantry::add_rows_), with a kernel for the CPU and one for CUDA, which
// sorts the index and takes each row of the table by itself.
#pragma once

#include "gantry/tensors/kernels/add_rows_element.h"
#include "gantry/tensors/tensor.h"

namespace gantry::kernels {

// table[index[i]] += rows[i], for i = 0, 1, .... table [any, columns], each row's elements side by side; rows [count,
// columns]; index int64 [count], rows of the table. A float32 table takes rows of bfloat16 and float16 as they are;
// others are made the table's type. Half precisions are added in float32, and rounded once. No graph is made, and
// nobody waits for a device.
void add_rows(torch::Tensor& table, const torch::Tensor& index, const torch::Tensor& rows);

// `to`, sorted, and `from`: an index's stable sort().
SortedRows sorted_rows(const torch::Tensor& table, const torch::Tensor& to, const torch::Tensor& from,
                       const torch::Tensor& rows);

}  // namespace gantry::kernels
