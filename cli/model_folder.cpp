#include "gantry/cli/model_folder.h"

#include <algorithm>
#include <filesystem>
#include <fmt/format.h>

#include "gantry/checkpoint/format/catalog.h"
#include "gantry/checkpoint/format/model_files.h"
#include "gantry/core/error.h"
#include "gantry/data/chat_folder.h"
#include "gantry/data/tokenizers/tokenizer.h"
#include "gantry/models/described/config_keys.h"
#include "gantry/models/described/decoder_family.h"
#include "gantry/models/described/encoder_configs.h"
#include "gantry/models/described/family_reader.h"
#include "gantry/models/described/keys_of_family.h"
#include "gantry/models/described/shared_keys.h"

namespace gantry::cli {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

// Runs `read`, and records the line of its error under the name of the part.
template <class Read>
void read_part(ModelFolder& folder, const std::string& part, const Read& read) {
  try {
    read();
  } catch (const Error& error) {
    folder.refused[part] = error.what();
  }
}

// True if the family computes the sentence embedding of modules.json.
bool embeds_sentences(const models::FamilyReader& family, const json& keys) {
  return models::deciding_keys_of(keys, family.model_type, family.read).contains("sentence_pooling");
}

// True if the model is a decoder with one output per label, which every decoder family without a tower has.
bool is_classifier(const models::FamilyReader& family, const json& keys) {
  return models::has_labels(keys) && std::ranges::any_of(models::decoder_families(), [&](const auto& decoder) {
           return decoder.model_type == family.model_type;
         });
}

std::string built_head(const models::FamilyReader& family, const json& keys, bool is_without_head) {
  if (is_classifier(family, keys)) return models::architecture_key(keys);
  const std::string masked = "ForMaskedLM";
  if (!family.architecture.ends_with(masked))
    return is_without_head ? models::architecture_without_head(family.architecture) : family.architecture;
  return models::bert_architecture(keys, family.architecture.substr(0, family.architecture.size() - masked.size()));
}

void read_configuration(ModelFolder& folder, const json& keys) {
  const json type = keys.value("model_type", json(""));
  folder.model_type = type.is_string() ? type.get<std::string>() : type.dump();
  folder.architecture = models::architecture_key(keys);
  for (const char* key : {"torch_dtype", "dtype"})
    if (models::has_key(keys, key) && keys[key].is_string()) folder.dtype = keys[key];
  if (folder.dtype.empty()) folder.dtype = models::stated_dtype(keys);
  const auto* family = models::find_family_reader(folder.model_type);
  if (!family) {
    std::vector<std::string> known;
    for (const auto& one : models::family_readers()) known.push_back(one.model_type);
    models::refuse_model_type(folder.path + "/config.json", folder.model_type, known);
  }
  if (!models::flag_key(keys, models::kImageEncoder, false)) folder.not_loaded = family->other_parts;
  folder.embeds_sentences = embeds_sentences(*family, keys);
  folder.head = built_head(*family, keys, folder.embeds_sentences);
  folder.passed_over = models::check_keys(*family, keys).unknown;
  folder.sizes = models::model_sizes(folder.model_type, keys);
}

bool has_weights(const std::string& path) {
  for (const auto& entry : fs::directory_iterator(path)) {
    const std::string name = entry.path().filename().string();
    if (name.ends_with(".safetensors") || (name.starts_with("pytorch_model") && name.ends_with(".bin"))) return true;
  }
  return false;
}

void read_weights(ModelFolder& folder) {
  if (!has_weights(folder.path)) return;
  const TensorCatalog catalog = TensorCatalog::open(folder.path);
  StoredWeights weights;
  for (const auto& [name, tensor] : catalog.tensors()) {
    ++weights.tensors;
    weights.bytes += tensor.bytes();
    ++weights.types[std::string(tensor.type->readable)];
  }
  folder.weights = weights;
}

void read_tokenizer(ModelFolder& folder) {
  if (!has_tokenizer(folder.path)) return;
  const auto tokenizer = load_tokenizer(folder.path);
  folder.tokenizer = tokenizer->kind();
  folder.tokens = tokenizer->size();
}

}  // namespace

ModelFolder read_model_folder(const std::string& path) {
  ModelFolder folder{.path = path};
  json keys = read_json_object(path + "/config.json");
  read_part(folder, "configuration", [&] {
    models::add_sentence_modules(keys, path);
    read_configuration(folder, keys);
  });
  read_part(folder, "weights", [&] { read_weights(folder); });
  read_part(folder, "tokenizer", [&] { read_tokenizer(folder); });
  read_part(folder, "chat template", [&] {
    if (const auto source = read_chat_source(path)) folder.chat_template = fs::path(source->file).filename().string();
  });
  folder.has_generation_config = fs::exists(path + "/generation_config.json");
  return folder;
}

std::map<std::string, double> bytes_by_precision(double parameters) {
  return {{"bfloat16", 2 * parameters},
          {"float16", 2 * parameters},
          {"float32", 4 * parameters},
          {"float64", 8 * parameters}};
}

}  // namespace gantry::cli
