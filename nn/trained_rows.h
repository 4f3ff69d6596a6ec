// Rows of an embedding's table that are trained while the other rows are frozen (PEFT's trainable_token_indices). Their
// values are a parameter [rows, dim] that replaces them, in the embedding and in an output layer that is tied to it.
#pragma once

#include <vector>

#include "gantry/core/placement.h"
#include "gantry/tensors/tensor.h"

namespace gantry::nn {

class TrainedRows {
 public:
  TrainedRows(std::vector<std::int64_t> rows, torch::Tensor values)
      : values(std::move(values)), rows_(std::move(rows)) {}

  // The position of a row of the table among the trained ones; -1 for another row.
  std::int64_t position_of(std::int64_t row) const;

  // The part of a rank that holds some rows of the table. The tensors are int64 on the device of the values, and are
  // computed again only for another part or device.
  struct Held {
    torch::Tensor positions;  // [held.size()]: as position_of()
    torch::Tensor rows;       // those of the trained rows that this rank holds, counted from held.begin
    torch::Tensor places;     // their positions
  };
  const Held& held(const Range& held);

  torch::Tensor values;

 private:
  std::vector<std::int64_t> rows_;
  Held held_;
  Range held_range_;
};

}  // namespace gantry::nn
