// Families whose projects of `gantry init` generate their samples, because the families do not read plain text.
#pragma once

#include <string>
#include <vector>

namespace gantry::cli {

struct SampledFamily {
  std::string model_type;
  std::string drawn;  // the file of cli/init/samples that generates the samples
  std::string keys;   // config.json of a small model
  std::string data;   // further keys of the data section
};

const std::vector<SampledFamily>& sampled_families();

}  // namespace gantry::cli
