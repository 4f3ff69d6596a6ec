// The shared half of a group of rank threads: mailboxes for messages, and slots for collectives.
//
// Every member posts its tensors to the slot of a collective. The last one to post splits the work into
// slices. From then on, members that post or wait claim slices by an atomic counter and work directly on the
// members' memory. Results are bitwise identical whichever thread processes a slice, because every element is
// reduced in rank order.
//
// Slots form a chain in the order of the calls. A member goes from the slot of its last call to the following
// one, which the first member to arrive links. A slot is reused when every member has left its collective and
// has moved to the following slot. The number of slots is therefore the maximum number of collectives in
// flight.
//
// Shared between threads: `boxes_` is guarded by `mutex_`, and unused slots by `idle_mutex_`. A member's
// cursor belongs to the member. In a slot, the number is written before the slot is linked, an entry by its
// own rank before `posted` rises, and the number of slices by the last poster before `ready` is set. Counters
// and links are atomic. Threads sleep on `changed_` under `mutex_`. A thread that changes something
// increments `epoch_`, and wakes sleepers if `sleepers_` is not zero.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "gantry/comm/local/local_backend.h"
#include "gantry/comm/local/local_slices.h"
#include "gantry/core/error.h"
#include "gantry/tensors/tensor.h"

namespace gantry {

class LocalGroupState {
 public:
  struct Slot;  // the state of one collective

  LocalGroupState(LocalJob& job, std::string label, std::vector<int> ranks);
  ~LocalGroupState();

  int size() const { return static_cast<int>(ranks_.size()); }
  LocalJob& job() { return job_; }
  std::string describe_member(int rank) const { return job_.describe_rank(ranks_[rank]); }

  // Transfers the ownership of the tensor to the receiver.
  void push(int from, int to, const Tag& tag, torch::Tensor tensor);
  // Takes the oldest message with this tag. Returns false if there is none.
  bool take(int from, int to, const Tag& tag, torch::Tensor* tensor);
  // Member `rank` joins its next collective, with contiguous tensors in place of the call's own; in place:
  // only `in`. The slot is valid until leave().
  Slot& post(int rank, const Collective& call, const torch::Tensor& in, const torch::Tensor& out);
  // Processes available slices. Returns true when the collective is done. Throws PeerError if the members
  // called different operations.
  bool progress(Slot& slot);
  // Called once by each member, when it has seen that the collective is done.
  void leave(Slot& slot);
  // Returns "all_reduce 17 of group 'tp', which rank 3 (...) has not joined", for the error at the deadline.
  std::string describe_pending(const Slot& slot, int rank) const;
  std::vector<int> missing(const Slot& slot) const;  // members that have not joined

  // Blocks until `ready` returns true; it is checked again after every change. Throws PeerError with `what`
  // at the deadline, or at once if a member of `awaited` has ended its work. Both end the job. Also throws
  // PeerError if the job has failed.
  template <class Ready, class What, class Awaited>
  void wait(int rank, Ready ready, What what, Awaited awaited);
  void wake_all();

 private:
  struct Message {
    int from;
    Tag tag;
    torch::Tensor tensor;
  };
  struct alignas(64) Cursor {
    Slot* at = nullptr;  // slot of the member's last call
  };

  Slot& following(Slot& slot);
  Slot* take_idle();
  void free_once(Slot& slot);
  void prepare(Slot& slot);
  std::string find_mismatch(const Slot& slot) const;
  std::string find_unequal_exchange(const Slot& slot) const;
  // Returns a rank of the group in `awaited` that has ended its work; -1 if none has.
  int find_ended(const std::vector<int>& awaited) const;

  LocalJob& job_;
  const std::string label_;
  const std::vector<int> ranks_;
  std::vector<Cursor> cursors_;
  std::mutex idle_mutex_;  // guards the following two
  std::vector<std::unique_ptr<Slot>> slots_;
  std::vector<Slot*> idle_;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::atomic<int> sleepers_{0};
  std::atomic<std::uint64_t> epoch_{0};      // incremented with every change that a sleeper may wait for
  std::vector<std::vector<Message>> boxes_;  // by receiver; each has few messages at a time
};

template <class Ready, class What, class Awaited>
void LocalGroupState::wait(int rank, Ready ready, What what, Awaited awaited) {
  using Clock = std::chrono::steady_clock;
  const int spins = job_.crowded() ? 20 : 4000;
  for (int i = 0; i < spins; ++i) {
    if (ready()) return;
    job_.throw_if_failed();
    std::atomic_signal_fence(std::memory_order_seq_cst);
  }
  const auto begin = Clock::now();
  const auto after = [&](double seconds) {
    return begin + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  };
  const auto deadline = after(job_.timeout_seconds());
  // One day stands for infinity.
  auto notice = after(std::min(job_.notices().due_seconds(), 86400.0));
  while (true) {
    const std::uint64_t seen = epoch_.load(std::memory_order_seq_cst);
    if (ready()) return;
    job_.throw_if_failed();
    if (const int ended = job_.some_ended() ? find_ended(awaited()) : -1; ended >= 0) {
      // Everything that the ended rank did before is visible from here on.
      if (ready()) return;
      const std::vector<int> still = awaited();
      if (std::find(still.begin(), still.end(), ended) != still.end())
        job_.fail(PeerError::kExitCode, ended_early_text(describe_member(rank), what(), describe_member(ended)));
      job_.throw_if_failed();
    }
    if (Clock::now() >= deadline) {
      job_.fail(PeerError::kExitCode, deadline_text(describe_member(rank), job_.timeout_seconds(), what()));
      job_.throw_if_failed();
    }
    if (Clock::now() >= notice) {
      const double waited = std::chrono::duration<double>(Clock::now() - begin).count();
      job_.notices().say(describe_member(rank), waited, what());
      notice = deadline;
    }
    sleepers_.fetch_add(1, std::memory_order_seq_cst);
    {
      std::unique_lock lock(mutex_);
      changed_.wait_until(lock, std::min(deadline, notice),
                          [&] { return epoch_.load(std::memory_order_seq_cst) != seen; });
    }
    sleepers_.fetch_sub(1, std::memory_order_seq_cst);
  }
}

}  // namespace gantry
