// The changes between a resumed run and its checkpoint that affect the following samples or the learning
// rate. Without LibTorch.
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
  std::string effect;  // effect of continuing with the change
  // True if the rest of the run repeats samples, or never reads some of them.
  bool moves_samples = false;
};

// The position of a run in its data.
struct DataPlace {
  std::int64_t read = 0;                       // number of samples read, in the global order
  std::optional<std::int64_t> samples_before;  // samples per epoch when the checkpoint was made, if known
  std::int64_t samples_now = 0;                // samples per epoch now; 0: unknown
  // The content of the path or of each source. Empty: unknown; paths are then compared as text.
  std::vector<SampledContent> contents_before = {}, contents_now = {};
  bool begins_as_before = false;  // the data begins with the bytes of contents_before
  // The content of the files of the tokenizer and of the chat template: one element if it is known.
  std::vector<SampledContent> tokenizer_before = {}, tokenizer_now = {};
};

// Returns the changes in the order of the configuration's keys. Without a data section, data is not compared.
std::vector<RunChange> changes_between(const Config& before, const Config& now, const DataPlace& place);

// "the checkpoint was made with data.path a, and this run has b; ...".
std::string describe(const std::vector<RunChange>& changes);

}  // namespace gantry
