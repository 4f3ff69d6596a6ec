// The flags of a described decoder, and the case that shows each of them. The flags are read from the
// headers: a flag without a case fails.
#include <algorithm>
#include <filesystem>
#include <functional>
#include <gtest/gtest.h>
#include <map>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "description_cases.h"
#include "gantry/models/described/decoder_family.h"
#include "gantry/nn/rotary_options.h"
#include "program.h"

namespace gantry::testing {
namespace {

using namespace models;
using nlohmann::json;

using OfSpec = std::function<bool(const DecoderSpec&)>;

OfSpec layer(bool (*has)(const LayerSpec&)) {
  return [has](const DecoderSpec& spec) { return std::any_of(spec.layers.begin(), spec.layers.end(), has); };
}
OfSpec attention(bool (*has)(const AttentionSpec&)) {
  return [has](const DecoderSpec& spec) {
    return std::any_of(spec.layers.begin(), spec.layers.end(),
                       [&](const LayerSpec& one) { return has(one.attention); });
  };
}
OfSpec latent(bool (*has)(const LatentSpec&)) {
  return [has](const DecoderSpec& spec) {
    return std::any_of(spec.layers.begin(), spec.layers.end(),
                       [&](const LayerSpec& one) { return one.attention.latent && has(*one.attention.latent); });
  };
}
OfSpec mlp(bool (*has)(const MlpSpec&)) {
  return [has](const DecoderSpec& spec) {
    return std::any_of(spec.layers.begin(), spec.layers.end(),
                       [&](const LayerSpec& one) { return !one.experts && has(one.mlp); });
  };
}
OfSpec altup(bool (*has)(const AltUpSpec&)) {
  return [has](const DecoderSpec& spec) {
    return std::any_of(spec.layers.begin(), spec.layers.end(),
                       [&](const LayerSpec& one) { return one.altup && has(*one.altup); });
  };
}
OfSpec experts(bool (*has)(const ExpertsSpec&)) {
  return [has](const DecoderSpec& spec) {
    return std::any_of(spec.layers.begin(), spec.layers.end(),
                       [&](const LayerSpec& one) { return one.experts && has(*one.experts); });
  };
}
OfSpec norm(bool (*has)(const NormSpec&)) {
  return [has](const DecoderSpec& spec) { return has(spec.layers.front().before_mlp) || has(spec.norm); };
}
OfSpec rotary(bool (*has)(const nn::RotaryOptions&)) {
  return [has](const DecoderSpec& spec) { return std::any_of(spec.rotaries.begin(), spec.rotaries.end(), has); };
}

struct Flag {
  std::string name;
  OfSpec is_set;         // whether a decoder description sets the flag
  const char* shown_by;  // a case of transformers in tests/golden/families, or one of description_cases()
};

const std::vector<Flag>& flags() {
  using Rows = ProjectionRows;
  using Kind = NormSpec::Kind;
  using Scores = ExpertsSpec::Scores;
  using Turn = nn::RotaryOptions;
  static const std::vector<Flag> all = {
      {"NormSpec::Kind::kNone", layer([](auto& l) { return l.before_mlp.kind == Kind::kNone; }), "falcon"},
      {"NormSpec::Kind::kRms", norm([](auto& n) { return n.kind == Kind::kRms; }), "mistral"},
      {"NormSpec::Kind::kLayer", norm([](auto& n) { return n.kind == Kind::kLayer; }), "gpt_neox"},
      {"NormSpec.eps", norm([](auto& n) { return n.eps != NormSpec().eps; }), "mistral"},
      {"NormSpec.one_plus_weight", norm([](auto& n) { return n.one_plus_weight; }), "gemma2"},
      {"NormSpec.weight", norm([](auto& n) { return n.exists() && !n.weight; }), "olmo"},
      {"NormSpec.bias", norm([](auto& n) { return n.exists() && n.weight && !n.bias; }), "cohere"},

      {"ProjectionRows::kSeparate", attention([](auto& a) { return a.rows == Rows::kSeparate; }), "mistral"},
      {"ProjectionRows::kSegments", attention([](auto& a) { return a.rows == Rows::kSegments; }), "phi3"},
      {"ProjectionRows::kPerHead", attention([](auto& a) { return a.rows == Rows::kPerHead; }), "gpt_neox"},
      {"ProjectionRows::kPerGroup", attention([](auto& a) { return a.rows == Rows::kPerGroup; }), "falcon_new"},
      {"ProjectionRows::kBlocks", attention([](auto& a) { return a.rows == Rows::kBlocks; }), "codegen"},

      {"LatentSpec.query_rank", latent([](auto& l) { return l.query_rank > 0; }), "deepseek_v3"},
      {"LatentSpec.key_rank", latent([](auto& l) { return l.key_rank > 1; }), "deepseek_v3"},
      {"LatentSpec.plain", latent([](auto& l) { return l.plain != l.rope; }), "deepseek_v3"},
      {"LatentSpec.rope", latent([](auto& l) { return l.rope > 2; }), "deepseek_v3"},
      {"LatentSpec.value", latent([](auto& l) { return l.value != l.plain + l.rope; }), "deepseek_v3"},
      {"LatentSpec.bias", latent([](auto& l) { return l.bias; }), "latent attention whose queries are not narrow"},
      {"LatentSpec.norm", latent([](auto& l) { return l.norm.exists(); }), "deepseek_v3"},

      {"AttentionSpec.key_heads", attention([](auto& a) { return a.key_heads < a.heads; }), "mistral"},
      {"AttentionSpec.bias", attention([](auto& a) { return a.bias && !a.output_bias; }), "qwen2"},
      {"AttentionSpec.output_bias", attention([](auto& a) { return a.output_bias; }), "starcoder2"},
      {"AttentionSpec.head_norm", attention([](auto& a) { return a.head_norm.exists(); }), "qwen3"},
      {"AttentionSpec.qk_norm", attention([](auto& a) { return a.qk_norm.exists(); }), "olmo2"},
      {"AttentionSpec.per_head_norm", attention([](auto& a) { return a.per_head_norm.exists(); }), "stablelm_norms"},
      {"AttentionSpec.slopes", attention([](auto& a) { return !a.slopes.empty(); }), "bloom"},
      {"AttentionSpec.rotary", attention([](auto& a) { return a.rotary < 0; }), "smollm3"},
      {"AttentionSpec.head_size",
       [](const DecoderSpec& spec) {
         const AttentionSpec& first = spec.layers.front().attention;
         return first.head_size * first.heads != spec.hidden;
       },
       "qwen3"},
      {"AttentionSpec.norm_after_rotary", attention([](auto& a) { return a.norm_after_rotary; }),
       "norms of heads after the rotary embedding"},
      {"AttentionSpec.value_norm", attention([](auto& a) { return a.value_norm.exists(); }), "gemma3n_text"},
      {"AttentionSpec.keys_of", attention([](auto& a) { return a.keys_of >= 0; }), "gemma3n_text"},
      {"AttentionSpec.scale", attention([](auto& a) { return a.scale > 0; }), "granite"},
      {"AttentionSpec.soft_cap", attention([](auto& a) { return a.soft_cap > 0; }), "gemma2"},
      {"AttentionSpec.window", attention([](auto& a) { return a.window > 0; }), "mistral"},
      {"AttentionSpec.chunk", attention([](auto& a) { return a.chunk > 0; }), "llama4_text"},
      {"AttentionSpec.temperature", attention([](auto& a) { return a.temperature != 0; }), "llama4_text"},
      {"AttentionSpec.temperature_step", attention([](auto& a) { return a.temperature_step > 1; }), "llama4_text"},
      {"AttentionSpec.dropout", attention([](auto& a) { return a.dropout > 0; }), "norms of heads"},
      {"AttentionSpec.clip", attention([](auto& a) { return a.clip > 0; }), "olmo_clipped"},
      {"AttentionSpec.sinks", attention([](auto& a) { return a.sinks; }), "gpt_oss"},
      {"AttentionSpec.gated", attention([](auto& a) { return a.gated; }), "qwen3_next"},
      {"AttentionSpec.latent", attention([](auto& a) { return a.latent.has_value(); }), "deepseek_v3"},

      {"AttentionSpec.input_scale", attention([](auto& a) { return a.input_scale != 1; }), "falcon_h1"},
      {"AttentionSpec.key_scale", attention([](auto& a) { return a.key_scale != 1; }), "falcon_h1"},
      {"AttentionSpec.output_scale", attention([](auto& a) { return a.output_scale != 1; }), "falcon_h1"},

      {"MlpSpec.gate_scale", mlp([](auto& m) { return m.gate_scale != 1; }), "falcon_h1"},
      {"MlpSpec.sparsity", mlp([](auto& m) { return m.sparsity > 0; }), "gemma3n_text"},
      {"MlpSpec.output_scale", mlp([](auto& m) { return m.output_scale != 1; }), "falcon_h1"},
      {"MlpSpec.gated", mlp([](auto& m) { return m.gated; }), "mistral"},
      {"MlpSpec.fused_gate", mlp([](auto& m) { return m.fused_gate; }), "phi3"},
      {"MlpSpec.bias", mlp([](auto& m) { return m.bias; }), "gpt_neox"},
      {"MlpSpec.activation", mlp([](auto& m) { return m.activation != MlpSpec().activation; }), "gemma2"},

      {"ExpertsSpec.activation", experts([](auto& e) { return e.activation != ExpertsSpec().activation; }), "experts"},
      {"ExpertsSpec.gated", experts([](auto& e) { return !e.gated; }), "nemotron_h"},
      {"ExpertsSpec::Scores::kSoftmax", experts([](auto& e) { return e.scores == Scores::kSoftmax; }), "mixtral"},
      {"ExpertsSpec::Scores::kSoftmaxOfUsed", experts([](auto& e) { return e.scores == Scores::kSoftmaxOfUsed; }),
       "gpt_oss"},
      {"ExpertsSpec::Scores::kSigmoid", experts([](auto& e) { return e.scores == Scores::kSigmoid; }), "deepseek_v3"},
      {"ExpertsSpec.normalised", experts([](auto& e) { return e.normalised; }), "mixtral"},
      {"ExpertsSpec.added", experts([](auto& e) { return e.added > 0; }), "deepseek_v3"},
      {"ExpertsSpec.least_sum", experts([](auto& e) { return e.least_sum > 0; }), "ernie4_5_moe"},
      {"ExpertsSpec.correction_row", experts([](auto& e) { return e.correction_row; }), "ernie4_5_moe"},
      {"ExpertsSpec.scale", experts([](auto& e) { return e.scale != 1; }), "deepseek_v3"},
      {"ExpertsSpec.router_bias", experts([](auto& e) { return e.router_bias; }), "gpt_oss"},
      {"ExpertsSpec.correction", experts([](auto& e) { return e.correction; }), "deepseek_v3"},
      {"ExpertsSpec.groups", experts([](auto& e) { return e.groups > 1; }), "deepseek_v3"},
      {"ExpertsSpec.used_groups", experts([](auto& e) { return e.used_groups > 1; }), "deepseek_v3"},
      {"ExpertsSpec.group_scores", experts([](auto& e) { return e.groups > 1 && e.group_scores == 1; }), "deepseek_v2"},
      {"ExpertsSpec.bias", experts([](auto& e) { return e.bias; }), "gpt_oss"},
      {"ExpertsSpec.interleaved", experts([](auto& e) { return e.interleaved; }), "gpt_oss"},
      {"ExpertsSpec.transposed", experts([](auto& e) { return e.transposed; }), "llama4_text"},
      {"ExpertsSpec.weights_input", experts([](auto& e) { return e.weights_input; }), "llama4_text"},
      {"ExpertsSpec.limit", experts([](auto& e) { return e.limit > 0; }), "gpt_oss"},
      {"ExpertsSpec.shared_width", experts([](auto& e) { return e.shared_width > 0; }), "qwen2_moe"},
      {"ExpertsSpec.shared_fused", experts([](auto& e) { return e.shared_fused; }), "granitemoehybrid"},
      {"ExpertsSpec.shared_gate", experts([](auto& e) { return e.shared_gate; }), "qwen2_moe"},

      {"AltUpSpec.streams", altup([](auto& a) { return a.streams > 2; }), "gemma3n_text"},
      {"AltUpSpec.active", altup([](auto& a) { return a.active > 0; }), "gemma3n_text"},
      {"AltUpSpec.clip", altup([](auto& a) { return a.clip < 120; }), "streams of a few layers"},
      {"AltUpSpec.scaled", altup([](auto& a) { return !a.scaled; }), "gemma3n_mm"},
      {"LayerInputsSpec.vocabulary", [](auto& s) { return s.layer_inputs->vocabulary < s.vocabulary; }, "gemma3n_text"},
      {"LayerInputsSpec.layers", [](auto& s) { return s.layer_inputs->layers > 1; }, "gemma3n_text"},

      {"LayerSpec.input", layer([](auto& l) { return !l.input.exists(); }), "olmo2"},
      {"LayerSpec.after_attention", layer([](auto& l) { return l.after_attention.exists(); }), "gemma2"},
      {"LayerSpec.before_mlp", layer([](auto& l) { return !l.before_mlp.exists(); }), "falcon"},
      {"LayerSpec.after_mlp", layer([](auto& l) { return l.after_mlp.exists(); }), "gemma2"},
      {"LayerSpec.parallel", layer([](auto& l) { return l.parallel && l.before_mlp.exists(); }), "gpt_neox"},
      {"LayerSpec.post_norm", layer([](auto& l) { return l.post_norm; }), "opt_projected"},
      {"LayerSpec.residual_scale", layer([](auto& l) { return l.residual_scale != 1; }), "granite"},
      {"LayerSpec.normed_residual", layer([](auto& l) { return l.normed_residual; }), "minimax"},
      {"LayerSpec.mixer_factors", layer([](auto& l) { return !(l.mixer_factors == l.mlp_factors); }), "minimax"},
      {"LayerSpec.mlp_factors", layer([](auto& l) { return l.mlp_factors.kept != 1; }), "minimax"},
      {"LayerSpec.experts", layer([](auto& l) { return l.experts.has_value(); }), "mixtral"},
      {"LayerSpec.adds_attention", layer([](auto& l) { return l.adds_attention; }), "falcon_h1"},
      {"LayerSpec.has_mlp", layer([](auto& l) { return !l.has_mlp; }), "mamba2"},
      {"LayerSpec.only_mlp", layer([](auto& l) { return l.only_mlp; }), "nemotron_h"},
      {"LayerSpec.altup", layer([](auto& l) { return l.altup.has_value(); }), "gemma3n_text"},
      {"LayerSpec.laurel_rank", layer([](auto& l) { return l.laurel_rank > 0; }), "gemma3n_text"},
      {"LayerSpec.input_width", layer([](auto& l) { return l.input_width > 0; }), "gemma3n_text"},
      {"LayerSpec.mixer", layer([](auto& l) { return static_cast<bool>(l.mixer); }), "lfm2"},

      {"DecoderSpec.embedding_width", [](auto& s) { return s.embedding_width > 0; }, "opt_projected"},
      {"DecoderSpec.unlimited_positions", [](auto& s) { return s.unlimited_positions; }, "llama_dynamic"},
      {"DecoderSpec.padding", [](auto& s) { return s.padding.has_value(); }, "opt"},
      {"DecoderSpec.learned_positions", [](auto& s) { return s.learned_positions; }, "opt"},
      {"DecoderSpec.position_offset", [](auto& s) { return s.position_offset > 0; }, "opt"},
      {"DecoderSpec.streams", [](auto& s) { return s.streams > 1; }, "gemma3n_text"},
      {"DecoderSpec.layer_inputs", [](auto& s) { return s.layer_inputs.has_value(); }, "gemma3n_text"},
      {"DecoderSpec.text_tokens", [](auto& s) { return s.text_tokens > 0; }, "gemma3n_mm"},
      {"DecoderSpec.embedding_norm", [](auto& s) { return s.embedding_norm.exists(); }, "bloom"},
      {"DecoderSpec.embedding_scale", [](auto& s) { return s.embedding_scale != 1; }, "gemma2"},
      {"DecoderSpec.embedding_dropout", [](auto& s) { return s.embedding_dropout > 0; }, "fused rows and gate"},
      {"DecoderSpec.output_dropout", [](auto& s) { return s.output_dropout > 0; }, "fused rows and gate"},
      {"DecoderSpec.rotaries", [](auto& s) { return s.rotaries.size() > 1; }, "gemma3_text"},
      {"DecoderSpec.layers", [](auto& s) { return !(s.layers.at(0) == s.layers.at(1)); }, "gemma2"},
      {"DecoderSpec.norm", [](auto& s) { return !s.norm.exists(); }, "opt_projected"},
      {"DecoderSpec.tied", [](auto& s) { return s.tied; }, "qwen2"},
      {"DecoderSpec.head_bias", [](auto& s) { return s.head_bias; }, "gptj"},
      {"DecoderSpec.logit_scale", [](auto& s) { return s.logit_scale != 1; }, "cohere"},
      {"DecoderSpec.logit_soft_cap", [](auto& s) { return s.logit_soft_cap > 0; }, "gemma2"},
      {"DecoderSpec.router_loss", [](auto& s) { return s.router_loss > 0; }, "mixtral"},
      {"DecoderSpec.initial_by_depth", [](auto& s) { return s.initial_by_depth; }, "../gpt2"},

      {"RotaryOptions.type default", rotary([](auto& r) { return r.type == "default"; }), "mistral"},
      {"RotaryOptions.type linear", rotary([](auto& r) { return r.type == "linear"; }), "llama_linear"},
      {"RotaryOptions.type dynamic", rotary([](auto& r) { return r.type == "dynamic"; }), "llama_dynamic"},
      {"RotaryOptions.type yarn", rotary([](auto& r) { return r.type == "yarn"; }), "llama_yarn"},
      {"RotaryOptions.type llama3", rotary([](auto& r) { return r.type == "llama3"; }), "llama_llama3"},
      {"RotaryOptions.type longrope", rotary([](auto& r) { return r.type == "longrope"; }), "longrope"},
      {"RotaryOptions.theta", rotary([](auto& r) { return r.theta != Turn().theta; }), "mistral"},
      {"RotaryOptions.rotated", [](auto& s) { return s.rotaries.at(0).rotated < s.layers.at(0).attention.head_size; },
       "phi3"},
      {"RotaryOptions.paired", rotary([](auto& r) { return r.paired; }), "gptj"},
      {"RotaryOptions.factor", rotary([](auto& r) { return r.factor != 1; }), "llama_linear"},
      {"RotaryOptions.original_positions", rotary([](auto& r) { return r.original_positions < 64; }), "llama_llama3"},
      {"RotaryOptions.low_frequency_factor", rotary([](auto& r) { return r.low_frequency_factor != 1; }), "llama3"},
      {"RotaryOptions.high_frequency_factor", rotary([](auto& r) { return r.high_frequency_factor != 4; }), "llama3"},
      {"RotaryOptions.beta_fast", rotary([](auto& r) { return r.beta_fast != 32; }), "llama_yarn"},
      {"RotaryOptions.beta_slow", rotary([](auto& r) { return r.beta_slow != 1; }), "llama_yarn"},
      {"RotaryOptions.truncate", rotary([](auto& r) { return !r.truncate; }), "gpt_oss"},
      {"RotaryOptions.mscale", rotary([](auto& r) { return r.mscale > 0; }), "deepseek_v3"},
      {"RotaryOptions.mscale_all_dim", rotary([](auto& r) { return r.mscale_all_dim > 0; }), "deepseek_v3"},
      {"RotaryOptions.attention_factor", rotary([](auto& r) { return r.attention_factor.has_value(); }), "longrope"},
      {"RotaryOptions.short_factors", rotary([](auto& r) { return !r.short_factors.empty(); }), "longrope"},
      {"RotaryOptions.long_factors", rotary([](auto& r) { return !r.long_factors.empty(); }), "longrope"},
      {"PositionRows::kOne", rotary([](auto& r) { return r.rows == nn::PositionRows::kOne; }), "mistral"},
      {"PositionRows::kInSections", rotary([](auto& r) { return r.rows == nn::PositionRows::kInSections; }),
       "qwen2_5_vl_mrope"},
      {"PositionRows::kInterleaved", rotary([](auto& r) { return r.rows == nn::PositionRows::kInterleaved; }),
       "qwen3_vl_mrope"},
      {"RotaryOptions.sections", rotary([](auto& r) { return !r.sections.empty(); }), "qwen2_5_vl_mrope"},
  };
  return all;
}

// Members that every case sets. Names of modules belong to files and checkpoints.
const std::set<std::string> kInEveryCase = {
    "AttentionSpec.heads",   "MlpSpec.width",
    "LayerInputsSpec.width", "ExpertsSpec.count",
    "ExpertsSpec.used",      "ExpertsSpec.width",
    "LayerSpec.attention",   "LayerSpec.mlp",
    "DecoderSpec.family",    "DecoderSpec.vocabulary",
    "DecoderSpec.hidden",    "DecoderSpec.positions",
    "DecoderSpec.names",     "DecoderSpec.initializer_range",
};
// Shown by DecoderGrid.HeadsForLabels, since the cases of this table are language models, and by tests/golden/mtp.
const std::set<std::string> kInOtherCases = {"DecoderSpec.labels",   "DecoderSpec.label_padding",
                                             "DecoderSpec.sentence", "DecoderSpec.vision",
                                             "LayerSpec.mtp",        "DecoderSpec.mtp_loss"};
// Members of which each value is a flag.
const std::set<std::string> kByValue = {"NormSpec.kind", "AttentionSpec.rows", "ExpertsSpec.scores",
                                        "RotaryOptions.type", "RotaryOptions.rows"};

// The text between the brace after `begin` and the brace that closes it.
std::string braced(const std::string& text, const std::string& begin) {
  const std::size_t start = text.find(begin + " {");
  EXPECT_NE(start, std::string::npos) << begin;
  std::size_t end = text.find('{', start) + 1;
  const std::size_t first = end;
  for (int depth = 1; depth > 0; ++end) depth += text[end] == '{' ? 1 : text[end] == '}' ? -1 : 0;
  return text.substr(first, end - 1 - first);
}

std::string without(const std::string& text, const char* pattern) {
  return std::regex_replace(text, std::regex(pattern), "");
}

std::vector<std::string> words_of(const std::string& text) {
  std::vector<std::string> words;
  const std::regex word("[A-Za-z_]\\w*");
  for (std::sregex_iterator at(text.begin(), text.end(), word); at != std::sregex_iterator(); ++at)
    words.push_back(at->str());
  return words;
}

// "int a = 1, b; Kind c = {};" -> a, b, c
std::vector<std::string> members_of(const std::string& header, const std::string& type) {
  std::string body = without(braced(header, "struct " + type), "enum class[^;]*;");
  body = without(without(body, "[^;{}]*\\([^;{}]*\\)[^;{}]*(\\{[^}]*\\}|= default;)"), "\\{[^}]*\\}");
  std::vector<std::string> members;
  std::size_t begin = 0;
  for (std::size_t end; (end = body.find(';', begin)) != std::string::npos; begin = end + 1) {
    const std::string statement = without(body.substr(begin, end - begin), "=[^,]*");
    std::size_t from = 0;
    for (std::size_t comma = 0; comma != std::string::npos; from = comma + 1) {
      comma = statement.find(',', from);
      const auto words = words_of(statement.substr(from, comma - from));
      if (!words.empty()) members.push_back(type + "." + words.back());
    }
  }
  return members;
}

std::set<std::string> flags_of_headers() {
  const std::string root = GANTRY_SOURCE_DIR "/include/gantry/", comments = "//[^\n]*";
  const std::string commented = read_file(root + "nn/rotary_options.h");
  const std::string spec = without(read_file(root + "models/described/decoder_spec.h"), comments.c_str()),
                    rotary = without(commented, comments.c_str());
  std::set<std::string> all;
  for (const char* type : {"NormSpec", "LatentSpec", "AttentionSpec", "MlpSpec", "ExpertsSpec", "AltUpSpec",
                           "LayerInputsSpec", "LayerSpec", "DecoderSpec"})
    for (const auto& member : members_of(spec, type)) all.insert(member);
  for (const auto& member : members_of(rotary, "RotaryOptions")) all.insert(member);
  for (const auto& [within, name] :
       {std::pair("NormSpec::", "Kind"), {"", "ProjectionRows"}, {"ExpertsSpec::", "Scores"}})
    for (const auto& value : words_of(braced(spec, std::string("enum class ") + name)))
      all.insert(std::string(within) + name + "::" + value);
  for (const auto& value : words_of(braced(rotary, "enum class PositionRows"))) all.insert("PositionRows::" + value);
  std::smatch types;
  EXPECT_TRUE(std::regex_search(commented, types, std::regex("type = \"default\";  // ([^\n]*)")));
  for (const auto& type : words_of(types[1])) all.insert("RotaryOptions.type " + type);
  return all;
}

TEST(DescriptionFlags, EachIsInTheTable) {
  std::set<std::string> shown;
  for (const Flag& flag : flags()) EXPECT_TRUE(shown.insert(flag.name).second) << flag.name;
  for (const auto* others : {&kInEveryCase, &kInOtherCases, &kByValue}) shown.insert(others->begin(), others->end());
  const auto stated = flags_of_headers();
  EXPECT_GT(stated.size(), 90u);
  for (const auto& flag : stated)
    EXPECT_TRUE(shown.contains(flag)) << flag << " has no case: add a row and one to show it";
  for (const auto& flag : shown) EXPECT_TRUE(stated.contains(flag)) << flag << " is no flag of a description";
}

TEST(DescriptionFlags, EachIsSetByTheCaseThatShowsIt) {
  std::map<std::string, json> cases;
  for (const auto& described : description_cases()) {
    cases[described.name] = json::parse(config_keys(described.what));
    cases[described.name]["model_type"] = described.what.family;
  }
  for (const Flag& flag : flags()) {
    const std::string file = std::string(GANTRY_SOURCE_DIR "/tests/golden/families/") + flag.shown_by + "/config.json";
    const bool golden = std::filesystem::exists(file);
    ASSERT_TRUE(golden || cases.contains(flag.shown_by)) << flag.name << ": no case " << flag.shown_by;
    const json keys = golden ? json::parse(read_file(file)) : cases.at(flag.shown_by);
    EXPECT_TRUE(flag.is_set(decoder_spec(keys["model_type"].get<std::string>(), keys)))
        << flag.name << " is not set by " << flag.shown_by;
  }
}

}  // namespace
}  // namespace gantry::testing
