// Options of a rotary position embedding, with the names of Hugging Face's rope_parameters.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace gantry::nn {

// Positions of tokens within images have three rows: time, height and width (M-RoPE, Qwen2-VL, arXiv 2409.12191). The
// order in which the rotated pairs of features read them:
enum class PositionRows {
  kOne,          // positions have one row
  kInSections,   // the first sections[0] pairs read the first row, the next sections[1] the second one, the rest the
                 // last
  kInterleaved,  // one row after the other in turn, up to sections[1] and sections[2] pairs; the rest read the first
                 // row
};

struct RotaryOptions {
  double theta = 10000;
  std::string type = "default";  // default | linear | dynamic | yarn | llama3 | longrope
  // Number of leading features of a head that are rotated, rounded up to an even number; 0: all.
  std::int64_t rotated = 0;
  bool paired = false;  // rotate features 2i and 2i + 1 as a pair; otherwise i and i + rotated / 2
  double factor = 1;    // for all types except default: extended length / original length
  // For llama3, yarn, longrope: the original sequence length. llama3 scales wavelengths above original_positions /
  // low_frequency_factor by `factor`, keeps those below original_positions / high_frequency_factor, and interpolates
  // between. For dynamic: longer sequences change the frequencies.
  std::int64_t original_positions = 8192;
  double low_frequency_factor = 1;
  double high_frequency_factor = 4;
  // yarn (Peng et al., arXiv 2309.00071): features with more than beta_fast rotations in original_positions are
  // unchanged, those with fewer than beta_slow rotations are scaled by `factor`.
  double beta_fast = 32;
  double beta_slow = 1;
  bool truncate = true;  // round the two limits to whole features
  double mscale = 0;     // if both are 0, the attention factor depends only on `factor`
  double mscale_all_dim = 0;
  // For yarn and longrope: scale of cosine and sine; not set: by the formula of the type.
  std::optional<double> attention_factor;
  // longrope (Ding et al., arXiv 2402.13753): a factor for each pair of features, for sequences of up to
  // original_positions, and for longer ones.
  std::vector<double> short_factors, long_factors;
  PositionRows rows = PositionRows::kOne;
  std::vector<std::int64_t> sections;  // the number of pairs of each of the three rows; empty: one row only
};

}  // namespace gantry::nn
