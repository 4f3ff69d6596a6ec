// Divides rows into pieces, so that one piece is in flight between ranks while another one is computed.
#pragma once

#include <optional>
#include <vector>

#include "gantry/comm/process_group.h"
#include "gantry/core/shard_spec.h"
#include "gantry/tensors/tensor.h"

namespace gantry::nn {

// Whether the message of a split layer is sent in pieces. The forward on this thread must require it
// (Forward::tensor_pieces), the group must have several ranks, and `dim` must not be the last dim of
// `tensor`, along which there are no rows. `dim`: the dim along which the tensor is gathered or scattered;
// absent: it is summed.
bool goes_in_pieces(const torch::Tensor& tensor, std::optional<int> dim, const ProcessGroup& group);

// Divides a dim of which ranks hold parts into pieces. Each piece has elements of every rank's part, in rank
// order.
class RowChunks {
 public:
  // `sizes`: the sizes of the ranks' parts. There are `pieces` pieces, or fewer if the longest part has fewer
  // entries.
  RowChunks(Sizes sizes, std::int64_t dim, int pieces);

  int count() const { return count_; }
  std::int64_t dim() const { return dim_; }
  Sizes sizes(int piece) const;  // the size of each rank's part of the piece

  // A piece of the full tensor, or of a rank's part of it: contiguous, with the dim in front.
  torch::Tensor of_full(const torch::Tensor& full, int piece) const;
  torch::Tensor of_part(const torch::Tensor& part, int rank, int piece) const;
  // Write such a piece to its place.
  void place_in_full(const torch::Tensor& full, int piece, const torch::Tensor& values) const;
  void place_in_part(const torch::Tensor& part, int rank, int piece, const torch::Tensor& values) const;

 private:
  Range range(int rank, int piece) const;  // within the rank's part

  const Sizes sizes_;
  const std::int64_t dim_;
  int count_;
};

// An all-gather of the ranks' parts of a tensor, piece by piece.
class ArrivingPieces {
 public:
  // Starts all pieces. Collective over the group.
  ArrivingPieces(ProcessGroup& group, const torch::Tensor& part, std::int64_t dim, const Sizes& sizes, int pieces);

  const RowChunks& chunks() const { return chunks_; }
  // Waits for a piece, writes it to full(), and returns it with the dim in front. Call it once for each
  // piece.
  torch::Tensor take(int piece);
  // Complete after the last piece was taken.
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
