// ZeRO 3: a bucket has the parameters of a unit that are reduced over the same axes. Each element is reduced
// over all replicas in rank order, as without ZeRO, so that the result is bitwise identical. With replicated
// shards, each replica reduces a piece of its part, and the replicas of the part all-gather the pieces.
#include <algorithm>
#include <utility>

#include "gantry/core/error.h"
#include "gantry/optimizers/bucket_strategy.h"
#include "gantry/optimizers/parameter_shards.h"
#include "gantry/optimizers/partitioned_values.h"
#include "gantry/tensors/libtorch.h"

namespace gantry {
namespace {

class UnitBuckets final : public BucketStrategy {
 public:
  UnitBuckets(const ProcessGroupMesh& mesh, const ParameterShards& shards) : mesh_(mesh), shards_(shards) {}

  bool takes(const BucketKind& kind) const override { return kind.unit >= 0; }

  void lay_out(GradientBucket& bucket) override {
    std::int64_t own = 0;
    for (auto& member : bucket.members) {
      member.lazy = std::make_shared<LazyGradient>(member.tensor, bucket.type_of_gradients(),
                                                   "the gradient of " + shards_.full(member.parameter).placement.name +
                                                       " is read before a backward pass has computed it");
      member.own = own;
      own += shards_.elements(member.parameter, holders_of(bucket).part).size();
    }
    bucket.sum_memory.emplace(own, bucket.type_of_gradients(), bucket.members.front().tensor.device(),
                              "the gradient of " + name_of(bucket) + " is read before its reduction over the replicas");
    bucket.sum = bucket.sum_memory->over(0, {own});
    bucket.sum_memory->bring();
    bucket.sum.zero_();
  }

  void open(GradientBucket& bucket) override {
    if (bucket.members.front().gradient.defined()) return;
    if (bucket.sent)
      throw InternalError({"gradient of " + name_of(bucket),
                           "a backward pass reached the module after its gradients had been reduced over the replicas",
                           "", "set parallel.gather: step"});
    finish_what_has_come();
    const torch::NoGradGuard no_grad;
    for (auto& member : bucket.members) {
      const torch::Tensor known = member.tensor.grad();
      if (member.tensor.requires_grad()) member.lazy->show();
      member.gradient = known.defined() || bucket.kind.late ? member.lazy->values() : member.lazy->gradient();
      if (known.defined()) member.gradient.copy_(known);
    }
  }

  void reduce(GradientBucket& bucket) override {
    if (bucket.sent) return;
    const torch::NoGradGuard no_grad;
    if (travelling_) finish(*travelling_);
    open(bucket);
    bucket.sent = true;
    for (auto& member : bucket.members) member.lazy->values();  // zero if nothing was added
    if (!bucket.kind.is_summed_over_replicas_alone()) {
      std::vector<torch::Tensor> all;
      for (const auto& member : bucket.members) all.push_back(member.gradient.view({-1}));
      packed_ = all.size() == 1 ? all.front() : torch::cat(all);
      bucket.work = mesh_.group(bucket.kind.axes).all_reduce(packed_);
    } else {
      std::vector<torch::Tensor> pieces;
      sizes_.clear();
      const ParameterShards::Holders& holders = holders_of(bucket);
      const std::size_t ranks = holders.parts_of_batch.size();
      for (std::size_t i = 0; i < ranks; ++i) {
        sizes_.push_back(add_piece(bucket, holders.parts_of_batch[i], holders.replicas_of_batch[i], pieces));
      }
      packed_ = joined(bucket, pieces);
      ProcessGroup& replicas = replicas_of(bucket, mesh_);
      bucket.sum_memory->bring();
      piece_ = holders.replicas ? bucket.new_gradients(sizes_[replicas.rank()]) : bucket.sum;
      bucket.work = replicas.reduce_scatter(piece_, packed_, sizes_);
    }
    const bool is_copied = !packed_.is_alias_of(bucket.members.front().gradient);
    hide_gradients(bucket);
    if (is_copied) clear_gradients(bucket);
    travelling_ = &bucket;
  }

  void finish(GradientBucket& bucket) override {
    if (&bucket != travelling_) return;
    const torch::NoGradGuard no_grad;
    travelling_ = nullptr;
    BucketStrategy::finish(bucket);
    bucket.sum_memory->bring();
    if (!bucket.kind.is_summed_over_replicas_alone())
      take_own_rows(bucket);
    else if (holders_of(bucket).replicas)
      tell_replicas(bucket);
    packed_.reset();
    piece_.reset();
    clear_gradients(bucket);
  }

