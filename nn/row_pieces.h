// Rows in pieces, so that one piece travels between ranks while another one is computed.
#pragma once

#include <optional>
#include <vector>

#include "gantry/comm/process_group.h"
#include "gantry/core/shard_spec.h"
#include "gantry/tensors/tensor.h"

namespace gantry::nn {

// Whether the forward that runs on this thread wants a split layer's message in pieces (Forward::tensor_pieces), and it
// can come so: between ranks, and not along the last dim of `tensor`, whose entries are no rows. `dim`: along which it
// is gathered or scattered; absent: it is summed.
bool goes_in_pieces(const torch::Tensor& tensor, std::optional<int> dim, const ProcessGroup& group);

// A dim of which ranks hold parts, in pieces: each has something of every rank's part, in rank order.
class RowChunks {
 public:
  // `sizes`: of the ranks' parts. As many pieces as asked for, or as the longest part has entries where those are
  // fewer.
  RowChunks(Sizes sizes, std::int64_t dim, int pieces);

  int count() const { return count_; }
  std::int64_t dim() const { return dim_; }
  Sizes sizes(int piece) const;  // of each rank's part of it

  // A piece of the full tensor, or of a rank's part of it; with the dim first, contiguous.
  torch::Tensor of_full(const torch::Tensor& full, int piece) const;
  torch::Tensor of_part(const torch::Tensor& part, int rank, int piece) const;
  // Writes such a piece to its place.
  void place_in_full(const torch::Tensor& full, int piece, const torch::Tensor& values) const;
  void place_in_part(const torch::Tensor& part, int rank, int piece, const torch::Tensor& values) const;

 private:
  Range range(int rank, int piece) const;  // within the rank's part

  const Sizes sizes_;
  const std::int64_t dim_;
  int count_;
};

// The ranks' parts of a tensor on their way to all of them, piece by piece.
class ArrivingPieces {
 public:
  // Starts all of them. Collective over the group.
  ArrivingPieces(ProcessGroup& group, const torch::Tensor& part, std::int64_t dim, const Sizes& sizes, int pieces);

  const RowChunks& chunks() const { return chunks_; }
  // Waits for a piece, places it in full(), and gives it, with the dim first. Once each.
  torch::Tensor take(int piece);
  // Whole after the last one was taken.
  const torch::Tensor& full() const { return full_; }

 private:
  struct Piece {
    torch::Tensor sent, received;
    Work work;
  };
  const RowChunks chunks_;
  torch::Tensor full_;
  std::vector<Piece> pieces_;
};

}  // namespace gantry::nn
