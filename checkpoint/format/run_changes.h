// What a resumed run has changed since its checkpoint, as far as it decides which samples come next or at which
// learning rate. Without LibTorch.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "gantry/checkpoint/format/sampled_content.h"
#include "gantry/core/config.h"

namespace gantry {

struct RunChange {
  std::string key, before, now;
  std::string effect;          // of going on all the same
  bool moves_samples = false;  // samples of the rest of the run were seen already, or never will be
};

// Where a run stands in its data.
struct DataPlace {
  std::int64_t read = 0;                       // samples, of the global order
  std::optional<std::int64_t> samples_before;  // of an epoch when the checkpoint was made, if it says so
  std::int64_t samples_now = 0;                // of an epoch now; 0: unknown
  // The content of the path or of each source; empty: unknown, and then paths are compared as text.
  std::vector<SampledContent> contents_before = {}, contents_now = {};
  bool begins_as_before = false;  // the data begin with the bytes of contents_before
};

// In the order of the configuration's keys. A configuration without a data section compares no data.
std::vector<RunChange> changes_between(const Config& before, const Config& now, const DataPlace& place);

// "the checkpoint was made with data.path a, and this run has b; ...".
std::string describe(const std::vector<RunChange>& changes);

}  // namespace gantry
