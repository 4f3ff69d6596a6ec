// Counts what a rank communicates: calls, bytes and time, by the axis of the group. An observer of an ObservedBackend.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "gantry/comm/operation.h"

namespace gantry {

// What one rank handed in of one operation, and how long its thread was busy with it or waited for it.
struct CommunicationCount {
  std::string axis;  // the group's label: "tp", "pp+dp"
  std::string operation;
  std::int64_t calls = 0;
  std::int64_t bytes = 0;  // of the tensor sent, received or reduced; what a rank adds to a gather
  double seconds = 0;
};

// Shared between threads, and guarded: everything by `mutex_`. Groups of one rank are left out: nothing travels there.
class CommunicationMeter final : public OperationObserver {
 public:
  // Counts what is called between resume() and pause(); nothing before the first resume().
  void resume();
  void pause();
  // What was counted, by axis and operation; without those that never ran.
  std::vector<CommunicationCount> counts() const;

  int begin_group(const std::string& label, const std::vector<int>& ranks, std::uint64_t& operation) override;
  void made(int, std::uint64_t) override {}
  std::uint64_t post(const ObservedCall& call) override;
  void enter_wait(std::uint64_t operation) override;
  void leave(std::uint64_t operation) override;
  void waits(std::uint64_t) override {}
  void finish(std::uint64_t, OperationState) override {}

 private:
  struct Cell {
    std::int64_t calls = 0, bytes = 0, nanoseconds = 0;
  };
  using Cells = std::array<Cell, kOperationKinds>;  // by OperationKind

  mutable std::mutex mutex_;
  bool counts_ = false;
  std::map<std::string, Cells> cells_;  // by axis
  std::vector<Cells*> groups_;          // those of each, by its number
};

}  // namespace gantry
