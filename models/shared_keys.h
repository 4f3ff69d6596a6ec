// Keys and values that several layers of a decoder use (AttentionSpec::keys_of). The first of these layers puts them
// into the state of the stage, for tokens of this forward only; stages pass them on as long as a later layer uses them.
#pragma once

#include <string>
#include <vector>

#include "gantry/models/described/decoder_spec.h"
#include "gantry/schedule/pipeline_stage_manager.h"

namespace gantry::models {

// The entries of the state with the keys and values of a layer, [B, local KV heads, S, head size].
std::string keys_entry(int layer);
std::string values_entry(int layer);

// The layers that use the keys of `layer`'s own source, in order: the source first. Empty if there is one user only.
std::vector<int> users_of_keys(const DecoderSpec& spec, int layer);

// The entries that layers from `next` on read of earlier layers.
std::vector<std::string> entries_of_earlier_layers(const DecoderSpec& spec, int next);

// The first of `users` on a stage with these layers: it appends the keys to its cache in generation, and the other
// users on the stage read that cache. (A rank may have the caches of several stages.)
int holder_of_cache(const std::vector<int>& users, const LayerRange& range);

}  // namespace gantry::models
