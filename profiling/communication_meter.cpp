#include "gantry/profiling/communication_meter.h"

#include <chrono>

namespace gantry {
namespace {

std::int64_t now() { return std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1); }

// Start of the call or wait that this thread is in: of one operation at a time.
thread_local std::int64_t entered_ns = 0;

}  // namespace

void CommunicationMeter::resume() {
  const std::lock_guard lock(mutex_);
  counts_ = true;
}

void CommunicationMeter::pause() {
  const std::lock_guard lock(mutex_);
  counts_ = false;
}

std::vector<CommunicationCount> CommunicationMeter::counts() const {
  const std::lock_guard lock(mutex_);
  std::vector<CommunicationCount> counts;
  for (const auto& [axis, cells] : cells_)
    for (int kind = 0; kind < kOperationKinds; ++kind)
      if (const Cell& cell = cells[kind]; cell.calls > 0)
        counts.push_back({axis, name_of(static_cast<OperationKind>(kind)), cell.calls, cell.bytes,
                          static_cast<double>(cell.nanoseconds) / 1e9});
  return counts;
}

int CommunicationMeter::begin_group(const std::string& label, const std::vector<int>& ranks, std::uint64_t&) {
  if (ranks.size() == 1) return -1;
  const std::lock_guard lock(mutex_);
  groups_.push_back(&cells_[label]);
  return static_cast<int>(groups_.size()) - 1;
}

// The number of an operation is the index of its cell.
std::uint64_t CommunicationMeter::post(const ObservedCall& call) {
  const std::lock_guard lock(mutex_);
  if (!counts_) return kUnobserved;
  Cell& cell = (*groups_[call.group])[static_cast<int>(call.kind)];
  ++cell.calls;
  cell.bytes += call.bytes;
  entered_ns = now();
  return static_cast<std::uint64_t>(call.group) * kOperationKinds + static_cast<std::uint64_t>(call.kind);
}

void CommunicationMeter::enter_wait(std::uint64_t) { entered_ns = now(); }

void CommunicationMeter::leave(std::uint64_t operation) {
  const std::int64_t busy = now() - entered_ns;
  const std::lock_guard lock(mutex_);
  (*groups_[operation / kOperationKinds])[operation % kOperationKinds].nanoseconds += busy;
}

}  // namespace gantry
