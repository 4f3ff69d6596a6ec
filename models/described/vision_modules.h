// The parameters of an image encoder, and how its modules are sharded. Independent of LibTorch.
#pragma once

#include <string>
#include <vector>

#include "gantry/models/described/decoder_shards.h"
#include "gantry/models/described/decoder_spec.h"
#include "gantry/models/described/vision_spec.h"

namespace gantry::models {

// Adds the parameters of the layers `prefix`0, `prefix`1, ...
void add_tower_layers(std::vector<ParameterShape>& shapes, const TowerSpec& tower, const std::string& prefix);

// Adds the parameters of the tower below `prefix`, without a projector.
void add_tower(std::vector<ParameterShape>& shapes, const VisionSpec& vision, const std::string& prefix);

// Returns the parameters of the tower and of its projector into `hidden` features.
std::vector<ParameterShape> vision_parameters(const VisionSpec& vision, std::int64_t hidden);

// Adds the rules of the layers below `prefix`, which compute full sequences on every rank of tp: attention is sharded
// by heads, and the MLP by its width.
void add_tower_shards(std::vector<ModuleShard>& shards, const TowerSpec& tower, const std::string& prefix);

// The modules of an image encoder in the order in which they run.
struct EncoderPaths {
  std::vector<std::string> before;  // before the layers of the tower
  std::string layers;               // the list of layers
  std::vector<std::string> after;   // after the layers
};
EncoderPaths encoder_paths(const VisionSpec& vision);

// The number of layers of the tower of a decoder's image encoder, which precede the layers of the decoder in the
// pipeline; 0: the model has no image encoder.
int tower_layers(const DecoderSpec& spec);

// The number of patches that one feature is made from.
double patches_of_feature(const VisionSpec& vision);

// The number of weights that a patch is multiplied by in a layer of the tower.
double tower_layer_weights(const VisionSpec& vision);

// Returns the rules of the tower. A projector of one image size is replicated.
std::vector<ModuleShard> vision_shards(const VisionSpec& vision);

}  // namespace gantry::models
