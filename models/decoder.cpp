#include "gantry/models/decoder.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>

#include "gantry/core/error.h"
#include "gantry/models/altup.h"
#include "gantry/models/decoder_mtp.h"
#include "gantry/models/described/vision_modules.h"
#include "gantry/models/hidden_states.h"
#include "gantry/models/layer_inputs.h"
#include "gantry/models/optional_parts.h"
#include "gantry/models/register_at.h"
#include "gantry/models/router_loss.h"
#include "gantry/models/sentence_embedding.h"
#include "gantry/models/shared_keys.h"
#include "gantry/models/text_rows.h"
#include "gantry/models/vision/image_encoder.h"
#include "gantry/nn/deferred_logits.h"
#include "gantry/nn/depthwise_convolution.h"
#include "gantry/nn/embedding_noise.h"
#include "gantry/nn/experts.h"
#include "gantry/nn/sequence_part.h"
#include "gantry/nn/stream_scope.h"
#include "gantry/tensors/batch.h"
#include "gantry/tensors/host_copy.h"
#include "gantry/tensors/libtorch.h"

namespace gantry::models {
namespace {

std::int64_t layers_with_experts(const DecoderSpec& spec) {
  return std::count_if(spec.layers.begin(), spec.layers.end(),
                       [](const LayerSpec& layer) { return layer.experts.has_value(); });
}

// Positions in three rows are for rotary embeddings with sections only.
bool reads_rows(const DecoderSpec& spec) {
  const auto has_sections = [](const nn::RotaryOptions& rotary) { return !rotary.sections.empty(); };
  return !spec.learned_positions && !spec.rotaries.empty() &&
         std::all_of(spec.rotaries.begin(), spec.rotaries.end(), has_sections);
}

void check_entries(const TensorDict& batch, const DecoderSpec& spec) {
  for (const char* name : {"pixel_values", "pixel_values_videos", "input_features"})
    if (batch.contains(name) && !(spec.vision && name == std::string("pixel_values")))
      throw InputError(
          {name,
           fmt::format("the model {} reads text only, because it was built without an image encoder", spec.family),
           "a batch of text", "set model.config.image_encoder to true if the family has one, or remove the entry"});
  if (const torch::Tensor positions = batch.get("position_ids");
      positions.defined() && positions.dim() == 3 && !reads_rows(spec))
    throw InputError({"position_ids", "the positions have three rows, but the model has no mrope_section",
                      "[samples, tokens]", "pass one row of positions"});
}

// Tokens that stand for images and sounds have embeddings that the model does not load.
void check_text_tokens(const torch::Tensor& input_ids, const DecoderSpec& spec) {
  if (spec.text_tokens == 0) return;
  const torch::Tensor known = on_host(input_ids);
  if (!known.defined() || known.numel() == 0) return;
  if (const auto largest = known.max().item<std::int64_t>(); largest >= spec.text_tokens)
    throw InputError(
        {"input_ids", fmt::format("token {} stands for an image or a sound", largest),
         fmt::format("tokens of text, below {}, because the model {} reads text only", spec.text_tokens, spec.family),
         "remove the token"});
}

}  // namespace

DecoderImpl::DecoderImpl(DecoderSpec description) : spec(std::move(description)) {
  const DecoderNames& names = spec.names;
  const std::int64_t columns = embedding_columns(spec);
  auto table = torch::nn::EmbeddingOptions(spec.vocabulary, columns);
  if (spec.padding) table.padding_idx(spec.padding);
  tokens_ = register_at(*this, names.tokens, nn::Embedding(table));
  if (spec.embedding_width > 0) project_in_ = linear_at(*this, names.project_in, columns, spec.hidden, false);
  if (spec.learned_positions)
    positions_ = register_at(*this, names.positions, nn::Embedding(spec.positions + spec.position_offset, spec.hidden));
  if (spec.vision) {
    encoder_ = make_image_encoder(*this, *spec.vision, spec.hidden, spec.initializer_range);
    image_rows_ = register_module(kImageRows, nn::PrepareInput());
  }
  if (spec.streams > 1) streams_ = std::make_shared<StreamEnds>(*this, spec);
  if (spec.layer_inputs) layer_inputs_ = std::make_shared<LayerInputs>(*this, spec);
  embedding_norm_ = DecoderNorm(*this, names.embedding_norm, spec.embedding_norm, spec.hidden);
  dropout_ = dropout_at(*this, names.dropout, spec.embedding_dropout);
  layers_ = register_at(*this, names.layers, torch::nn::ModuleList());
  for (int index = 0; index < static_cast<int>(spec.layers.size()); ++index)
    layers_->push_back(DecoderLayer(spec, index));
  norm_ = DecoderNorm(*this, names.norm, spec.norm, spec.hidden);
  if (spec.embedding_width > 0) project_out_ = linear_at(*this, names.project_out, spec.hidden, columns, false);
  if (!predicts_tokens(spec)) full_sequence_ = register_at(*this, kFullSequence, nn::PrepareInput());
  if (!spec.sentence) head_ = linear_at(*this, names.head, columns, head_rows(spec), spec.head_bias);
  if (spec.sentence && spec.sentence->compares)
    samples_ = register_module(kSamples, std::make_shared<nn::GatherSamplesImpl>());
  initialise();
  if (spec.tied) head_->tie_weight(tokens_->weight);
}

// The initial weights of Hugging Face's models.
void DecoderImpl::initialise() {
  const torch::NoGradGuard no_grad;
  const double range = spec.initializer_range;
  const double into_residual =
      spec.initial_by_depth ? range / std::sqrt(2.0 * static_cast<double>(spec.layers.size())) : range;
  for (const auto& item : named_modules("", /*include_self=*/false)) {
    if (auto* linear = dynamic_cast<nn::LinearImpl*>(item.value().get())) {
      const bool residual =
          item.key().ends_with("." + spec.names.output) || item.key().ends_with("." + spec.names.down);
      torch::nn::init::normal_(linear->weight, 0, residual ? into_residual : range);
      if (linear->bias.defined()) torch::nn::init::zeros_(linear->bias);
    } else if (auto* embedding = dynamic_cast<nn::EmbeddingImpl*>(item.value().get())) {
      torch::nn::init::normal_(embedding->weight, 0, range);
    } else if (auto* router = dynamic_cast<nn::RouterImpl*>(item.value().get())) {
      torch::nn::init::normal_(router->weight, 0, range);
    } else if (auto* coefficients = dynamic_cast<CoefficientsImpl*>(item.value().get())) {
      torch::nn::init::normal_(coefficients->weight, 0, range);
    } else if (auto* convolution = dynamic_cast<nn::DepthwiseConvolutionImpl*>(item.value().get())) {
      torch::nn::init::normal_(convolution->weight, 0, range);
    } else if (auto* experts = dynamic_cast<nn::ExpertsImpl*>(item.value().get())) {
      torch::nn::init::normal_(experts->gate_up_proj, 0, range);
      torch::nn::init::normal_(experts->down_proj, 0, into_residual);
    }
  }
  if (spec.padding) tokens_->weight.select(0, *spec.padding).zero_();
  if (layer_inputs_) layer_inputs_->clear_padding();
}

void DecoderImpl::add_embedding_noise(double alpha) {
  noise_ = register_module(kEmbeddingNoise, std::make_shared<nn::EmbeddingNoiseImpl>(alpha));
}

void DecoderImpl::return_hidden_states(std::int64_t projected) {
  if (projected == 0) {
    full_hidden_ = register_module(kFullHiddenStates, nn::PrepareInput());
    return;
  }
  hidden_projection_ = linear_at(*this, kHiddenProjection, embedding_columns(spec), projected, false);
  const torch::NoGradGuard no_grad;
  torch::nn::init::normal_(hidden_projection_->weight, 0, spec.initializer_range);
}

std::string DecoderImpl::hidden_states_module() const {
  if (hidden_projection_) return kHiddenProjection;
  return full_hidden_ ? kFullHiddenStates : "";
}

torch::Tensor DecoderImpl::embed(const StageContext& stage, const torch::Tensor& input_ids,
                                 const nn::TokenContext& known, const torch::Tensor& rows,
                                 const torch::Tensor& patches) {
  const std::int64_t tokens = known.length > 0 ? known.length : input_ids.size(1);
  // Documents of a sample have positions of their own.
  const auto are_too_many = [&] {
    return !known.positions.defined() || known.positions.max().item<std::int64_t>() >= spec.positions;
  };
  if (tokens > spec.positions && !spec.unlimited_positions && are_too_many()) {
    throw InputError({"input_ids", fmt::format("there are {} tokens per sample", tokens),
                      fmt::format("at most the model's {} positions", spec.positions), "shorten the samples"});
  }
  const bool is_outside = spec.vision && spec.vision->image_token >= spec.vocabulary;
  const torch::Tensor ids = is_outside ? input_ids.masked_fill(input_ids == spec.vision->image_token, 0) : input_ids;
  const torch::Tensor found = rows.defined() ? rows : tokens_(ids);
  torch::Tensor hidden = scaled(noise_ ? noise_->forward(found) : found, spec.embedding_scale);
  if (patches.defined()) hidden = with_images(hidden, input_ids, patches, stage.batch());
  if (project_in_) hidden = project_in_(hidden);
  if (positions_) {
    const torch::Tensor known_rows = rows_of_positions(stage, known, input_ids);
    hidden =
        hidden + positions_(known_rows.defined() ? known_rows : CountedNumbers(tokens, input_ids.options()).numbers);
  }
  return dropped(dropout_, embedding_norm_(hidden));
}

torch::Tensor DecoderImpl::rows_of_positions(const StageContext& stage, const nn::TokenContext& known,
                                             const torch::Tensor& input_ids) const {
  const torch::Tensor& positions = known.positions;
  if (spec.position_offset == 0) return positions;
  const auto& part = known.sequence;
  const torch::Tensor mask = part ? part->keep : known.keep;
  // Ranks share the sequence, and the batch has neither positions nor documents. A mask then decides the
  // rows.
  const bool are_places = part && !part->documents.defined() && !stage.batch().contains("position_ids");
  if (positions.defined() && !(are_places && mask.defined())) return positions + spec.position_offset;
  const torch::Tensor counted = mask.defined() ? mask.to(torch::kInt64) : torch::ones_like(input_ids);
  // Rows for the tokens that count. Padding has the row before the first one.
  const torch::Tensor rows = counted.cumsum(1) * counted - 1 + spec.position_offset;
  return part ? rows.index_select(1, part->positions.view({-1})) : rows;
}

// Chooses the token like transformers: the last one that is not the padding token or, in models without one, by the
// mask. In a batch with pooled_tokens, it is the last such token up to each of them. All ranks that share the sequences
// compute the result.
torch::Tensor DecoderImpl::last_tokens(const nn::TokenContext& known, const TensorDict& batch,
                                       const torch::Tensor& own) const {
  const auto& part = known.sequence;
  const torch::Tensor hidden = part ? nn::joined(own, *part) : own;
  const torch::Tensor held = batch.at("input_ids"), ids = part ? nn::join_parts(held, *part->group, part->shard) : held,
                      mask = part ? part->keep : batch.get("attention_mask");
  torch::Tensor counted = torch::ones_like(ids);
  if (spec.label_padding)
    counted = ids != *spec.label_padding;
  else if (mask.defined())
    counted = mask != 0;
  const torch::Tensor places = counted.to(torch::kInt64) * torch::arange(ids.size(1), ids.options());
  if (const torch::Tensor named = batch.get("pooled_tokens"); named.defined()) {
    const torch::Tensor last = std::get<0>(places.cummax(1)).gather(1, named.to(torch::kInt64));
    return hidden.gather(1, last.unsqueeze(-1).expand({-1, -1, hidden.size(2)}));
  }
  return hidden.index({torch::arange(ids.size(0), ids.options()), places.argmax(1)});
}

// All ranks that share the sequences compute the same values.
TensorDict DecoderImpl::sentence_results(const StageContext& stage, const nn::TokenContext& known,
                                         const torch::Tensor& own) const {
  const nn::StreamScope scope(stage, nullptr);
  const auto& part = known.sequence;
  const torch::Tensor hidden = part ? nn::joined(own, *part) : own;
  return {{"last_hidden_state", hidden},
          {"sentence_embedding", sentence_embedding(hidden, part ? part->keep : known.keep, *spec.sentence)}};
}

TensorDict DecoderImpl::first_state(const StageContext& stage, const TensorDict& input,
                                    const nn::TokenContext& tokens) {
  const torch::Tensor& ids = (encoder_ ? stage.batch() : input).at("input_ids");
  check_text_tokens(ids, spec);
  if (spec.sentence) refuse_documents(stage.batch());
  const torch::Tensor hidden =
      embed(stage, ids, tokens, stage.vocabulary_apart() ? input.at("embedded") : torch::Tensor(),
            encoder_ ? input.at(kImagePatches) : torch::Tensor());
  TensorDict state{{"hidden", streams_ ? streams_->split(hidden) : hidden}};
  if (layer_inputs_) state.set(kLayerInputs, layer_inputs_->forward(ids, hidden));
  return state;
}

// The entries of the state that later stages read.
TensorDict DecoderImpl::handed_on(const StageContext& stage, const TensorDict& state) const {
  TensorDict later{{"hidden", state.at("hidden")}};
  if (state.contains(kLayerInputs)) later.set(kLayerInputs, state.at(kLayerInputs));
  for (const auto& name : entries_of_earlier_layers(spec, stage.layer_range(decoder_list()).end))
    later.set(name, state.at(name));
  return later;
}

// Each text is a row. There is one stage (nn/gather_samples.h).
TensorDict DecoderImpl::compare_texts(const StageContext& stage, const TensorDict& input) {
  const TextRows rows = rows_of_texts(stage, input, "[samples, texts, tokens], with one sequence per text");
  const ForwardScope scope(rows.forward);
  return compared_texts(*samples_, rows.grouped(run_stage(stage, rows.input, rows.tokens).at("sentence_embedding")));
}

TensorDict DecoderImpl::stage_forward(const StageContext& stage, const TensorDict& input) {
  check_entries(stage.batch(), spec);
  return samples_ ? compare_texts(stage, input) : run_stage(stage, input, stage.tokens());
}

TensorDict DecoderImpl::run_stage(const StageContext& stage, const TensorDict& input, nn::TokenContext tokens) {
  if (const torch::Tensor types = stage.batch().get("token_type_ids");
      types.defined() && spec.vision && spec.vision->both_directions)
    tokens.images = numbered_images(types);
  const int list = decoder_list();
  TensorDict begin = encoder_ ? run_tower(stage, input) : input;
  if (encoder_ && stage.layer_range(list).end == 0) return begin;  // the stage has layers of the tower only
  if (encoder_ ? stage.begins(list) : stage.is_first()) begin = first_state(stage, begin, tokens);
  if (layer_inputs_) split_layer_inputs(begin, stage.layer_range(list), spec.layer_inputs->width);
  // The routers' loss is joint over all layers, so a stage with only some layers does not compute it. A
  // continued text has no such loss.
  const bool is_continued = tokens.caches || (!is_training() && !stage.batch().contains("labels"));
  const bool sums_routers = spec.router_loss > 0 && stage.num_stages() == 1 && !is_continued;
  // After the layers of multi-token prediction, stages have the hidden states of all depths.
  TensorDict state = stage.run_layers(
      std::move(begin), [&](int index) { return parts_of_layer(stage, index, tokens, sums_routers); }, list);
  if (state.contains(kMainHidden)) state.set("hidden", state.take(kMainHidden));
  if (sums_routers) add_router_loss(stage, state, spec.router_loss, layers_with_experts(spec));
  torch::Tensor hidden = state.at("hidden");
  const bool has_mtp = spec.mtp_loss > 0;
  if (has_mtp ? stage.layer_range(list).contains(main_layers(spec)) && !predicts_further() : stage.is_last()) {
    hidden = tokens.for_head(hidden);
    hidden = norm_(streams_ ? streams_->merged(hidden) : hidden);
  }
  if (!stage.is_last()) {
    state.set("hidden", hidden);
    return has_mtp ? state : handed_on(stage, state);
  }
  if (predicts_further()) add_mtp_loss(stage, state);
  if (project_out_) hidden = project_out_(hidden);
  if (spec.sentence) return sentence_results(stage, tokens, full_sequence_(hidden));
  if (full_sequence_) {
    const torch::Tensor last = last_tokens(tokens, stage.batch(), full_sequence_(hidden));
    const nn::StreamScope scope(stage, nullptr);
    return {{"logits", head_(last)}};
  }
  return token_results(stage, hidden);
}

TensorDict DecoderImpl::token_results(const StageContext& stage, const torch::Tensor& hidden) {
  if (stage.vocabulary_apart()) return {{"hidden", hidden}};
  TensorDict results = nn::head_output(head_, hidden, {.scale = spec.logit_scale, .soft_cap = spec.logit_soft_cap});
  if (!stage.batch().contains("labels")) return results;
  if (hidden_projection_) results.set(kHiddenStates, hidden_projection_(hidden));
  if (full_hidden_) results.set(kHiddenStates, full_hidden_(hidden));
  return results;
}

TensorDict DecoderImpl::forward(const TensorDict& inputs) {
  std::vector<int> lists = {static_cast<int>(layers_->size())};
  if (encoder_) lists.insert(lists.begin(), tower_layers(spec));
  return stage_forward(*StageContext::full(std::move(lists), samples_first(inputs)), inputs);
}

}  // namespace gantry::models
