// What a family of described decoders states, and nothing else: how its config.json is read, and what its tensors are
// called in Hugging Face's files (models/families/ has a file each).
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "gantry/models/described/config_reader.h"
#include "gantry/models/described/decoder_spec.h"

namespace gantry::models {

// How Hugging Face's files call a tensor: prefix, then the registered path with the parts that differ replaced.
struct FileNames {
  std::string prefix = "model.";                             // of the base model; files of the bare model lack it
  std::string head = "lm_head";                              // has no prefix
  std::vector<std::pair<std::string, std::string>> renamed;  // {registered, theirs}, of a path within a layer
  std::vector<std::string> transposed;                       // registered paths within a layer, stored [in, out]
  // {registered, theirs}, of paths within a layer whose weight files have row by row, "{}" standing for a row's number.
  std::vector<std::pair<std::string, std::string>> by_row;
  bool further_layers = false;  // files may have layers behind the last one, which predict further tokens: passed over
  // The projections of one expert where files have those apart, "{}" standing for its number:
  // "mlp.experts.{}.gate_proj". Empty: files have the registered tensors.
  std::string expert_gate = {}, expert_up = {}, expert_down = {};
  std::vector<std::string> ignored = {".rotary_emb.inv_freq"};  // endings of tensors that are no parameters
};

// Those of the families that call their sizes as Llama does.
nlohmann::json small_keys();

struct DecoderFamily {
  std::string model_type;    // "llama"
  std::string architecture;  // "LlamaForCausalLM"
  // config.json to a description. Reads every key that decides numbers. ConfigError as of ConfigReader.
  DecoderSpec (*read)(ConfigReader& reader);
  FileNames files = {};
  std::vector<std::string> harmless = {};  // further keys of config.json that leave the numbers as they are
  nlohmann::json small = small_keys();     // the keys of a small model, to begin with
};

// Gantry's own families.
const std::vector<DecoderFamily>& decoder_families();

// The description of a family's model, by keys of its config.json. ConfigError for an unknown family, for a key that is
// not understood, and for values that the family can't do.
DecoderSpec decoder_spec(const std::string& family, const nlohmann::json& keys);
DecoderSpec decoder_spec(const DecoderFamily& family, const nlohmann::json& keys);

}  // namespace gantry::models
