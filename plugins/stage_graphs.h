// The captured CUDA graphs of a model's stages (stage_recording.h), which are kept from step to step:
// train.device_graphs. For each kind of microbatch, a stage has one recording per microbatch in flight.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "gantry/plugins/stage_recording.h"
#include "gantry/policies/sharder.h"

namespace gantry {

class StageGraphs {
 public:
  // Throws ConfigError if the model's work cannot be captured on the device. The module is not owned.
  StageGraphs(const StageModule& module, torch::Device device);

  // Called before each training call, when no recording is in use. Drops all recordings if a parameter or
  // gradient is at another address, or if a parameter was frozen or unfrozen.
  void begin();
  // Returns a free recording of the stage, which is reserved until give_back(). Null: the microbatch runs
  // without a graph. `key` must contain everything that the microbatch's kernels depend on, except for values
  // on the device. The first two calls with a key get null, because libraries initialise themselves in them.
  // So do all keys after the first few.
  StageRecording* take(int stage, const std::string& key);
  void give_back(StageRecording& recording);
  torch::Device device() const { return device_; }

 private:
  struct Shape {
    std::int64_t calls = 0, last_call = -1;  // calls with this key, and the last of them
    std::vector<std::unique_ptr<StageRecording>> recordings;
    std::vector<StageRecording*> free;
  };
  using Places = std::vector<const void*>;
  Places places() const;

  const StageModule& module_;
  torch::Device device_;
  std::int64_t call_ = 0;
  std::map<int, std::map<std::string, Shape>> shapes_;  // by stage and key
  std::map<const StageRecording*, Shape*> shape_of_;
  Places places_;
};

}  // namespace gantry
