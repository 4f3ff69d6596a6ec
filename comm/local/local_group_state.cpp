#include "gantry/comm/local/local_group_state.h"

#include <algorithm>
#include <fmt/format.h>

#include "gantry/tensors/libtorch.h"
#include "gantry/tensors/tensor_dict.h"

namespace gantry {
namespace {

// Allocated in advance, with memory for the members' size lists unless there are too many members. In steady
// state nothing is allocated.
constexpr int kUsualSlots = 64, kMostReserved = 64;

std::string describe_call(const LocalEntry& entry) {
  return fmt::format("{} of {}", name_of(entry.kind), describe(entry.in.defined() ? entry.in : entry.out));
}

// True if the calls are equal except for the sizes by rank.
bool is_same_call(const LocalEntry& one, const LocalEntry& other) {
  if (one.kind != other.kind || one.op != other.op || one.root != other.root) return false;
  if (one.kind == OperationKind::kBarrier) return true;
  const bool full = one.kind == OperationKind::kAllReduce || one.kind == OperationKind::kBroadcast;
  return one.in.scalar_type() == other.in.scalar_type() &&
         (full ? one.in.numel() == other.in.numel() : row_elements(one.in) == row_elements(other.in));
}

}  // namespace

struct LocalGroupState::Slot {
  std::uint64_t sequence = 0;  // number of the collective in its group
  std::vector<LocalEntry> entries;
  std::vector<std::atomic<bool>> joined;
  std::atomic<int> posted{0};
  std::atomic<bool> ready{false};
  std::atomic<int> next{0}, finished{0}, left{0};
  int slices = 0;        // set before ready
  std::string mismatch;  // set before ready
  std::atomic<Slot*> following{nullptr};
  // Incremented by each member that has moved to the following slot, and by the last one to leave.
  std::atomic<int> frees{0};

