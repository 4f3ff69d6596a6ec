#include "gantry/plugins/fully_sharded_units.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/variable.h>

#include "gantry/core/error.h"
#include "gantry/tensors/host_copy.h"
#include "gantry/tensors/libtorch.h"

namespace gantry {
namespace {

using torch::autograd::get_current_graph_task_id;

constexpr const char* kRemedy = "call FullySharded::unshard() before code that reads the memory by pointer";
constexpr const char* kNormError =
    "fully_shard: the norm of a gradient would cover only one rank's shard; expected the norm of all ranks' shards; "
    "call clip_grad_norm() of the result of fully_shard(), or use square().sum() of the local shard";

torch::ScalarType type_of_sums(const torch::Tensor& tensor) {
  const bool is_low = tensor.scalar_type() == torch::kBFloat16 || tensor.scalar_type() == torch::kFloat16;
  return is_low ? torch::kFloat32 : tensor.scalar_type();
}

}  // namespace

// --- Full parameters ---

void FullySharded::Units::add(std::vector<ShardedUnit::Member> members, const std::string& name, bool outside) {
  Unit& unit = units_.emplace_back();
  unit.outside = outside;
  std::vector<int> parts(group_.size());
  std::iota(parts.begin(), parts.end(), 0);
  unit.ready.resize(members.size());
  for (std::size_t i = 0; i < members.size(); ++i)
    if (members[i].tensor.requires_grad()) unit.trained.push_back(i);
  std::int64_t most = 0;
  for (const auto& member : members) most = std::max(most, elements_of(member.full));
  const torch::Tensor& first = members.front().tensor;
  unit.no_gradient =
      std::make_unique<ReleasedMemory>(most, first.scalar_type(), first.device(),
                                       "the full gradient of a parameter of " + name +
                                           " is read, which only exists in the backward pass: pass the parameters() of "
                                           "fully_shard() to optimizers, whose gradients are this rank's shards");
  unit.gradients.resize(unit.trained.size());
  unit.rows = std::make_unique<ShardedUnit>(std::move(members), group_, std::move(parts), name, kRemedy);
  for (const std::size_t i : unit.trained) torch::Tensor(unit.rows->shard(i)).requires_grad_();
}

void FullySharded::Units::watch() {
  class Reached final : public torch::autograd::PostAccumulateGradHook {
   public:
    Reached(std::weak_ptr<Units> units, int unit, std::size_t member)
        : units_(std::move(units)), unit_(unit), member_(member) {}
    void operator()(const torch::autograd::Variable&) override {
      if (const auto units = units_.lock()) units->reached(unit_, member_);
    }

   private:
    std::weak_ptr<Units> units_;
    int unit_;
    std::size_t member_;
  };
  for (int number = 0; number < count(); ++number) {
    Unit& unit = units_[number];
    unit.watched = std::make_unique<WatchedMemory>(unit.rows->over(0), weak_from_this(), number);
    for (const auto& member : unit.rows->members()) notice_uses(member.tensor);
    for (const std::size_t i : unit.trained)
      torch::autograd::impl::set_post_acc_grad_hooks(unit.rows->members()[i].tensor,
                                                     std::make_unique<Reached>(weak_from_this(), number, i));
    show_no_gradients(unit);
  }
}

// Increases with every write to rows of any unit. The rows of one unit are not enough: this rank may have
// none, and optimizers skip empty tensors, but all ranks must gather the unit again together.
std::uint64_t FullySharded::Units::writes() const {
  std::uint64_t writes = 0;
  for (const auto& [name, shard] : named_) writes += shard._version();
  return writes;
}

void FullySharded::Units::start(Unit& unit) {
  if (unit.rows->is_full() || unit.rows->is_arriving()) return;
  unit.writes = writes();
  unit.rows->start();
}

// Gathers the current rows. A write to rows since the last gather makes the full parameters outdated.
void FullySharded::Units::unshard(Unit& unit) {
  const bool is_old = unit.writes != writes();
  if (is_old) unit.rows->release();
  if (unit.rows->is_full()) return;
  start(unit);
  unit.rows->wait();
  drop_shown(unit);
}

void FullySharded::Units::release(Unit& unit) {
  if (!pinned_) unit.rows->release();
}

// Starts the gather of one more unit, in the direction in which units are used.
void FullySharded::Units::start_next(int unit) {
  const bool backwards = !last_used_.empty() && unit < last_used_.back();
  const int next = backwards ? unit - 1 : unit + 1;
  if (next >= 0 && next < count() && !units_[next].outside) start(units_[next]);
}

void FullySharded::Units::before_use(const std::vector<int>& used) {
  const c10::InferenceMode no_inference(false);
  const torch::NoGradGuard no_grad;
  follow_backward();
  for (const int unit : used) start(units_[unit]);
  for (const int unit : used) unshard(units_[unit]);
  std::vector<int> inner;
  for (const int unit : used)
    if (!units_[unit].outside) inner.push_back(unit);
  if (inner.empty() || inner == last_used_) return;
  if (options_.reshard_after_forward || in_backward_)
    for (const int unit : last_used_)
      if (std::find(inner.begin(), inner.end(), unit) == inner.end()) release(units_[unit]);
  start_next(inner.back());
  last_used_ = std::move(inner);
}

void FullySharded::Units::unshard() {
  const torch::NoGradGuard no_grad;
  pinned_ = true;
  for (Unit& unit : units_) start(unit);
  for (Unit& unit : units_) unshard(unit);
}

void FullySharded::Units::reshard() {
  pinned_ = false;
  for (Unit& unit : units_) unit.rows->release();
  last_used_.clear();
}

// --- Gradients ---

// Sets gradients on memory that is never allocated, so that reading them throws an error with the reason.
void FullySharded::Units::show_no_gradients(const Unit& unit) const {
  if (unit.rows->is_full()) return;
  for (const std::size_t i : unit.trained) {
    torch::Tensor parameter = unit.rows->members()[i].tensor;
    parameter.mutable_grad() = unit.no_gradient->over(0, unit.rows->members()[i].full);
  }
}

void FullySharded::Units::drop_shown(const Unit& unit) const {
  const torch::Tensor shown = unit.no_gradient->over(0, {0});
  const auto is_shown = [&](const torch::Tensor& gradient) {
    return gradient.defined() && gradient.storage().unsafeGetStorageImpl() == shown.storage().unsafeGetStorageImpl();
  };
  for (const std::size_t i : unit.trained) {
    torch::Tensor parameter = unit.rows->members()[i].tensor;
    if (is_shown(parameter.grad())) parameter.mutable_grad().reset();
  }
}

// The first call within a backward prepares it. Recomputation starts nested backwards, but its forward was
// noticed before.
void FullySharded::Units::follow_backward() {
  if (get_current_graph_task_id() < 0) {
    in_backward_ = false;  // a backward that threw did not reset it
    return;
  }
  if (in_backward_) return;
  in_backward_ = true;
  next_ = count() - 1;
  for (Unit& unit : units_) {
    drop_shown(unit);
    unit.sent = unit.is_late = false;
    unit.missing = unit.trained.size();
    unit.ready.assign(unit.ready.size(), false);
  }
  torch::autograd::Engine::get_default_engine().queue_callback([weak = weak_from_this()] {
    if (const auto units = weak.lock()) units->end_backward();
  });
}

void FullySharded::Units::reached(int number, std::size_t member) {
  const torch::NoGradGuard no_grad;
  follow_backward();
  Unit& unit = units_[number];
  if (unit.sent) unit.is_late = true;
  if (unit.ready[member]) return;
  unit.ready[member] = true;
  --unit.missing;
  send_ready();
}

// All ranks send in the same order.
void FullySharded::Units::send_ready() {
  for (; next_ >= 0 && units_[next_].missing == 0; --next_) send(units_[next_]);
}

// Packs this rank's gradients of all parts, part by part. Each part is followed by one flag per trained
// member: 1 if this rank has a gradient of it. A member without a gradient on any rank gets none.
torch::Tensor FullySharded::Units::pack(const Unit& unit, Sizes& sizes) {
  const auto& members = unit.rows->members();
  const auto options =
      members.front().tensor.options().dtype(type_of_sums(members.front().tensor)).requires_grad(false);
  added_.clear();
  for (const std::size_t i : unit.trained) added_.push_back(members[i].tensor.grad().defined());
  std::vector<torch::Tensor> pieces;
  for (int part = 0; part < group_.size(); ++part) {
    sizes.push_back(static_cast<std::int64_t>(added_.size()));
    for (const std::size_t i : unit.trained) {
      const Range& range = members[i].parts[part];
      const torch::Tensor& gradient = members[i].tensor.grad();
      pieces.push_back(gradient.defined() ? gradient.reshape({-1}).narrow(0, range.begin, range.size()).to(options)
                                          : torch::zeros({range.size()}, options));
      sizes.back() += range.size();
    }
    for (const bool added : added_) pieces.push_back(torch::full({1}, added ? 1 : 0, options));
  }
  return torch::cat(pieces);
}

void FullySharded::Units::send(Unit& unit) {
  unit.sent = true;
  if (unit.trained.empty()) return;
  finish();
  Sizes sizes;
  packed_ = pack(unit, sizes);
  for (const std::size_t i : unit.trained) {
    torch::Tensor parameter = unit.rows->members()[i].tensor;
    parameter.mutable_grad().reset();
  }
  if (!unit.outside) release(unit);
  piece_ = torch::empty({sizes[group_.rank()]}, packed_.options());
  work_ = group_.reduce_scatter(piece_, packed_, sizes);
  travelling_ = &unit;
}

void FullySharded::Units::finish() {
  if (!travelling_) return;
  work_.wait();
  if (options_.replicas) options_.replicas->all_reduce(piece_).wait();
  add_arrived(*std::exchange(travelling_, nullptr));
  packed_.reset();
  piece_.reset();
}

// Adds the reduced gradients to the gradients of this rank's rows.
void FullySharded::Units::add_arrived(Unit& unit) {
  const std::int64_t flags = piece_.numel() - static_cast<std::int64_t>(added_.size());
  std::int64_t from = 0;
  for (std::size_t k = 0; k < unit.trained.size(); ++k) {
    torch::Tensor shard = unit.rows->shard(unit.trained[k]);
    torch::Tensor arrived = piece_.narrow(0, from, shard.numel()).view(shard.sizes());
    from += shard.numel();
    if (!added_[k] && read_back({piece_[flags + static_cast<std::int64_t>(k)]}).front() == 0) continue;
    if (options_.averages) arrived.div_(ranks());
    if (shard.grad().defined()) {
      shard.mutable_grad().add_(arrived);
      continue;
    }
    shard.mutable_grad() = arrived.to(shard.scalar_type(), /*non_blocking=*/false, /*copy=*/true);
    if (group_.size() > 1) unit.gradients[k] = std::make_unique<PartialMemory>(shard.grad(), kNormError);
  }
}

double FullySharded::Units::clip_grad_norm(double max_norm, const std::set<std::string>& counted_elsewhere,
                                           ProcessGroup* over) {
  const torch::NoGradGuard no_grad;
  if (named_.size() == 0) return 0;
  torch::Tensor squares =
      torch::zeros({}, named_.begin()->second.options().dtype(torch::kFloat64).requires_grad(false));
  for (const auto& [name, shard] : named_)
    if (shard.grad().defined() && !counted_elsewhere.contains(name))
      squares.add_(shard.grad().to(torch::kFloat64).square().sum());
  double sum = number_of(squares);
  sum = all_reduce_number(group_, sum, ReduceOp::kSum);
  if (over) sum = all_reduce_number(*over, sum, ReduceOp::kSum);
  const double norm = std::sqrt(sum), factor = max_norm / (norm + 1e-6);
  for (const auto& [name, shard] : named_)
    if (torch::Tensor gradient = shard.grad(); gradient.defined() && factor < 1) gradient.mul_(factor);
  return norm;
}

void FullySharded::Units::end_backward() {
  const torch::NoGradGuard no_grad;
  for (; next_ >= 0; --next_) send(units_[next_]);
  for (auto unit = units_.rbegin(); unit != units_.rend(); ++unit)
    if (unit->is_late) send(*unit);
  finish();
  for (Unit& unit : units_) {
    release(unit);
    show_no_gradients(unit);
  }
  last_used_.clear();
  in_backward_ = false;
}

}  // namespace gantry
