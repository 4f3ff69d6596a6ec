// The logits of a head in tiles of rows and columns, for losses of logits that are too large to be stored.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "gantry/core/placement.h"
#include "gantry/nn/row_losses.h"
#include "gantry/tensors/kernels/cross_entropy.h"

namespace gantry::nn {

// The function from outputs of a head to logits: soft_cap * tanh(scale * output / soft_cap), without the cap if it is
// 0.
struct LogitForm {
  double scale = 1;
  double soft_cap = 0;
};

torch::Tensor logits_of(const torch::Tensor& output, const LogitForm& form);

// Tiles of [rows, columns] with at most `most` elements each. They are about square: tiles of few rows would read the
// full weight often, and tiles of few columns all inputs.
struct Tiles {
  Tiles(std::int64_t rows, std::int64_t columns, std::int64_t most);
  // Calls use(rows, columns) for each tile.
  template <class Use>
  void for_each(const Use& use) const {
    for (const Range& rows : of_rows)
      for (const Range& columns : of_columns) use(rows, columns);
  }

  std::vector<Range> of_rows, of_columns;
};

// tensor[rows], undefined for an undefined tensor.
torch::Tensor rows_of(const torch::Tensor& tensor, const Range& rows);

// Columns of the labels of these rows within a tile, -1 elsewhere.
torch::Tensor columns_in(const torch::Tensor& columns, const Range& rows, const Range& tile);

// The factors of the head's output on this rank.
struct HeadFactors {
  std::array<torch::Tensor, 2> inputs, weights;  // [rows, in] and [columns, in]; the second ones may be undefined
  torch::Tensor bias;                            // [columns] or undefined
  LogitForm form;

  torch::Tensor logits(const Range& rows, const Range& tile) const;
};

// The gradient with respect to the head's output from that with respect to logits, which it overwrites.
torch::Tensor through_form(const torch::Tensor& gradient, const torch::Tensor& logits, const LogitForm& form);

// Sums of logits over the columns of this rank.
struct RowSums {
  RowSums(std::int64_t rows, const torch::TensorOptions& options);
  // Returns the factors [rows of the tile] that bring sums relative to the former largest logits to the new ones.
  torch::Tensor add(const Range& rows, const torch::Tensor& logits, const torch::Tensor& columns, bool with_all);

  // [rows]: the largest logit, the sum of exponentials of logits minus it, the label's logit (0 elsewhere),
  // the sum of logits.
  torch::Tensor largest, total, label, all;
};

// The gradients of a head's own tensors, which are added to .grad. Frozen ones have none.
class HeadGradients {
 public:
  explicit HeadGradients(const HeadFactors& factors);
  // `gradient`: of a tile of the head's output.
  void add(const torch::Tensor& gradient, const Range& rows, const Range& tile);

 private:
  const HeadFactors& factors_;
  std::array<torch::Tensor, 2> of_weights_;
  torch::Tensor of_bias_;
};

// into[rows] += gradient weight[tile], in the type of `into`. Does nothing if `into` is undefined.
void add_input_gradient(const torch::Tensor& into, const torch::Tensor& gradient, const torch::Tensor& weight,
                        const Range& rows, const Range& tile);

// The gradient of a tile of the head's output. `loss`: of all rows, with the columns of labels on this rank.
torch::Tensor tile_gradient(const HeadFactors& factors, const kernels::LossGradient& loss, const Range& rows,
                            const Range& tile);

}  // namespace gantry::nn
