#include "gantry/models/decoder_model_family.h"

#include <algorithm>
#include <charconv>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "gantry/core/shard_style.h"
#include "gantry/models/decoder.h"
#include "gantry/models/described/config_keys.h"
#include "gantry/models/described/family_reader.h"
#include "gantry/models/described/keys_of_family.h"

namespace gantry::models {
namespace {

using nlohmann::json;

constexpr std::int64_t kNoLimit = std::int64_t{1} << 31;

// The part of a registered name within its layer, "self_attn.q_proj"; empty outside of layers.
std::string path_in_layer(const DecoderSpec& spec, const std::string& name) {
  const std::string layers = spec.names.layers + ".";
  if (!name.starts_with(layers)) return "";
  const std::size_t begin = name.find('.', layers.size()) + 1;
  return name.substr(begin, name.rfind('.') - begin);
}

// Files of transformers before version 5 have one more module in the tower.
TensorName vision_name(const std::string& name) {
  TensorName tensor{name, name};
  const std::string tower = std::string(kVisionTower) + ".";
  if (name.starts_with(tower)) tensor.other_names.push_back(tower + "vision_model." + name.substr(tower.size()));
  return tensor;
}

bool is_of_vision(const DecoderSpec& spec, const std::string& name) {
  return spec.vision && is_of_other_part({kVisionTower, kImageProjector, kGridTower}, name);
}

TensorName file_name(const FileNames& files, const DecoderSpec& spec, const std::string& name) {
  if (is_of_vision(spec, name)) return vision_name(name);
  if (name.starts_with(spec.names.head + "."))
    return {name, spec.labels > 0 ? name : files.head + name.substr(spec.names.head.size())};
  TensorName tensor{name, files.prefix + name};
  const std::string path = path_in_layer(spec, name);
  const std::string in_layer = path + name.substr(name.rfind('.'));
  for (const auto& [ours, theirs] : files.renamed) {
    if (path != ours && in_layer != ours) continue;
    const std::size_t at = name.find(ours, spec.names.layers.size());
    tensor.hugging_face = files.prefix + name.substr(0, at) + theirs + name.substr(at + ours.size());
  }
  tensor.transposed = name.ends_with(".weight") &&
                      std::find(files.transposed.begin(), files.transposed.end(), path) != files.transposed.end();
  if (tensor.hugging_face != files.prefix + name && !tensor.transposed)
    tensor.other_names.push_back(files.prefix + name);  // files of newer versions may have the registered name
  return tensor;
}

// "mlp.experts.{}.gate_proj" as the weight of expert 3.
std::string numbered_name(const std::string& layer, const std::string& pattern, std::int64_t number) {
  return layer + fmt::format(fmt::runtime(pattern), number) + ".weight";
}

// A stack of all experts' projections, [experts, rows, columns], which files store separately for each
// expert.
TensorName stacked_name(const FileNames& files, const DecoderSpec& spec, const ParameterShape& parameter) {
  TensorName tensor{.name = parameter.name, .hugging_face = ""};
  tensor.other_names = {files.prefix + parameter.name};  // the stack that transformers 5 has in memory
  const std::string layer = files.prefix + parameter.name.substr(0, parameter.name.find(spec.names.experts));
  const std::int64_t rows = parameter.shape.at(1);
  const auto add = [&](const std::string& pattern, std::int64_t expert, Range part) {
    tensor.parts.push_back({numbered_name(layer, pattern, expert), {{0, 0, {{expert, expert + 1}}}, {1, 0, {part}}}});
  };
  for (std::int64_t expert = 0; expert < parameter.shape.front(); ++expert) {
    if (parameter.name.ends_with(std::string(".") + kDownStack)) {
      add(files.expert_down, expert, {0, rows});
    } else if (files.expert_gate.empty()) {
      add(files.expert_up, expert, {0, rows});
    } else {
      add(files.expert_gate, expert, {0, rows / 2});
      add(files.expert_up, expert, {rows / 2, rows});
    }
  }
  return tensor;
}

// A weight [rows, columns], which files store separately for each row.
TensorName row_names(const FileNames& files, const ParameterShape& parameter, const std::string& path,
                     const std::string& pattern) {
  TensorName tensor{.name = parameter.name, .hugging_face = ""};
  const std::string layer = files.prefix + parameter.name.substr(0, parameter.name.find(path));
  for (std::int64_t row = 0; row < parameter.shape.front(); ++row)
    tensor.parts.push_back({numbered_name(layer, pattern, row), {{0, 0, {{row, row + 1}}}}});
  return tensor;
}

bool is_scalar(const FileNames& files, const DecoderSpec& spec, const std::string& name) {
  const std::string in_layer = path_in_layer(spec, name) + name.substr(name.rfind('.'));
  return std::find(files.scalars.begin(), files.scalars.end(), in_layer) != files.scalars.end();
}

// A tensor [1], which files store as a number without dimensions.
TensorName scalar_name(const FileNames& files, const std::string& name) {
  return {.name = name, .hugging_face = "", .parts = {{files.prefix + name, {{0, 0, {{0, 1}}}}}}};
}

// The rows of one projection of a layer that some files store as several.
std::vector<std::pair<std::string, std::int64_t>> rows_of_fused(const DecoderSpec& spec, const std::string& path,
                                                                std::int64_t rows) {
  if (path == spec.names.fused_gate && !path.empty()) return {{"mlp.gate_proj", rows / 2}, {"mlp.up_proj", rows / 2}};
  const AttentionSpec& attention = spec.layers.front().attention;
  if (path != spec.names.fused || path.empty() || attention.rows != ProjectionRows::kSegments) return {};
  const std::int64_t size = attention.head_size;
  return {{"self_attn.q_proj", attention.heads * size},
          {"self_attn.k_proj", attention.key_heads * size},
          {"self_attn.v_proj", attention.key_heads * size}};
}

void add_separate_rows(TensorName& tensor, const FileNames& files, const DecoderSpec& spec,
                       const ParameterShape& parameter) {
  const std::string path = path_in_layer(spec, parameter.name);
  if (path.empty() || tensor.transposed) return;
  const std::size_t at = parameter.name.find(path);
  std::int64_t begin = 0;
  for (const auto& [part, rows] : rows_of_fused(spec, path, parameter.shape.front())) {
    const std::string name = parameter.name.substr(0, at) + part + parameter.name.substr(at + path.size());
    tensor.other_parts.push_back({files.prefix + name, {{0, 0, {{begin, begin + rows}}}}});
    begin += rows;
  }
}

void add_other_names(TensorName& tensor, const FileNames& files, const DecoderSpec& spec) {
  const std::string path = path_in_layer(spec, tensor.name);
  for (const auto& [registered, other] : files.other_names) {
    if (path != registered) continue;
    std::string name = tensor.name;
    tensor.other_names.push_back(files.prefix + name.replace(name.find(path), path.size(), other));
  }
}

// True if config.json names another head than the family's. The head is then new, unless the files contain
// it.
bool has_other_head(const DecoderFamily& family, const json& keys) {
  const std::string named = architecture_key(keys);
  return !named.empty() && named != family.architecture;
}

std::string table_name(const FileNames& files, const DecoderSpec& spec) {
  return files.prefix + spec.names.tokens + ".weight";
}

// Layers of multi-token prediction share tables, which files also store in each of these layers.
std::vector<std::string> mtp_copies(const FileNames& files, const DecoderSpec& spec, const std::string& name) {
  std::vector<std::string> copies;
  const bool is_head = name == spec.names.head + ".weight", is_table = name == spec.names.tokens + ".weight";
  for (int layer = main_layers(spec); layer < static_cast<int>(spec.layers.size()); ++layer) {
    const std::string prefix = fmt::format("{}{}.{}.", files.prefix, spec.names.layers, layer);
    if (is_table) copies.push_back(prefix + "embed_tokens.weight");
    if (is_head || (is_table && spec.tied)) copies.push_back(prefix + "shared_head.head.weight");
  }
  return copies;
}

std::vector<TensorName> tensor_names(const FileNames& files, const DecoderSpec& spec, bool has_other_head) {
  std::vector<TensorName> names;
  for (const auto& parameter : parameter_shapes(spec)) {
    if (is_scalar(files, spec, parameter.name)) {
      names.push_back(scalar_name(files, parameter.name));
      continue;
    }
    const auto rows = std::find_if(files.by_row.begin(), files.by_row.end(),
                                   [&](const auto& one) { return path_in_layer(spec, parameter.name) == one.first; });
    if (rows != files.by_row.end()) {
      names.push_back(row_names(files, parameter, rows->first, rows->second));
      continue;
    }
    const bool stacked = !files.expert_down.empty() && path_in_layer(spec, parameter.name) == spec.names.experts;
    names.push_back(stacked ? stacked_name(files, spec, parameter) : file_name(files, spec, parameter.name));
    TensorName& last = names.back();
    add_separate_rows(last, files, spec, parameter);
    add_other_names(last, files, spec);
    last.copies = mtp_copies(files, spec, parameter.name);
    if (last.hugging_face == table_name(files, spec) && spec.tied) last.other_names.push_back(files.head + ".weight");
    last.new_allowed = has_other_head && parameter.name.starts_with(spec.names.head + ".");
  }
  return names;
}

// True for a tensor of a head that classifies, answers or scores.
bool is_other_head(const std::string& name) {
  for (const char* module : {"score.", "classifier.", "qa_outputs.", "v_head."})
    if (name.starts_with(module)) return true;
  return false;
}

// True for a tensor of a layer after the last one of the description, or of a module of its own for such layers.
bool is_further_layers(const FileNames& files, const DecoderSpec& spec, const std::string& name) {
  for (const std::string& prefix : {std::string(), files.prefix})
    if (name.starts_with(prefix + "mtp.") || name.starts_with(prefix + "mtp_")) return true;
  const std::string layers = files.prefix + spec.names.layers + ".";
  if (!name.starts_with(layers)) return false;
  std::size_t layer = 0;
  const auto [end, fault] = std::from_chars(name.data() + layers.size(), name.data() + name.size(), layer);
  return fault == std::errc() && layer >= spec.layers.size();
}

// True for a projection or norm of keys and values in a layer that uses those of another layer, which some files have
// (by any name that files may have for it).
bool is_unused_key(const DecoderSpec& spec, const std::string& name) {
  const DecoderNames& names = spec.names;
  for (std::size_t layer = 0; layer < spec.layers.size(); ++layer) {
    if (spec.layers[layer].attention.keys_of < 0) continue;
    for (const std::string& path : {names.key, names.value, names.key_norm, names.value_norm})
      if (name.find(fmt::format("{}.{}.{}.", names.layers, layer, path)) != std::string::npos) return true;
  }
  return false;
}

// True for a tensor of files that this model does not have.
bool is_unused(const DecoderFamily& family, const DecoderSpec& spec, const std::string& name) {
  if (is_of_other_part(family.files.other_parts, name)) return true;
  if (is_unused_key(spec, name)) return true;
  const bool is_label_head = spec.labels > 0 && name.starts_with(spec.names.head + ".");
  if (is_other_head(name)) return !is_label_head;
  if (!predicts_tokens(spec) && name.starts_with(family.files.head + ".")) return true;
  return family.files.further_layers && is_further_layers(family.files, spec, name);
}

std::string normalised(const FileNames& files, const std::string& name) {
  for (const auto& ending : files.ignored)
    if (name.ends_with(ending)) return "";
  if (name.starts_with(files.prefix) || name.starts_with(files.head + ".") || is_other_head(name)) return name;
  const std::size_t dot = files.prefix.find('.') + 1;
  const std::string below = files.prefix.substr(dot);  // for "model.decoder.": the prefix of a bare model
  return !below.empty() && name.starts_with(below) ? files.prefix.substr(0, dot) + name : files.prefix + name;
}

std::vector<TiedTensor> tied_tensors(const DecoderFamily& family, const json& keys, const DecoderSpec& spec) {
  if (!spec.tied) return {};
  json apart = {{"tie_word_embeddings", false}};
  if (family.tower && family.tower->is_causal_lm) {
    json decoder = keys.value(kTextConfig, json::object());
    decoder.update(apart);
    apart = {{kTextConfig, decoder}};
  }
  return {{table_name(family.files, spec)}, {family.files.head + ".weight", apart}};
}

// A head for labels needs the padding token that the model uses, which may be the default of the family.
void add_labels(json& full, const DecoderSpec& spec) {
  fill_labels(full, spec.labels);
  full["pad_token_id"] = spec.label_padding ? json(*spec.label_padding) : json(nullptr);
}

json full_config(const DecoderFamily& family, const json& keys) {
  const DecoderSpec spec = decoder_spec(family, keys);
  const std::string architecture = spec.labels > 0 ? architecture_key(keys)
                                   : spec.sentence ? architecture_without_head(family.architecture)
                                                   : family.architecture;
  json full = full_config_of(keys, family.model_type, architecture,
                             [&](ConfigReader& reader) { return read_decoder(family, reader); });
  if (spec.labels > 0) add_labels(full, spec);
  if (!spec.vision) full.erase(kImageEncoder);
  if (!family.tower) leave_out_tokens(full);  // a tower has them in the mapping of the decoder
  return full;
}

// See ModelFamily::task.
std::string task_of(const DecoderSpec& spec) {
  if (spec.sentence) return spec.sentence->compares ? "contrast" : "none";
  return spec.labels > 0 ? "classes" : "tokens";
}

// The text decoder of a larger model is its module model.language_model, and the other parts are modules of `model`,
// unless modules have the names in files.
std::vector<std::pair<std::string, std::string>> module_names(const DecoderFamily& family) {
  const std::string text = "model.language_model.", head = "lm_head";
  std::vector<std::pair<std::string, std::string>> names;
  if (!family.tower || family.tower->is_causal_lm) return names;
  if (family.read_vision)
    for (const std::string& part : family.files.other_parts) names.emplace_back(part + ".", "model." + part + ".");
  if (family.files.prefix != text) names.emplace_back(family.files.prefix, text);
  if (family.files.head != head) names.emplace_back(family.files.head, head);
  return names;
}

std::vector<std::string> inputs_of(const DecoderFamily& family) {
  std::vector<std::string> inputs = ModelFamily().inputs;
  if (family.read_vision) inputs.emplace_back("pixel_values");
  inputs.insert(inputs.end(), family.image_entries.begin(), family.image_entries.end());
  return inputs;
}

}  // namespace

ModelFamily model_family(const DecoderFamily& family) {
  const auto read = [family](ConfigReader& reader) { return read_decoder(family, reader); };
  const auto spec = [family](const json& keys) { return decoder_spec(family, keys); };
  return {.build = [spec](const json& keys) -> std::shared_ptr<torch::nn::Module> {
            return std::make_shared<DecoderImpl>(spec(keys));
          },
          .tensor_names =
              [family, spec](const json& keys) {
                return tensor_names(family.files, spec(keys), has_other_head(family, keys));
              },
          .hugging_face_config = [family](const json& keys) { return full_config(family, keys); },
          .model_type = family.model_type,
          .architectures = {family.architecture},
          .vocabulary_size = [spec](const json& keys) { return spec(keys).vocabulary; },
          .context_length =
              [spec](const json& keys) {
                const DecoderSpec described = spec(keys);
                return described.unlimited_positions ? kNoLimit : described.positions;
              },
          .task = [spec](const json& keys) { return task_of(spec(keys)); },
          .problem_type = [](const json& keys) -> std::string {
            return has_labels(keys) ? problem_type_of(keys, label_count(keys)) : "single_label_classification";
          },
          .normalise_name = [family](const json&, const std::string& name) { return normalised(family.files, name); },
          .tied_tensors = [family, spec](const json& keys) { return tied_tensors(family, keys, spec(keys)); },
          .other_parts = family.files.other_parts,
          .module_names = module_names(family),
          .is_ignored_tensor = [family, spec](const json& keys,
                                              const std::string& name) { return is_unused(family, spec(keys), name); },
          .config_fingerprint = [family,
                                 read](const json& keys) { return deciding_keys_of(keys, family.model_type, read); },
          .check =
              [family, read](const json& keys) {
                return check_keys({family.model_type, family.architecture, read, family.harmless}, keys);
              },
          .inputs = inputs_of(family)};
}

bool is_unused_key(const std::string& model_type, const json& keys, const std::string& name) {
  for (const DecoderFamily& family : decoder_families())
    if (family.model_type == model_type) return is_unused_key(decoder_spec(family, keys), name);
  return false;
}

}  // namespace gantry::models
