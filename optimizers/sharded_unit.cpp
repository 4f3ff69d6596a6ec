#include "gantry/optimizers/sharded_unit.h"

#include <numeric>
#include <utility>

#include "gantry/optimizers/gradient_bucket.h"
#include "gantry/tensors/libtorch.h"

namespace gantry {
namespace {

std::vector<std::int64_t> offsets_of(const std::vector<ShardedUnit::Member>& members) {
  std::vector<std::int64_t> offsets{0};
  for (const auto& member : members) offsets.push_back(offsets.back() + aligned(member.parts.back().end));
  return offsets;
}

std::int64_t elements_of_part(const std::vector<ShardedUnit::Member>& members, int part) {
  return std::accumulate(
      members.begin(), members.end(), std::int64_t{0},
      [&](std::int64_t sum, const ShardedUnit::Member& member) { return sum + member.parts[part].size(); });
}

}  // namespace

ShardedUnit::ShardedUnit(std::vector<Member> members, ProcessGroup& group, std::vector<int> parts,
                         const std::string& name, const std::string& remedy)
    : members_(std::move(members)),
      group_(group),
      parts_(std::move(parts)),
      offsets_(offsets_of(members_)),
      rows_(elements_of_part(members_, parts_[group_.rank()]), members_.front().tensor.scalar_type(),
            members_.front().tensor.device(),
            "the local shard of " + name +
                " is read, but only the optimizer's master weights have its values: after each step, call "
                "boosted.model->stage_module(), which materializes the shard"),
      memory_(offsets_.back(), members_.front().tensor.scalar_type(), members_.front().tensor.device(),
              "a parameter of " + name + " is used while it is not gathered: " + remedy) {
  const torch::NoGradGuard no_grad;
  for (const int part : parts_) sizes_.push_back(elements_of_part(members_, part));
  own_ = rows_.over(0, {sizes_[group_.rank()]});
  rows_.bring();
  std::int64_t from = 0;
  for (std::size_t i = 0; i < members_.size(); ++i) {
    torch::Tensor& tensor = members_[i].tensor;
    const Shape& rows = members_[i].rows;
    shards_.push_back(rows_.over(from, rows.empty() ? tensor.sizes() : at::IntArrayRef(rows)));
    shards_.back().copy_(tensor.view_as(shards_.back()));
    from += tensor.numel();
    tensor.set_data(over(i));
  }
}

void ShardedUnit::start() {
  if (is_full() || is_arriving()) return;
  const torch::NoGradGuard no_grad;
  if (fill_) {
    rows_.bring();
    fill_();
  }
  arriving_ = torch::empty({std::accumulate(sizes_.begin(), sizes_.end(), std::int64_t{0})}, own_.options());
  work_ = group_.all_gather(arriving_, own_, sizes_);
}

void ShardedUnit::wait() {
  if (is_full()) return;
  start();
  const torch::NoGradGuard no_grad;
  work_.wait();
  if (fill_) rows_.release();
  memory_.bring();
  std::int64_t from = 0;
  for (const int part : parts_)
    for (std::size_t i = 0; i < members_.size(); ++i) {
      const Range& range = members_[i].parts[part];
      if (range.size() == 0) continue;
      const std::int64_t to = range.begin;
      memory_.over(offsets_[i] + to, {range.size()}).copy_(arriving_.narrow(0, from, range.size()));
      from += range.size();
    }
  arriving_.reset();
  work_ = {};
}

void ShardedUnit::release_shard(std::function<void()> fill) {
  fill_ = std::move(fill);
  rows_.release();
}

void ShardedUnit::keep_rows() {
  const auto fill = std::exchange(fill_, nullptr);
  if (!fill || rows_.is_there()) return;  // a gather in flight has filled them
  const torch::NoGradGuard no_grad;
  rows_.bring();
  fill();
}

void ShardedUnit::release() {
  if (is_arriving()) wait();  // the other ranks take part in the gather
  memory_.release();
}

}  // namespace gantry
