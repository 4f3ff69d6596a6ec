// Families that `gantry init` begins with samples of the project's own, for what they read is no plain text.
#pragma once

#include <string>
#include <vector>

namespace gantry::cli {

struct SampledFamily {
  std::string model_type;
  std::string drawn;  // the file of cli/init/samples that draws the samples
  std::string keys;   // of a small model's config.json, as JSON
  std::string data;   // further keys of the section `data`
};

const std::vector<SampledFamily>& sampled_families();

}  // namespace gantry::cli
