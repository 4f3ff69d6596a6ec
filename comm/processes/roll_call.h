// The members of a group that meet before it is made. Each brings a word, and gets those of all.
//
// Each member sends its word to the first member. The first member answers at once, and again when all have come. A
// member that gets no second answer then knows whether the first one waits for others.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "gantry/comm/processes/host_memory.h"
#include "gantry/comm/processes/process_operation.h"

namespace gantry {

struct RollWord {
  std::uint64_t channel = 0;   // the number of the group's first channel, from the first member
  HostMemory::Address memory;  // the location of the host's, from its first member
  int error = 0;
};

class RollCall final : public ProcessOperation {
 public:
  // `ranks`: world ranks, of which this one has the place `me`.
  RollCall(std::shared_ptr<ProcessEngine> engine, std::vector<int> ranks, int me, const RollWord& mine);

  // The first member has come.
  bool first_is_here() const { return first_is_here_.load(std::memory_order_acquire); }
  // By place, after the end.
  const std::vector<RollWord>& words() const { return words_; }

 protected:
  bool advance() override;
  bool polled() const override { return true; }
  std::string describe_pending(const std::vector<int>& missing) override;
  std::string describe_mismatch(int, std::int64_t, std::int64_t) override { return "members make different groups"; }

 private:
  void begin();
  bool hear_members();

  const std::vector<int> ranks_;
  const int me_;
  std::vector<RollWord> words_;
  std::vector<int> open_;  // by place: of the first member, the word that is still to come
  std::vector<bool> answered_;
  int awaited_ = 0;  // members; of the others, the first one's answer
  bool begun_ = false, released_ = false;
  std::atomic<bool> first_is_here_{false};
};

}  // namespace gantry
