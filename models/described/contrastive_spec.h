// Models with a tower for images and a tower for text, whose results are compared: CLIP (Radford et al., arXiv
// 2103.00020) and SigLIP (Zhai et al., arXiv 2303.15343). Independent of LibTorch.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "gantry/models/described/config_reader.h"
#include "gantry/models/described/decoder_shards.h"
#include "gantry/models/described/vision_spec.h"

namespace gantry::models {

struct ContrastiveSpec {
  std::string family;  // "clip" or "siglip"
  // CLIP: the text is causal and its result is at the end token, both results are projected, and the loss is a softmax
  // over the samples. Otherwise as in SigLIP: the text is seen in both directions and its result is at the last token,
  // the images have a head with attention, and the loss is a sigmoid of every pair.
  bool is_clip = true;
  TowerSpec text;
  std::int64_t vocabulary = 49408, positions = 77;
  std::int64_t end_token = 49407;  // 2: the largest token of a text, as in older files of CLIP
  VisionSpec vision;
  std::int64_t width = 512;  // number of features of a result
  double initial_scale = 2.6592;
};

ContrastiveSpec read_clip(ConfigReader& reader);
ContrastiveSpec read_siglip(ConfigReader& reader);

std::vector<ParameterShape> parameter_shapes(const ContrastiveSpec& spec);

// The rules of modules whose parameters are sharded. All others are replicated.
std::vector<ModuleShard> contrastive_shards(const ContrastiveSpec& spec);

}  // namespace gantry::models