  explicit Slot(int size) : entries(static_cast<std::size_t>(size)), joined(static_cast<std::size_t>(size)) {
    if (size > kMostReserved) return;
    for (auto& entry : entries) {
      entry.sizes.reserve(static_cast<std::size_t>(size));
      entry.out_sizes.reserve(static_cast<std::size_t>(size));
    }
  }
  void reset() {
    for (auto& one : joined) one.store(false, std::memory_order_relaxed);
    for (auto* count : {&posted, &next, &finished, &left, &frees}) count->store(0, std::memory_order_relaxed);
    ready.store(false, std::memory_order_relaxed);
    following.store(nullptr, std::memory_order_relaxed);
  }
};

LocalGroupState::LocalGroupState(LocalJob& job, std::string label, std::vector<int> ranks)
    : job_(job), label_(std::move(label)), ranks_(std::move(ranks)), cursors_(ranks_.size()), boxes_(ranks_.size()) {
  for (int i = 0; i < kUsualSlots; ++i) slots_.push_back(std::make_unique<Slot>(size()));
  for (const auto& slot : slots_) idle_.push_back(slot.get());
  // Every call follows another one. The first calls follow a slot that all members have left.
  Slot* const before_all = take_idle();
  before_all->frees = 1;
  before_all->sequence = ~std::uint64_t{0};
  for (auto& cursor : cursors_) cursor.at = before_all;
}

LocalGroupState::~LocalGroupState() = default;

void LocalGroupState::wake_all() {
  epoch_.fetch_add(1, std::memory_order_seq_cst);
  if (sleepers_.load(std::memory_order_seq_cst) == 0) return;
  { const std::lock_guard lock(mutex_); }
  changed_.notify_all();
}

void LocalGroupState::push(int from, int to, const Tag& tag, torch::Tensor tensor) {
  {
    const std::lock_guard lock(mutex_);
    boxes_[to].push_back({from, tag, std::move(tensor)});
  }
  wake_all();
}

bool LocalGroupState::take(int from, int to, const Tag& tag, torch::Tensor* tensor) {
  const std::lock_guard lock(mutex_);
  auto& box = boxes_[to];
  const auto message =
      std::find_if(box.begin(), box.end(), [&](const Message& one) { return one.from == from && one.tag == tag; });
  if (message == box.end()) return false;
  *tensor = std::move(message->tensor);
  box.erase(message);
  return true;
}

LocalGroupState::Slot* LocalGroupState::take_idle() {
  const std::lock_guard lock(idle_mutex_);
  if (idle_.empty()) {
    slots_.push_back(std::make_unique<Slot>(size()));
    idle_.reserve(slots_.size());  // so that returning a slot does not allocate
    return slots_.back().get();
  }
  Slot* const slot = idle_.back();
  idle_.pop_back();
  return slot;
}

// Returns the slot of the call after that of `slot`.
LocalGroupState::Slot& LocalGroupState::following(Slot& slot) {
  Slot* next = slot.following.load(std::memory_order_acquire);
  if (next) return *next;
  Slot* const fresh = take_idle();
  fresh->sequence = slot.sequence + 1;
  if (slot.following.compare_exchange_strong(next, fresh, std::memory_order_acq_rel, std::memory_order_acquire))
    return *fresh;
  const std::lock_guard lock(idle_mutex_);  // another member has linked its slot first
  idle_.push_back(fresh);
  return *next;
}

void LocalGroupState::free_once(Slot& slot) {
  if (slot.frees.fetch_add(1, std::memory_order_acq_rel) < size()) return;
  slot.reset();
  const std::lock_guard lock(idle_mutex_);
  idle_.push_back(&slot);
}

LocalGroupState::Slot& LocalGroupState::post(int rank, const Collective& call, const torch::Tensor& in,
                                             const torch::Tensor& out) {
  Slot& before = *cursors_[rank].at;
  Slot& place = following(before);
  cursors_[rank].at = &place;
  free_once(before);
  place.entries[rank].fill(call, in, out);
  place.joined[rank].store(true, std::memory_order_release);
  if (place.posted.fetch_add(1, std::memory_order_acq_rel) + 1 < size()) return place;
  prepare(place);
  place.ready.store(true, std::memory_order_release);
  wake_all();
  return place;
}

// Each member has checked that its own tensors fit each other. Together with this check, no member reads or
// writes beyond the memory of another one.
std::string LocalGroupState::find_mismatch(const Slot& slot) const {
  const LocalEntry& first = slot.entries[0];
  for (int rank = 1; rank < size(); ++rank) {
    const LocalEntry& other = slot.entries[rank];
    if (!is_same_call(first, other))
      return fmt::format(
          "group '{}': {} called {} while {} called {}; all members must make the same calls in the same order", label_,
          describe_member(0), describe_call(first), describe_member(rank), describe_call(other));
    if (first.kind != OperationKind::kAllToAll && first.sizes != other.sizes)
      return fmt::format("group '{}': {} and {} called {} with different sizes by rank", label_, describe_member(0),
                         describe_member(rank), describe_call(first));
  }
  return first.kind == OperationKind::kAllToAll ? find_unequal_exchange(slot) : "";
}

std::string LocalGroupState::find_unequal_exchange(const Slot& slot) const {
  for (int from = 0; from < size(); ++from)
    for (int to = 0; to < size(); ++to) {
      const std::int64_t sent = slot.entries[from].sizes[to], expected = slot.entries[to].out_sizes[from];
      if (sent == expected) continue;
      return fmt::format("group '{}': {} called {} and sends {} rows to {}, which expects {}", label_,
                         describe_member(from), describe_call(slot.entries[from]), sent, describe_member(to), expected);
    }
  return "";
}

void LocalGroupState::prepare(Slot& slot) {
  slot.mismatch = find_mismatch(slot);
  if (!slot.mismatch.empty()) {
    job_.fail(PeerError::kExitCode, slot.mismatch);
    return;
  }
  slot.slices = count_slices(slot.entries);
}

bool LocalGroupState::progress(Slot& place) {
  if (!place.ready.load(std::memory_order_acquire)) return false;
  if (!place.mismatch.empty()) throw PeerError(place.mismatch);
  const int total = place.slices;
  while (place.next.load(std::memory_order_relaxed) < total) {
    const int mine = place.next.fetch_add(1, std::memory_order_relaxed);
    if (mine >= total) break;
    work_on_slice(place.entries, mine);
    if (place.finished.fetch_add(1, std::memory_order_acq_rel) + 1 == total) wake_all();
  }
  return place.finished.load(std::memory_order_acquire) == total;
}

void LocalGroupState::leave(Slot& place) {
  if (place.left.fetch_add(1, std::memory_order_acq_rel) + 1 < size()) return;
  for (auto& entry : place.entries) {
    entry.in.reset();
    entry.out.reset();
  }
  free_once(place);
}

std::vector<int> LocalGroupState::missing(const Slot& place) const {
  std::vector<int> members;
  for (int member = 0; member < size(); ++member)
    if (!place.joined[member].load(std::memory_order_acquire)) members.push_back(member);
  return members;
}

std::string LocalGroupState::describe_pending(const Slot& place, int rank) const {
  std::string names;
  for (const int member : missing(place)) names += (names.empty() ? "" : ", ") + describe_member(member);
  return fmt::format("{}, number {} of group '{}', which {}", describe_call(place.entries[rank]), place.sequence,
                     label_, names.empty() ? "all members have joined" : names + " has not joined");
}

int LocalGroupState::find_ended(const std::vector<int>& awaited) const {
  const auto ended =
      std::find_if(awaited.begin(), awaited.end(), [&](int member) { return job_.has_ended(ranks_[member]); });
  return ended == awaited.end() ? -1 : *ended;
}

}  // namespace gantry