  // Called after a sync and before an accumulation, but never while gradients of several calls accumulate.
  void release(GradientBucket& bucket) override {
    finish(bucket);
    if (!std::exchange(bucket.sent, false)) return;
    for (const auto& member : bucket.members)
      if (member.tensor.grad().defined())
        throw InternalError({"gradient of " + shards_.full(member.parameter).placement.name,
                             "a backward pass added to it after it had been reduced over the replicas", "",
                             "set parallel.gather: step"});
  }

 private:
  const ParameterShards::Holders& holders_of(const GradientBucket& bucket) const {
    return shards_.holders(bucket.kind.unit);
  }

  // Completes a reduction that has arrived, so that its memory is free before the next unit's gradients need
  // some. Not for replicated shards, because all replicas must finish at the same point.
  void finish_what_has_come() {
    if (travelling_ && !holders_of(*travelling_).replicas && travelling_->work.done()) finish(*travelling_);
  }

  std::string name_of(const GradientBucket& bucket) const {
    return shards_.full(bucket.members.front().parameter).placement.name;
  }

  // The elements of a part, member by member, are partitioned over its replicas. Appends the piece of one
  // rank, and returns its size.
  std::int64_t add_piece(const GradientBucket& bucket, int part, int replica,
                         std::vector<torch::Tensor>& pieces) const {
    const Range wanted = piece_of(bucket, part, replica);
    std::int64_t offset = 0;
    for (const auto& member : bucket.members) {
      const Range& rows = shards_.elements(member.parameter, part);
      const std::int64_t begin = std::max(wanted.begin, offset), end = std::min(wanted.end, offset + rows.size());
      if (begin < end) pieces.push_back(member.gradient.view({-1}).narrow(0, rows.begin + begin - offset, end - begin));
      offset += rows.size();
    }
    return wanted.size();
  }

  // Concatenates pieces. Contiguous pieces of a single parameter are not copied.
  static torch::Tensor joined(const GradientBucket& bucket, const std::vector<torch::Tensor>& pieces) {
    if (pieces.empty()) return bucket.new_gradients(0);
    if (bucket.members.size() > 1) return torch::cat(pieces);
    const std::int64_t begin = pieces.front().storage_offset();
    std::int64_t end = begin;
    for (const torch::Tensor& piece : pieces) {
      if (piece.storage_offset() != end) return torch::cat(pieces);
      end += piece.numel();
    }
    return bucket.members.front().gradient.view({-1}).narrow(0, begin, end - begin);
  }

  Range piece_of(const GradientBucket& bucket, int part, int replica) const {
    std::int64_t elements = 0;
    for (const auto& member : bucket.members) elements += shards_.elements(member.parameter, part).size();
    return partition(elements, 1, holders_of(bucket).rows.replicas(), /*allow_empty=*/true).at(replica);
  }

  void take_own_rows(GradientBucket& bucket) const {
    std::int64_t offset = 0;
    for (const auto& member : bucket.members) {
      const Range& rows = shards_.elements(member.parameter, holders_of(bucket).part);
      bucket.sum.narrow(0, member.own, rows.size()).copy_(packed_.narrow(0, offset + rows.begin, rows.size()));
      offset += member.tensor.numel();
    }
  }

  void tell_replicas(GradientBucket& bucket) const {
    const ParameterShards::Holders& holders = holders_of(bucket);
    std::vector<Range> pieces;
    Sizes sizes;
    for (std::size_t rank = 0; rank < holders.parts_of_batch.size(); ++rank) {
      if (holders.parts_of_batch[rank] != holders.part) continue;
      pieces.push_back(piece_of(bucket, holders.part, holders.replicas_of_batch[rank]));
      sizes.push_back(pieces.back().size());
    }
    torch::Tensor all = bucket.new_gradients(bucket.sum.numel());
    holders.replicas->all_gather(all, piece_, sizes).wait();
    std::int64_t from = 0;
    for (const Range& piece : pieces) {
      bucket.sum.narrow(0, piece.begin, piece.size()).copy_(all.narrow(0, from, piece.size()));
      from += piece.size();
    }
  }

  static void hide_gradients(GradientBucket& bucket) {
    for (auto& member : bucket.members) {
      member.gradient.reset();
      member.lazy->hide();
    }
  }

  static void clear_gradients(GradientBucket& bucket) {
    for (auto& member : bucket.members) member.lazy->clear();
  }

  const ProcessGroupMesh& mesh_;
  const ParameterShards& shards_;
  GradientBucket* travelling_ = nullptr;
  Sizes sizes_;
  torch::Tensor packed_, piece_;  // buffers of the reduction in flight
};

}  // namespace

std::unique_ptr<BucketStrategy> make_unit_buckets(const ProcessGroupMesh& mesh, const ParameterShards& shards) {
  return std::make_unique<UnitBuckets>(mesh, shards);
}

}  // namespace gantry
