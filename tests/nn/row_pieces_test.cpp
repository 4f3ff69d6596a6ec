// Messages of sharded layers in pieces of rows give the values and gradients of one message, for any sizes.
#include <gtest/gtest.h>

#include "counting_group.h"
#include "gantry/nn/forward.h"
#include "gantry/nn/linear.h"
#include "gantry/tensors/libtorch.h"
#include "ranks.h"
#include "sines.h"

namespace gantry::testing {
namespace {

nn::Linear split_layer(std::int64_t in, std::int64_t out, const ShardStyle& style, ProcessGroup& group) {
  nn::Linear made = linear_of_sines(in, out);
  made->shard(style, group);
  return made;
}

// Two layers, the first sharded by columns and the second by rows, with an operation between them.
struct Pair {
  nn::Linear up{nullptr}, down{nullptr};

  Pair(ProcessGroup& group, std::optional<gantry::Layout> border)
      : up(split_layer(6, 11, Column{.input = border}, group)),
        down(split_layer(11, 5, Row{.output = border}, group)) {}

  // Returns the output and all gradients.
  std::vector<torch::Tensor> results(const torch::Tensor& input, int pieces, std::int64_t length = 0) {
    const ForwardScope scope({.random = RandomContext{.sequence_length = length}, .tensor_pieces = pieces});
    const torch::Tensor leaf = input.detach().clone().requires_grad_();
    for (const nn::Linear& layer : {up, down}) nn::Linear(layer)->zero_grad();
    const torch::Tensor output = down(torch::gelu(up(leaf)));
    (output * sines(output.sizes().vec())).sum().backward();
    std::vector<torch::Tensor> all{output.detach(), leaf.grad()};
    for (const nn::Linear& layer : {up, down}) {
      all.push_back(layer->weight.grad().clone());
      all.push_back(layer->bias.grad().clone());
    }
    return all;
  }
};

void expect_all_close(const std::vector<torch::Tensor>& expected, const std::vector<torch::Tensor>& actual,
                      const std::string& label) {
  ASSERT_EQ(expected.size(), actual.size());
  for (std::size_t i = 0; i < expected.size(); ++i)
    EXPECT_TRUE(torch::allclose(expected[i], actual[i], 0, 1e-13)) << label << ", " << i;
}

TEST(RowPieces, SumsOfAnyNumberOfRowsAreTheSame) {
  run_ranks(3, [](World&, ProcessGroupMesh& mesh) {
    Pair layers(mesh["tp"], std::nullopt);
    for (const std::int64_t rows : {0, 1, 7}) {
      const auto expected = layers.results(sines({2, rows, 6}), 1);
      for (const int pieces : {2, 3, 16})
        expect_all_close(expected, layers.results(sines({2, rows, 6}), pieces), std::to_string(pieces));
    }
  });
}

// Ranks have 3, 2 and 2 tokens of a sequence of 7, or 1, 1 and 0 tokens of a sequence of 2.
TEST(RowPieces, PartsOfSequencesAreTheSame) {
  run_ranks(3, [](World&, ProcessGroupMesh& mesh) {
    const int rank = mesh["tp"].rank();
    for (const int dim : {0, 1}) {
      Pair layers(mesh["tp"], Shard{dim});
      for (const std::int64_t length : {7, 2}) {
        const torch::Tensor full = dim == 0 ? sines({length, 2, 6}) : sines({2, length, 6});
        const Sizes sizes = length == 7 ? Sizes{3, 2, 2} : Sizes{1, 1, 0};
        std::int64_t begin = 0;
        for (int before = 0; before < rank; ++before) begin += sizes[before];
        const torch::Tensor part = full.narrow(dim, begin, sizes[rank]);
        const auto expected = layers.results(part, 1);
        for (const int pieces : {2, 3, 16})
          expect_all_close(expected, layers.results(part, pieces),
                           std::to_string(pieces) + " along " + std::to_string(dim));
      }
    }
  });
}

TEST(RowPieces, EachMessageIsAsManyAsAskedFor) {
  run_ranks(2, [](World&, ProcessGroupMesh& mesh) {
    CountingGroup group(mesh["tp"]);
    Pair sums(group, std::nullopt);
    sums.results(sines({8, 6}), 4);
    EXPECT_EQ(group.all_reduces, 4 + 1);  // one for the input's gradient, overlapped with weight gradients
    Pair parts(group, Shard{0});
    group.all_reduces = 0;
    parts.results(sines({4, 6}), 4, 8);
    EXPECT_EQ(group.all_gathers, 4 + 4);
    EXPECT_EQ(group.reduce_scatters, 4 + 1);
  });
}

}  // namespace
}  // namespace gantry::testing
