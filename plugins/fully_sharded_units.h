// The units of fully_shard(): the times at which each is gathered and released, and the reduction of its
// gradients. The dispatcher notifies it of uses (tensors/use_watch.h), and autograd of gradients.
#pragma once

#include <deque>
#include <set>
#include <string>

#include "gantry/optimizers/sharded_unit.h"
#include "gantry/plugins/fully_shard.h"
#include "gantry/tensors/use_watch.h"

namespace gantry {

class FullySharded::Units final : public UseWatch, public std::enable_shared_from_this<FullySharded::Units> {
 public:
  Units(ProcessGroup& group, const FullyShardOptions& options) : group_(group), options_(options) {}

  // Adds a unit. Units are in the order of the forward. `outside`: the parameters are not in a unit of the
  // options.
  void add(std::vector<ShardedUnit::Member> members, const std::string& name, bool outside);
  // Called after all units were added.
  void watch();
  const torch::Tensor& shard(int unit, std::size_t member) const { return units_[unit].rows->shard(member); }
  int count() const { return static_cast<int>(units_.size()); }
  // `shapes`: the shapes of the full parameters, in the order of `named`.
  void set_named(TensorDict named, std::vector<Shape> shapes) {
    named_ = std::move(named);
    shapes_ = std::move(shapes);
  }
  const TensorDict& named() const { return named_; }
  const std::vector<Shape>& shapes() const { return shapes_; }
  const ProcessGroup& group() const { return group_; }

  void before_use(const std::vector<int>& used) override;
  // Called after a backward has computed all of a member's gradient.
  void reached(int unit, std::size_t member);
  // `counted_elsewhere`: names of parameters that another rank of `over` counts. `over` may be null.
  double clip_grad_norm(double max_norm, const std::set<std::string>& counted_elsewhere, ProcessGroup* over);
  void unshard();
  void reshard();

 private:
  struct Unit {
    std::unique_ptr<ShardedUnit> rows;
    std::unique_ptr<WatchedMemory> watched;
    std::unique_ptr<ReleasedMemory> no_gradient;  // its memory is never allocated
    bool outside = false;
    std::vector<std::size_t> trained;  // members that require a gradient
    // By index in `trained`: holds the gradient of the member's rows.
    std::vector<std::unique_ptr<PartialMemory>> gradients;
    std::vector<bool> ready;  // by member, in this backward
    std::size_t missing = 0;  // number of members of `trained` that are not ready
    // In this backward: the reduction was launched; a gradient came after that.
    bool sent = false, is_late = false;
    std::uint64_t writes = 0;  // value of writes() at the last gather
  };

  void start(Unit& unit);
  void unshard(Unit& unit);
  void release(Unit& unit);
  void start_next(int unit);
  std::uint64_t writes() const;

  void follow_backward();
  void end_backward();
  void send_ready();
  void send(Unit& unit);
  void finish();
  int ranks() const { return group_.size() * (options_.replicas ? options_.replicas->size() : 1); }
  torch::Tensor pack(const Unit& unit, Sizes& sizes);
  void add_arrived(Unit& unit);
  void show_no_gradients(const Unit& unit) const;
  void drop_shown(const Unit& unit) const;

  ProcessGroup& group_;
  FullyShardOptions options_;
  std::deque<Unit> units_;
  TensorDict named_;
  std::vector<Shape> shapes_;
  std::vector<int> last_used_;
  bool pinned_ = false;       // by unshard()
  bool in_backward_ = false;  // a callback will reset it at the end
  int next_ = -1;             // the unit to be reduced next, from the last to the first
  Unit* travelling_ = nullptr;
  torch::Tensor packed_, piece_;  // buffers of the reduction in flight
  std::vector<bool> added_;       // by trained member of the unit in flight: this rank has a gradient
  Work work_;
};

}  // namespace gantry
