// Writes the events of a rank to OUTPUT/events/rank-RRRRR.jsonl, one line of JSON per event (docs/monitoring.md).
#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <mutex>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "gantry/comm/world.h"
#include "gantry/core/base/warning.h"
#include "gantry/trainer/callbacks.h"

namespace gantry {

class RunEvents {
 public:
  // Appends to the file of this rank, and creates the directory. The warnings of a process are events of its first
  // rank. Throws ResourceError if the file cannot be written, as do the functions below.
  RunEvents(const std::string& output, const World& world);
  ~RunEvents();
  RunEvents(const RunEvents&) = delete;
  RunEvents& operator=(const RunEvents&) = delete;

  void start(std::int64_t done, std::int64_t steps);
  void step(const StepMetrics& metrics);
  void evaluation(const EvaluationMetrics& metrics);
  void save(std::int64_t step);
  void end(const RunEnd& end);
  // An error that ends the run of this rank. Does not throw.
  void failure(const std::string& error, int exit_code) noexcept;

 private:
  void write(const char* event, nlohmann::ordered_json facts);
  void write_quietly(const char* event, nlohmann::ordered_json facts) noexcept;

  int rank_, ranks_;
  std::string path_;
  std::mutex mutex_;  // guards the next two
  std::FILE* file_;
  std::int64_t step_ = 0;                      // the last one that was completed
  std::unique_ptr<WarningListener> listener_;  // null on other ranks of the process; last, as it uses the others
};

}  // namespace gantry
