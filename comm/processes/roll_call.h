// The exchange between the members of a group before the group is made. Each member contributes a word, and
// gets the words of all.
//
// Each member sends its word to the first member. The first member answers at once, and again when all words
// have arrived. So a member without the second answer knows whether the first member waits for others.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "gantry/comm/processes/host_memory.h"
#include "gantry/comm/processes/process_operation.h"

namespace gantry {

struct RollWord {
  std::uint64_t channel = 0;   // number of the group's first channel, from the first member
  HostMemory::Address memory;  // location of the host's shared memory, from the first member on the host
  int error = 0;
};

class RollCall final : public ProcessOperation {
 public:
  // `ranks`: world ranks; `me`: the index of this rank.
  RollCall(std::shared_ptr<ProcessEngine> engine, std::vector<int> ranks, int me, const RollWord& mine);

  // True if the first member has answered.
  bool first_is_here() const { return first_is_here_.load(std::memory_order_acquire); }
  // By index in `ranks`, valid after the end.
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
  std::vector<int> open_;  // by index, on the first member: requests in flight for the member's word
  std::vector<bool> answered_;
  int awaited_ = 0;  // number of missing words; on other members: missing first answer
  bool begun_ = false, released_ = false;
  std::atomic<bool> first_is_here_{false};
};

}  // namespace gantry
