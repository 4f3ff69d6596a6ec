#include "gantry/comm/processes/roll_call.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <utility>

namespace gantry {
namespace {

// Members make their groups in the same order, so one tag of each kind is enough.
constexpr int kArrived = 1, kReleased = 2, kFirstHere = 3;

}  // namespace

RollCall::RollCall(std::shared_ptr<ProcessEngine> engine, std::vector<int> ranks, int me, const RollWord& mine)
    : ProcessOperation(std::move(engine)),
      ranks_(std::move(ranks)),
      me_(me),
      words_(ranks_.size()),
      open_(ranks_.size()),
      answered_(ranks_.size()) {
  words_[static_cast<std::size_t>(me)] = mine;
}

void RollCall::begin() {
  begun_ = true;
  auto& everyone = engine().everyone();
  if (me_ == 0) {
    for (std::size_t i = 1; i < ranks_.size(); ++i)
      engine().receive(*this, &words_[i], sizeof(RollWord), ranks_[i], kArrived, everyone, /*exact=*/true, &open_[i]);
    awaited_ = static_cast<int>(ranks_.size()) - 1;
    return;
  }
  engine().send(*this, &words_[static_cast<std::size_t>(me_)], sizeof(RollWord), ranks_[0], kArrived, everyone);
  engine().receive(*this, nullptr, 0, ranks_[0], kFirstHere, everyone, /*exact=*/true, &awaited_);
}

// Answers new words, and returns true when all have arrived.
bool RollCall::hear_members() {
  auto& everyone = engine().everyone();
  for (std::size_t i = 1; i < ranks_.size(); ++i) {
    if (open_[i] > 0 || answered_[i]) continue;
    answered_[i] = true;
    --awaited_;
    engine().send(*this, nullptr, 0, ranks_[i], kFirstHere, everyone);
  }
  return awaited_ == 0;
}

bool RollCall::advance() {
  if (!begun_) begin();
  auto& everyone = engine().everyone();
  const std::int64_t bytes = static_cast<std::int64_t>(words_.size() * sizeof(RollWord));
  if (me_ == 0 && !released_ && hear_members()) {
    released_ = true;
    for (std::size_t i = 1; i < ranks_.size(); ++i)
      engine().send(*this, words_.data(), bytes, ranks_[i], kReleased, everyone);
  } else if (me_ != 0 && !released_ && awaited_ == 0) {
    released_ = true;
    first_is_here_.store(true, std::memory_order_release);
    engine().receive(*this, words_.data(), bytes, ranks_[0], kReleased, everyone);
  }
  return released_ && requests() == 0;
}

std::string RollCall::describe_pending(const std::vector<int>&) {
  return fmt::format("the ranks {} to make a group", fmt::join(ranks_, ", "));
}

}  // namespace gantry
