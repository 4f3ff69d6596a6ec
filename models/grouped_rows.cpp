#include "gantry/models/grouped_rows.h"

#include "gantry/tensors/libtorch.h"

namespace gantry::models {

std::vector<torch::Tensor> grouped_parts(nn::HeadRange& queries, nn::HeadRange& keys, const torch::Tensor& fused,
                                         const nn::Linear& projection, const AttentionSpec& attention) {
  const std::int64_t size = attention.head_size, group = attention.heads / attention.key_heads;
  const ShardSpec& held = projection->weight_placement();
  const ShardSpec rows = held.sharded() ? held : shard_groups(0, fused_rows(attention), attention.key_heads, size, 1);
  const int rank = held.sharded() ? projection->group()->rank() : 0;
  queries = {0, 0, attention.heads};
  keys = {0, 0, attention.key_heads};
  std::vector<torch::Tensor> found[3];
  std::int64_t offset = 0;
  for (std::size_t i = 0; i < rows.segments.size(); ++i) {
    const Segment& segment = rows.segments[i];
    const Range range = segment.range_of_rank[rank];
    if (range.size() == 0) continue;
    const auto index = static_cast<std::int64_t>(i / 3);
    if (i % 3 == 0 && queries.count == 0) queries.first = index * group + (range.begin - segment.extent.begin) / size;
    if (i % 3 == 0) queries.count += range.size() / size;
    if (i % 3 == 1 && keys.count++ == 0) keys.first = index;
    found[i % 3].push_back(fused.narrow(-1, offset, range.size()));
    offset += range.size();
  }
  return {torch::cat(found[0], -1), torch::cat(found[1], -1), torch::cat(found[2], -1)};
}

}  // namespace gantry::models
