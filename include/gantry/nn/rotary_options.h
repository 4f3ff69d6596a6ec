// How a rotary position embedding turns heads, in the words of Hugging Face's rope_parameters.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace gantry::nn {

struct RotaryOptions {
  double theta = 10000;
  std::string type = "default";  // default | linear | dynamic | yarn | llama3 | longrope
  std::int64_t rotated = 0;      // the first so many features of a head turn, an odd number and one more; 0: all
  bool paired = false;           // features 2i and 2i + 1 turn together; else i and i + rotated / 2
  double factor = 1;             // of all but default: how much longer texts are than those first trained on
  // llama3, yarn, longrope: the length of those. llama3 stretches wavelengths longer than original_positions /
  // low_frequency_factor wholly, those shorter than original_positions / high_frequency_factor not at all, and those
  // between in part. dynamic: longer texts change the frequencies.
  std::int64_t original_positions = 8192;
  double low_frequency_factor = 1;
  double high_frequency_factor = 4;
  // yarn (Peng et al., arXiv 2309.00071): features that turn more often than beta_fast in original_positions stay,
  // those that turn less often than beta_slow are stretched wholly.
  double beta_fast = 32;
  double beta_slow = 1;
  bool truncate = true;  // the two borders are rounded to whole features
  double mscale = 0;     // both 0: the attention factor follows from `factor` alone
  double mscale_all_dim = 0;
  std::optional<double> attention_factor;  // yarn, longrope: of cosine and sine; unset: by the type's formula
  // longrope (Ding et al., arXiv 2402.13753): a factor for each pair of features, for texts of up to
  // original_positions and for longer ones.
  std::vector<double> short_factors, long_factors;
};

}  // namespace gantry::nn
