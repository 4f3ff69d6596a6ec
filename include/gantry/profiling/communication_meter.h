// Counts the communication of a rank: calls, bytes and time, by the axis of the group. An observer of ObservedBackend.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "gantry/comm/operation.h"

namespace gantry {

// The calls of one operation by a rank, its bytes, and the time for which its thread was busy or waited.
struct CommunicationCount {
  std::string axis;  // label of the group: "tp", "pp+dp"
  std::string operation;
  std::int64_t calls = 0;
  // Bytes of the tensor sent, received or reduced; for a gather, those that this rank contributes.
  std::int64_t bytes = 0;
  double seconds = 0;
};

// Thread-safe: `mutex_` guards all members. Groups of one rank are not counted, because they do not communicate.
class CommunicationMeter final : public OperationObserver {
 public:
  // Counts calls between resume() and pause(); nothing before the first resume().
  void resume();
  void pause();
  // Returns the counts by axis and operation, without operations that were never called.
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
  std::vector<Cells*> groups_;          // cells of each group, by its number
};

}  // namespace gantry
