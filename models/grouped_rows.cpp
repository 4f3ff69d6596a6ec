#include "gantry/models/grouped_rows.h"

#include "gantry/tensors/libtorch.h"

namespace gantry::models {

namespace {

ShardSpec full_rows(const AttentionSpec& attention) {
  const std::int64_t rows = fused_rows(attention), size = attention.head_size;
  return attention.rows == ProjectionRows::kBlocks ? shard_blocks(0, rows, kRowBlocks, size, 1)
                                                   : shard_groups(0, rows, attention.key_heads, size, 1);
}

}  // namespace

std::vector<torch::Tensor> grouped_parts(nn::HeadRange& queries, nn::HeadRange& keys, const torch::Tensor& fused,
                                         const nn::Linear& projection, const AttentionSpec& attention) {
  const bool in_blocks = attention.rows == ProjectionRows::kBlocks;
  const std::int64_t groups = in_blocks ? kRowBlocks : attention.key_heads;
  const std::size_t key = in_blocks ? 2 : 1;  // the segment of the keys among three; the first one has the queries
  const ShardSpec& held = projection->weight_placement();
  const ShardSpec rows = held.sharded() ? held : full_rows(attention);
  const int rank = held.sharded() ? projection->group()->rank() : 0;
  queries = {0, 0, attention.heads};
  keys = {0, 0, attention.key_heads};
  std::vector<torch::Tensor> found[3];
  std::int64_t offset = 0;
  for (std::size_t i = 0; i < rows.segments.size(); ++i) {
    const Segment& segment = rows.segments[i];
    const Range range = segment.range_of_rank[rank];
    if (range.size() == 0) continue;
    const auto group = static_cast<std::int64_t>(i / 3);
    for (nn::HeadRange* heads : {&queries, &keys}) {
      if (i % 3 != (heads == &queries ? 0 : key)) continue;
      const std::int64_t before = group * (heads->total / groups);
      if (heads->count == 0) heads->first = before + (range.begin - segment.extent.begin) / attention.head_size;
      heads->count += range.size() / attention.head_size;
    }
    found[i % 3].push_back(fused.narrow(-1, offset, range.size()));
    offset += range.size();
  }
  return {torch::cat(found[0], -1), torch::cat(found[key], -1), torch::cat(found[3 - key], -1)};
}

}  // namespace gantry::models
