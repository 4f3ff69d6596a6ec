// The recordings of a model's stages (stage_recording.h), from step to step: train.device_graphs. A stage has as many
// as it has microbatches in flight at once, for each kind of microbatch.
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
  // ConfigError where the model's work can't be recorded there. The module is not owned.
  StageGraphs(const StageModule& module, torch::Device device);

  // Before each call that trains: no recording is in use. All of them go where a parameter or a gradient has come to
  // lie elsewhere, or is trained by now or no longer.
  void begin();
  // A recording of the stage that nobody uses, until it is given back; null: this one runs as it would without. `key`
  // says all that the microbatch's kernels depend on but numbers on the device. The first two calls with a key run so,
  // because libraries set themselves up then; and so does what comes after the first few keys.
  StageRecording* take(int stage, const std::string& key);
  void give_back(StageRecording& recording);
  torch::Device device() const { return device_; }

 private:
  struct Shape {
    std::int64_t calls = 0, last_call = -1;  // that had it
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
