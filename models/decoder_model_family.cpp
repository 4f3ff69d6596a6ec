#include "gantry/models/decoder_model_family.h"

#include <algorithm>
#include <charconv>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

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

TensorName file_name(const FileNames& files, const DecoderSpec& spec, const std::string& name) {
  if (name.starts_with(spec.names.head + ".")) return {name, files.head + name.substr(spec.names.head.size())};
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
  return tensor;
}

// "mlp.experts.{}.gate_proj" as the weight of expert 3.
std::string numbered_name(const std::string& layer, const std::string& pattern, std::int64_t number) {
  return layer + fmt::format(fmt::runtime(pattern), number) + ".weight";
}

// A stack of all experts' projections, [experts, rows, columns], as files have each of them.
TensorName stacked_name(const FileNames& files, const DecoderSpec& spec, const ParameterShape& parameter) {
  TensorName tensor{.name = parameter.name, .hugging_face = ""};
  const std::string layer = files.prefix + parameter.name.substr(0, parameter.name.find(spec.names.experts));
  const std::int64_t rows = parameter.shape.at(1);
  const auto add = [&](const std::string& pattern, std::int64_t expert, Range part) {
    tensor.parts.push_back({numbered_name(layer, pattern, expert), {{0, 0, {{expert, expert + 1}}}, {1, 0, {part}}}});
  };
  for (std::int64_t expert = 0; expert < parameter.shape.front(); ++expert) {
    if (parameter.name.ends_with(".down_proj")) {
      add(files.expert_down, expert, {0, rows});
    } else {
      add(files.expert_gate, expert, {0, rows / 2});
      add(files.expert_up, expert, {rows / 2, rows});
    }
  }
  return tensor;
}

// A weight [rows, columns], as files have each row of it.
TensorName row_names(const FileNames& files, const ParameterShape& parameter, const std::string& path,
                     const std::string& pattern) {
  TensorName tensor{.name = parameter.name, .hugging_face = ""};
  const std::string layer = files.prefix + parameter.name.substr(0, parameter.name.find(path));
  for (std::int64_t row = 0; row < parameter.shape.front(); ++row)
    tensor.parts.push_back({numbered_name(layer, pattern, row), {{0, 0, {{row, row + 1}}}}});
  return tensor;
}

std::vector<TensorName> tensor_names(const FileNames& files, const DecoderSpec& spec) {
  std::vector<TensorName> names;
  for (const auto& parameter : parameter_shapes(spec)) {
    const auto rows = std::find_if(files.by_row.begin(), files.by_row.end(),
                                   [&](const auto& one) { return path_in_layer(spec, parameter.name) == one.first; });
    if (rows != files.by_row.end()) {
      names.push_back(row_names(files, parameter, rows->first, rows->second));
      continue;
    }
    const bool stacked = !files.expert_gate.empty() && path_in_layer(spec, parameter.name) == spec.names.experts;
    names.push_back(stacked ? stacked_name(files, spec, parameter) : file_name(files, spec, parameter.name));
  }
  return names;
}

std::string normalised(const FileNames& files, const std::string& name) {
  for (const auto& ending : files.ignored)
    if (name.ends_with(ending)) return "";
  if (name.starts_with(files.prefix) || name.starts_with(files.head + ".")) return name;
  const std::size_t dot = files.prefix.find('.') + 1;
  const std::string below = files.prefix.substr(dot);  // of "model.decoder.": what a bare model's files begin with
  return !below.empty() && name.starts_with(below) ? files.prefix.substr(0, dot) + name : files.prefix + name;
}

// Of a layer behind the description's last one.
bool is_further_layers(const FileNames& files, const DecoderSpec& spec, const std::string& name) {
  const std::string layers = files.prefix + spec.names.layers + ".";
  if (!name.starts_with(layers)) return false;
  std::size_t layer = 0;
  const auto [end, fault] = std::from_chars(name.data() + layers.size(), name.data() + name.size(), layer);
  return fault == std::errc() && layer >= spec.layers.size();
}

// True if config.json names another head than the family's: `head` is then new, unless the files have it.
bool has_other_head(const DecoderFamily& family, const json& keys) {
  const std::string named = architecture_key(keys);
  return !named.empty() && named != family.architecture;
}

// Tensors of heads that Gantry's decoders do not have.
bool is_of_other_head(const std::string& name) {
  for (const char* head : {"score.", "classifier.", "qa_outputs."})
    if (name.find(head) != std::string::npos) return true;
  return false;
}

json whole_config(const DecoderFamily& family, const json& keys) {
  json whole = whole_config_of(keys, family.model_type, family.architecture, with_shared_keys(family.read));
  leave_out_tokens(whole);
  whole.erase("quantization_config");  // what is written is in no blocks
  return whole;
}

}  // namespace

ModelFamily model_family(const DecoderFamily& family) {
  const auto spec = [family](const json& keys) { return decoder_spec(family, keys); };
  return {.build = [spec](const json& keys) -> std::shared_ptr<torch::nn::Module> {
            return std::make_shared<DecoderImpl>(spec(keys));
          },
          .tensor_names =
              [family, spec](const json& keys) {
                const DecoderSpec described = spec(keys);
                auto names = tensor_names(family.files, described);
                if (has_other_head(family, keys))
                  for (TensorName& name : names)
                    name.new_allowed = name.new_allowed || name.name.starts_with(described.names.head + ".");
                return names;
              },
          .hugging_face_config = [family](const json& keys) { return whole_config(family, keys); },
          .model_type = family.model_type,
          .architectures = {family.architecture},
          .vocabulary_size = [spec](const json& keys) { return spec(keys).vocabulary; },
          .context_length =
              [spec](const json& keys) {
                const DecoderSpec described = spec(keys);
                return described.unlimited_positions ? kNoLimit : described.positions;
              },
          .normalise_name = [family](const json&, const std::string& name) { return normalised(family.files, name); },
          .is_ignored_tensor =  // a stored head of a tied model is not compared with the embedding
          [family, spec](const json& keys, const std::string& name) {
            if (has_other_head(family, keys) && is_of_other_head(name)) return true;
            if (family.files.further_layers && is_further_layers(family.files, spec(keys), name)) return true;
            return name == family.files.head + ".weight" && spec(keys).tied;
          },
          .config_fingerprint =
              [family](const json& keys) {
                return deciding_keys_of(keys, family.model_type, with_shared_keys(family.read));
              },
          .check =
              [family](const json& keys) {
                return check_keys(
                    {family.model_type, family.architecture, with_shared_keys(family.read), family.harmless}, keys);
              }};
}

}  // namespace gantry::models
