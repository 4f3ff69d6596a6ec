// How the modules of a described decoder are sharded over tensor ranks and expert ranks: the rules of DecoderPolicy
// (policies/decoder.h) for modules whose parameters are sharded. The planner derives the parameters of a rank from the
// same rules. Independent of LibTorch.
#pragma once

#include <string>
#include <vector>

#include "gantry/core/shard_style.h"
#include "gantry/models/described/decoder_spec.h"

namespace gantry::models {

struct ModuleShard {
  std::string path;  // the path of the module, with "*" for the index of a layer
  ShardStyle style;
};

// Layers of one model may have attention or mixers of several kinds, an MLP or experts. All layers with the same of
// these have the same rules, those of the first such layer. Modules that are not in the result are replicated.
std::vector<ModuleShard> decoder_shards(const DecoderSpec& spec);

}  // namespace gantry::models
