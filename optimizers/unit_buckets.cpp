// ZeRO 3: a bucket is what of a unit is summed over the same axes. Each element is summed over all replicas in the
// order of their ranks, as without ZeRO, so that it has the same bits; with replicas of shards each of them sums a
// piece of the part that they hold, and they tell each other.
#include <algorithm>
#include <utility>

#include <torch/torch.h>

#include "gantry/core/error.h"
#include "gantry/core/planted.h"
#include "gantry/optimizers/bucket_strategy.h"
#include "gantry/optimizers/parameter_shards.h"
#include "gantry/optimizers/partitioned_values.h"

namespace gantry {
namespace {

class UnitBuckets final : public BucketStrategy {
 public:
  UnitBuckets(const ProcessGroupMesh& mesh, const ParameterShards& shards) : mesh_(mesh), shards_(shards) {}

  bool takes(const BucketKind& kind) const override { return kind.unit >= 0; }

  void lay_out(GradientBucket& bucket) override {
    std::int64_t own = 0;
    for (auto& member : bucket.members) {
      member.lazy = std::make_shared<LazyGradient>(
          member.tensor, bucket.type_of_gradients(),
          "the gradient of " + shards_.whole(member.parameter).placement.name + " is read before anything is added");
      member.own = own;
      own += shards_.elements(member.parameter, holders_of(bucket).part).size();
    }
    bucket.sum_memory.emplace(own, bucket.type_of_gradients(), bucket.members.front().tensor.device(),
                              "the gradient of " + name_of(bucket) + " is read before its sum over the replicas");
    bucket.sum = bucket.sum_memory->over(0, {own});
    bucket.sum_memory->bring();
    bucket.sum.zero_();
  }

  void open(GradientBucket& bucket) override {
    if (bucket.members.front().gradient.defined()) return;
    if (bucket.sent)
      throw InternalError({"gradient of " + name_of(bucket), "has a backward after its sum over the replicas", "",
                           "set parallel.gather: step"});
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
    const bool alone = bucket.kind.is_summed_over_replicas_alone();
    packed_ = pack(bucket, alone ? pieces_by_rank(bucket) : whole_members(bucket));
    hide_gradients(bucket);
    if (!alone) {
      bucket.work = mesh_.group(bucket.kind.axes).all_reduce(packed_);
    } else {
      ProcessGroup& replicas = replicas_of(bucket, mesh_);
      bucket.sum_memory->bring();
      piece_ = holders_of(bucket).replicas ? bucket.new_gradients(sizes_[replicas.rank()]) : bucket.sum;
      bucket.work = replicas.reduce_scatter(piece_, packed_, sizes_);
    }
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

  // After a sync, and before an accumulation; never while gradients of several calls add up.
  void release(GradientBucket& bucket) override {
    finish(bucket);
    if (!std::exchange(bucket.sent, false)) return;
    for (const auto& member : bucket.members)
      if (member.tensor.grad().defined())
        throw InternalError({"gradient of " + shards_.whole(member.parameter).placement.name,
                             "was added to after its sum over the replicas", "", "set parallel.gather: step"});
  }

 private:
  const ParameterShards::Holders& holders_of(const GradientBucket& bucket) const {
    return shards_.holders(bucket.kind.unit);
  }

  // Its memory goes before the next unit's gradients need some. Where replicas tell each other, all of them finish at
  // one point.
  void finish_what_has_come() {
    if (travelling_ && !holders_of(*travelling_).replicas && travelling_->work.done()) finish(*travelling_);
  }

  std::string name_of(const GradientBucket& bucket) const {
    return shards_.whole(bucket.members.front().parameter).placement.name;
  }

  // Elements of a member's flattened gradient, and where they lie in the message.
  struct Piece {
    std::size_t member;
    std::int64_t from, to, count;
  };

  std::vector<Piece> whole_members(const GradientBucket& bucket) const {
    std::vector<Piece> pieces;
    std::int64_t to = 0;
    for (std::size_t i = 0; i < bucket.members.size(); ++i) {
      pieces.push_back({i, 0, to, bucket.members[i].tensor.numel()});
      to += pieces.back().count;
    }
    return pieces;
  }

  // What each rank sums lies together: of its part, the piece that is its own among the part's replicas.
  std::vector<Piece> pieces_by_rank(const GradientBucket& bucket) {
    const ParameterShards::Holders& holders = holders_of(bucket);
    const std::size_t ranks = holders.parts_of_batch.size();
    std::vector<Range> wanted;
    std::vector<std::int64_t> begins{0};
    sizes_.clear();
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      wanted.push_back(piece_of(bucket, holders.parts_of_batch[rank], holders.replicas_of_batch[rank]));
      sizes_.push_back(wanted.back().size());
      begins.push_back(begins.back() + sizes_.back());
    }
    if (planted("pieces-sent-to-others")) std::rotate(begins.begin(), begins.begin() + 1, begins.end() - 1);
    std::vector<Piece> pieces;
    std::vector<std::int64_t> offsets(ranks);  // of the member in each rank's part
    for (std::size_t i = 0; i < bucket.members.size(); ++i)
      for (std::size_t rank = 0; rank < ranks; ++rank) {
        const Range& rows = shards_.elements(bucket.members[i].parameter, holders.parts_of_batch[rank]);
        const std::int64_t offset = std::exchange(offsets[rank], offsets[rank] + rows.size());
        const std::int64_t begin = std::max(wanted[rank].begin, offset);
        const std::int64_t end = std::min(wanted[rank].end, offset + rows.size());
        if (begin < end)
          pieces.push_back({i, rows.begin + begin - offset, begins[rank] + begin - wanted[rank].begin, end - begin});
      }
    return pieces;
  }

  // The message. One member after the other is copied to it and goes; a single one whose pieces lie in order already
  // is the message, and goes with it.
  static torch::Tensor pack(GradientBucket& bucket, const std::vector<Piece>& pieces) {
    std::int64_t elements = 0;
    bool in_order = !pieces.empty() && bucket.members.size() == 1;
    for (const Piece& piece : pieces) {
      elements += piece.count;
      in_order = in_order && piece.from - piece.to == pieces.front().from - pieces.front().to;
    }
    LazyGradient& first = *bucket.members.front().lazy;
    if (in_order) return first.values().view({-1}).narrow(0, pieces.front().from - pieces.front().to, elements);
    torch::Tensor packed = torch::empty({elements}, first.gradient().options());
    auto piece = pieces.begin();
    for (std::size_t i = 0; i < bucket.members.size(); ++i) {
      LazyGradient& lazy = *bucket.members[i].lazy;
      const torch::Tensor values = lazy.values().view({-1});  // zero where nothing was added
      for (; piece != pieces.end() && piece->member == i; ++piece)
        packed.narrow(0, piece->to, piece->count).copy_(values.narrow(0, piece->from, piece->count));
      lazy.clear();
    }
    return packed;
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
    if (planted("pieces-of-shards-stay")) all.zero_();
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
  torch::Tensor packed_, piece_;  // of what is travelling
};

}  // namespace

std::unique_ptr<BucketStrategy> make_unit_buckets(const ProcessGroupMesh& mesh, const ParameterShards& shards) {
  return std::make_unique<UnitBuckets>(mesh, shards);
}

}  // namespace gantry
