#include "model_case.h"

#include <algorithm>
#include <cmath>
#include <gtest/gtest.h>
#include <iterator>
#include <nlohmann/json.hpp>
#include <random>
#include <typeinfo>

#include <torch/torch.h>

#include "gantry/booster/recipe.h"
#include "gantry/launch/launch.h"
#include "gantry/optimizers/gradient_buffers.h"
#include "gantry/plugins/gather.h"
#include "program.h"

namespace gantry::testing {
namespace {

using nlohmann::json;

constexpr std::int64_t kMelBins = 3, kSoundTokens = 5;
constexpr std::int64_t kImage = 7;  // of 9 whole patches of 2: the last row and column belong to none

// Sizes that tp 2, 3 and 4 do not divide wherever a model allows it.
json model_keys(const ModelCase& what) {
  if (what.family == "gpt2" || what.family == "gptj")
    return {{"n_layer", what.layers},        {"n_head", what.heads},       {"n_embd", what.width},
            {"vocab_size", what.vocabulary}, {"n_positions", what.tokens}, {"resid_pdrop", what.dropout},
            {"embd_pdrop", what.dropout},    {"attn_pdrop", what.dropout}, {"tie_word_embeddings", what.tied}};
  json keys = {{"num_hidden_layers", what.layers}, {"num_attention_heads", what.heads},
               {"hidden_size", what.width},        {"intermediate_size", 37},
               {"vocab_size", what.vocabulary},    {"max_position_embeddings", what.tokens},
               {"tie_word_embeddings", what.tied}};
  if (what.family == "t5")
    return {{"num_layers", what.layers},
            {"num_decoder_layers", 2},
            {"num_heads", what.heads},
            {"d_model", what.width},
            {"d_kv", 5},
            {"d_ff", 37},
            {"relative_attention_num_buckets", 8},
            {"relative_attention_max_distance", 6},
            {"vocab_size", what.vocabulary},
            {"dropout_rate", what.dropout},
            {"tie_word_embeddings", what.tied}};
  if (what.family == "whisper")
    return {{"encoder_layers", what.layers},
            {"encoder_attention_heads", what.heads},
            {"encoder_ffn_dim", 37},
            {"decoder_layers", 2},
            {"decoder_attention_heads", 3},
            {"decoder_ffn_dim", 29},
            {"d_model", what.width},
            {"num_mel_bins", kMelBins},
            {"max_source_positions", kSoundTokens},
            {"max_target_positions", what.tokens},
            {"vocab_size", what.vocabulary},
            {"dropout", what.dropout},
            {"attention_dropout", what.dropout},
            {"activation_dropout", what.dropout},
            {"tie_word_embeddings", what.tied}};
  if (what.family == "vit")
    return {{"num_hidden_layers", what.layers},
            {"num_attention_heads", what.heads},
            {"hidden_size", what.width},
            {"intermediate_size", 37},
            {"hidden_dropout_prob", what.dropout},
            {"attention_probs_dropout_prob", what.dropout},
            {"image_size", kImage},
            {"patch_size", 2},
            {"num_channels", 2},
            {"num_labels", 3}};
  if (what.family == "roberta") keys.update({{"pad_token_id", 1}, {"max_position_embeddings", what.tokens + 2}});
  if (what.family == "bert" || what.family == "roberta") {
    keys.update({{"hidden_dropout_prob", what.dropout},
                 {"attention_probs_dropout_prob", what.dropout},
                 {"architectures", {(what.family == "bert" ? "Bert" : "Roberta") + what.head}},
                 {"num_labels", 3}});
    return keys;
  }
  keys["attention_dropout"] = what.dropout;
  if (what.family == "bloom")
    return {{"n_layer", what.layers},          {"n_head", what.heads},           {"hidden_size", what.width},
            {"vocab_size", what.vocabulary},   {"hidden_dropout", what.dropout}, {"attention_dropout", what.dropout},
            {"tie_word_embeddings", what.tied}};
  if (what.family == "opt" || what.family == "falcon") {
    keys.erase("intermediate_size");
    keys[what.family == "opt" ? "ffn_dim" : "ffn_hidden_size"] = 37;
    keys[what.family == "opt" ? "dropout" : "hidden_dropout"] = what.dropout;
    return keys;
  }
  if (what.family != "gpt_neox") keys["num_key_value_heads"] = what.key_heads;
  if (what.family == "llama") keys["attention_bias"] = true;
  if (what.family == "gpt_neox") keys["hidden_dropout"] = what.dropout;
  if (what.family == "phi3") keys.update({{"resid_pdrop", what.dropout}, {"embd_pdrop", what.dropout}});
  return keys;
}

Config config_of(const ModelCase& what, const Parallelism& how) {
  Config config = layout_config(how.layout);
  config.model.policy = what.family;
  config.model.config_json = config_keys(what);
  config.parallel.sequence_parallel = how.sequence_parallel;
  config.schedule.name = how.schedule;
  config.schedule.microbatches = how.microbatches;
  config.schedule.chunks = how.chunks;
  config.schedule.recompute = how.recompute;
  config.schedule.recompute_layers = how.recompute_layers;
  config.parallel.tensor_overlap = how.tensor_overlap;
  config.parallel.zero = how.zero;
  config.parallel.shard = how.shard;
  config.parallel.gather = how.gather;
  config.parallel.context_method = how.context_method;
  config.parallel.vocabulary = how.vocabulary;
  config.schedule.vocabulary_algorithm = how.vocabulary_algorithm;
  config.experts = what.experts;
  config.experts.dispatch = how.dispatch;
  config.train.offload = how.offload;
  config.precision = what.precision;
  config.optimizer.name = what.optimizer;
  config.optimizer.lr = what.lr;
  config.optimizer.clip_grad_norm = what.clip;
  config.train.seed = 7;
  return config;
}

// No, one and two tokens of padding in turn.
torch::Tensor padding_mask(const torch::Tensor& ids, bool is_before) {
  torch::Tensor mask = torch::ones_like(ids);
  for (std::int64_t sample = 0; sample < ids.size(0); ++sample) {
    const std::int64_t padding = std::min<std::int64_t>(sample % 3, ids.size(1) - 1);
    mask[sample].narrow(0, is_before ? 0 : ids.size(1) - padding, padding).zero_();
  }
  return mask;
}

// An encoder's text with padding behind it, and a decoder's text of another length, as labels alone.
TensorDict pairs_of(const TensorDict& batch) {
  const torch::Tensor &ids = batch.at("input_ids"), &labels = batch.at("labels");
  return {{"input_ids", ids},
          {"attention_mask", padding_mask(ids, /*is_before=*/false)},
          {"labels", labels.narrow(1, 2, labels.size(1) - 2).contiguous()}};
}

// Sound, and its text of fewer tokens, as labels alone.
TensorDict sounds_of(const TensorDict& batch) {
  const torch::Tensor &ids = batch.at("input_ids"), &labels = batch.at("labels");
  const torch::Tensor places = torch::arange(2 * kMelBins * kSoundTokens, torch::kFloat64);
  return {{"input_features",
           torch::sin(ids.select(1, 0).unsqueeze(1) + 0.7 * places).view({ids.size(0), kMelBins, 2 * kSoundTokens})},
          {"labels", labels.narrow(1, 1, labels.size(1) - 1).contiguous()}};
}

TensorDict images_of(const TensorDict& batch) {
  const torch::Tensor& ids = batch.at("input_ids");
  const torch::Tensor places = torch::arange(2 * kImage * kImage, torch::kFloat64);
  const torch::Tensor first = ids.select(1, 0);
  return {{"pixel_values", torch::sin(first.unsqueeze(1) + 0.7 * places).view({ids.size(0), 2, kImage, kImage})},
          {"labels", first % 3}};
}

// Three choices a sample: its own text and those of others, each with its padding.
void set_choices(TensorDict& batch) {
  const torch::Tensor labels = batch.at("input_ids").select(1, 0) % 3;
  for (const char* name : {"input_ids", "attention_mask", "token_type_ids"}) {
    const torch::Tensor texts = batch.at(name);
    batch.set(name, torch::stack({texts, texts.roll(1, 0), texts.flip(0)}, 1));
  }
  batch.set("labels", labels);
}

// Of documents of these lengths, each sample's beginning one behind that of the sample before.
torch::Tensor document_ids_of(std::int64_t samples, const std::vector<int>& lengths) {
  std::vector<torch::Tensor> rows;
  for (std::int64_t sample = 0; sample < samples; ++sample) {
    std::vector<torch::Tensor> documents;
    for (std::size_t i = 0; i < lengths.size(); ++i)
      documents.push_back(
          torch::full({lengths[(sample + i) % lengths.size()]}, static_cast<std::int64_t>(i), torch::kInt64));
    rows.push_back(torch::cat(documents));
  }
  return torch::stack(rows);
}

// What BERT takes beside tokens: padding after the text, two token types, the head's own labels.
void add_bert_entries(const ModelCase& what, TensorDict& batch) {
  const torch::Tensor ids = batch.at("input_ids");
  torch::Tensor types = torch::zeros_like(ids);
  types.narrow(1, ids.size(1) / 2, ids.size(1) - ids.size(1) / 2).fill_(1);
  batch.set("attention_mask", padding_mask(ids, /*is_before=*/false));
  batch.set("token_type_ids", types);
  const torch::Tensor first = ids.select(1, 0);
  if (what.family == "roberta") {  // of one type; padding is a token of its own, in the middle of a text too
    batch.set("token_type_ids", torch::zeros_like(types));
    batch.set("input_ids", ids.masked_fill(batch.at("attention_mask") == 0, 1));
  }
  if (what.head == "ForSequenceClassification") batch.set("labels", first % 3);
  if (what.head == "ForTokenClassification") batch.set("labels", batch.at("labels").remainder(3));
  if (what.head == "ForMultipleChoice") return set_choices(batch);
  if (what.head != "ForQuestionAnswering") return;
  batch.set("start_positions", first % ids.size(1));
  batch.set("end_positions", ids.select(1, ids.size(1) - 1) % (ids.size(1) + 1));  // some lie outside
}

// The whole batch of a step, the same in every layout: a linear congruence, so that no generator's state is involved.
TensorDict whole_batch(const ModelCase& what, std::size_t step) {
  const std::int64_t samples = what.batches[step];
  if (what.distinct > 0) step %= what.distinct;
  torch::Tensor ids = torch::empty({samples, what.tokens}, torch::kInt64), labels = torch::empty_like(ids);
  std::uint64_t state = 1000 + step;
  auto draw = [&](std::uint64_t bound) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (state >> 33) % bound;
  };
  for (std::int64_t i = 0; i < ids.numel(); ++i) {
    ids.data_ptr<std::int64_t>()[i] = static_cast<std::int64_t>(draw(what.vocabulary));
    labels.data_ptr<std::int64_t>()[i] = static_cast<std::int64_t>(draw(what.vocabulary));
    // The first samples lose more labels, so that replicas and microbatches count differently.
    if (static_cast<double>(draw(1000)) < 1000 * what.ignored * (i < ids.numel() / 2 ? 2 : 0.5))
      labels.data_ptr<std::int64_t>()[i] = -100;
  }
  labels.narrow(1, 0, what.first_counted).fill_(-100);
  TensorDict batch{{"input_ids", ids}, {"labels", labels}};
  if (what.family == "t5") return pairs_of(batch);
  if (what.family == "vit") return images_of(batch);
  if (what.family == "whisper") return sounds_of(batch);
  const bool is_bert = what.family == "bert" || what.family == "roberta";
  if (is_bert) add_bert_entries(what, batch);
  if (!is_bert && what.padded) batch.set("attention_mask", padding_mask(ids, /*is_before=*/true));
  if (!what.documents.empty())
    batch.set("document_ids", document_ids_of(samples, what.documents));
  else if (what.packed)
    batch.set("document_ids", (torch::arange(what.tokens) + torch::arange(samples).unsqueeze(1)).div(3, "floor"));
  return batch;
}

// The step's batch in `how.accumulation` parts, summed up; the loss is the mean over all counted tokens. What else is
// known of the step goes to `of`.
double run_step(const ModelCase& what, std::size_t step, const Parallelism& how, Booster& booster, Boosted& boosted,
                const ProcessGroupMesh& mesh, CaseResult& of) {
  auto& added = of.added.emplace_back();
  auto& loads = of.loads.emplace_back();
  const Batch whole = make_batch(whole_batch(what, step));
  double sum = 0, tokens = 0;
  auto add = [&](const Batch& part) {
    const auto done = booster.execute_pipeline(replica_part(part, mesh.size("dp"), mesh.coordinate("dp")), boosted,
                                               {.broadcast_loss = true});
    for (const auto& [name, mean] : done.added_losses) added[name] += mean * static_cast<double>(done.tokens);
    sum += *done.loss * static_cast<double>(done.tokens);
    tokens += static_cast<double>(done.tokens);
    loads = done.experts;
  };
  if (how.accumulation == 1) {
    add(whole);
  } else {
    {
      const auto no_sync = booster.no_sync();
      for (const auto& [begin, end] : split_evenly(whole.samples, how.accumulation)) {
        Batch part = slice(whole, begin, end);
        part.first_sample = 0;
        add(part);
      }
    }
    booster.sync_gradients(boosted);
  }
  return tokens > 0 ? sum / tokens : 0;
}

// Every replica of a parameter must be the same to the bit: over dp, and over tp where it is not cut; of experts over
// edp.
void expect_replicas_identical(const StageModule& module, const ProcessGroupMesh& mesh, const std::string& label) {
  for (const auto& [placement, tensor] : module.parameters)
    for (const char* axis : {"dp", "tp", "edp"}) {
      if (!axis::is_in(axis, placement.view) || (placement.view == axis::View::kDense && axis == std::string("edp")))
        continue;
      if (placement.along(axis).sharded()) continue;
      torch::Tensor largest = tensor.detach().clone();
      mesh[axis].all_reduce(largest, ReduceOp::kMax).wait();
      EXPECT_TRUE(torch::equal(largest, tensor))
          << label << " replicas over " << axis << " differ in " << placement.name;
    }
}

bool is_key_bias(const std::string& name) { return name.ends_with("attn.qkv.bias"); }

double largest(const torch::Tensor& tensor) { return tensor.numel() ? tensor.abs().max().item<double>() : 0; }

double largest_of(const TensorDict& tensors) {
  double all = 0;
  for (const auto& [name, tensor] : tensors) all = std::max(all, largest(tensor));
  return all;
}

// The worst difference of two sets of tensors, relative as DESIGN section 7 says.
void expect_tensors(const TensorDict& expected, const TensorDict& actual, const TensorDict& gradients, double tolerance,
                    bool weights, const std::string& label) {
  const double floor = largest_of(gradients) / 1000;
  ASSERT_EQ(expected.size(), actual.size()) << label;
  for (const auto& [name, tensor] : expected) {
    torch::Tensor a = tensor, b = actual.at(name);
    // An exact gradient of zero: AdamW follows rounding there (the bias that softmax over tokens does not see).
    const bool trained = gradients.contains(name);
    if (weights && trained && largest(gradients.at(name)) < 1e-10 * 1000 * floor) continue;
    if (weights && is_key_bias(name)) {  // the middle third is the key's
      const auto third = a.size(0) / 3;
      a = torch::cat({a.narrow(0, 0, third), a.narrow(0, 2 * third, third)});
      b = torch::cat({b.narrow(0, 0, third), b.narrow(0, 2 * third, third)});
    }
    const double difference = largest(a - b) / std::max({largest(a), floor, 1e-300});
    EXPECT_LE(difference, tolerance) << label << (weights ? " weight " : " gradient ") << name;
    if (!(difference <= tolerance)) return;
  }
}

Criterion criterion_of(const ModelCase& what, const Config& config) {
  const nn::CrossEntropyOptions options{.label_smoothing = what.smoothing, .z_loss = what.z_loss};
  if (what.causal_labels) return causal_cross_entropy(options);
  return what.smoothing > 0 || what.z_loss > 0 ? cross_entropy(options) : build_criterion(config);
}

}  // namespace

std::string config_keys(const ModelCase& what) {
  json keys = model_keys(what);
  keys.update(json::parse(what.keys));
  return keys.dump();
}

std::string describe(const Parallelism& how) {
  return how.schedule + (how.sequence_parallel ? " sequence parallel" : "") +
         (how.recompute == "none" ? "" : " recompute " + how.recompute) +
         (how.chunks == 1 ? "" : " chunks " + std::to_string(how.chunks)) + " tp " + std::to_string(how.layout.tensor) +
         " pp " + std::to_string(how.layout.pipeline) + " dp " + std::to_string(how.layout.data) + " m " +
         std::to_string(how.microbatches) +
         (how.layout.context > 1 ? " cp " + std::to_string(how.layout.context) + " " + how.context_method : "") +
         (how.vocabulary == "stages" ? "" : " vocabulary " + how.vocabulary) +
         (how.vocabulary_algorithm == 2 ? "" : " algorithm 1") +
         (how.tensor_overlap == 1 ? "" : " pieces " + std::to_string(how.tensor_overlap)) +
         (how.layout.expert > 1 ? " ep " + std::to_string(how.layout.expert) + " " + how.dispatch : "") +
         (how.zero ? " zero " + std::to_string(how.zero) : "") +
         (how.zero == 3 ? " gather " + how.gather + (how.shard ? " shard " + std::to_string(how.shard) : "") : "") +
         (how.offload == "none" ? "" : " offload " + how.offload) +
         (how.accumulation > 1 ? " accumulation " + std::to_string(how.accumulation) : "");
}

CaseResult run_case(const ModelCase& what, const Parallelism& how, const std::string& backend) {
  Config config = config_of(what, how);
  config.comm.backend = backend;
  config.comm.threads_per_rank = 1;
  CaseResult result;
  const StartRanks start = backend == "auto" ? start_ranks() : launch;
  const int code = start(config, [&](World& world) {
    auto* plugin = new HybridParallelPlugin(world, config);
    Booster booster{std::unique_ptr<Plugin>(plugin)};
    const auto& mesh = plugin->mesh();
    auto model = build_model(config);
    auto boosted = booster.boost(model, build_optimizer(config, *model), criterion_of(what, config));
    boosted.model->train();
    CaseResult mine;
    auto& gradients = boosted.optimizer->gradients();
    for (std::size_t step = 0; step < what.batches.size(); ++step) {
      mine.losses.push_back(run_step(what, step, how, booster, boosted, mesh, mine));
      mine.norms.push_back(boosted.optimizer->grad_norm());
      gradients.complete();
      if (step + 1 == what.batches.size())
        mine.gradients = gather_tensors(boosted.model->stage_module(), plugin->stages(), mesh,
                                        [&](std::size_t i) { return gradients.gradient(i); });
      boosted.optimizer->step();
      boosted.optimizer->zero_grad();
    }
    boosted.optimizer->wait();
    expect_replicas_identical(boosted.model->stage_module(), mesh, describe(how));
    mine.weights = gather_tensors(boosted.model->stage_module(), plugin->stages(), mesh,
                                  [&](std::size_t i) { return boosted.model->stage_module().parameters[i].tensor; });
    for (TensorDict* tensors : {&mine.gradients, &mine.weights})
      for (const auto& [name, tensor] : *tensors) tensors->set(name, tensor.cpu());
    const std::string on = world.backend().name();
    const bool processes = on == "mpi" || on == "ipc";
    if (processes || world.is_main()) result = std::move(mine);
  });
  EXPECT_EQ(code, 0) << describe(how);
  return result;
}

namespace {

void expect_loads(const ExpertLoads& expected, const ExpertLoads& actual, const std::string& label) {
  if (expected.layers.empty() || actual.layers.empty()) return;
  EXPECT_EQ(actual.dropped, 0) << label;
  ASSERT_EQ(actual.layers.size(), expected.layers.size()) << label;
  for (std::size_t layer = 0; layer < expected.layers.size(); ++layer) {
    EXPECT_EQ(actual.layers[layer].router, expected.layers[layer].router) << label;
    EXPECT_EQ(actual.layers[layer].tokens, expected.layers[layer].tokens)
        << label << " " << expected.layers[layer].router;
  }
}

}  // namespace

void expect_equal(const CaseResult& expected, const CaseResult& actual, double tolerance, const std::string& label) {
  ASSERT_EQ(expected.losses.size(), actual.losses.size()) << label;
  for (std::size_t i = 0; i < expected.losses.size(); ++i) {
    EXPECT_NEAR(actual.losses[i], expected.losses[i], tolerance * std::abs(expected.losses[i]))
        << label << " loss of step " << i + 1;
    EXPECT_NEAR(actual.norms[i], expected.norms[i], tolerance * std::abs(expected.norms[i]))
        << label << " norm of step " << i + 1;
    EXPECT_EQ(actual.added[i].size(), expected.added[i].size()) << label;
    expect_loads(expected.loads[i], actual.loads[i], label + " step " + std::to_string(i + 1));
    for (const auto& [name, loss] : expected.added[i])
      EXPECT_NEAR(actual.added[i].at(name), loss, tolerance * std::abs(loss)) << label << " " << name;
  }
  expect_tensors(expected.gradients, actual.gradients, expected.gradients, tolerance, false, label);
  expect_tensors(expected.weights, actual.weights, expected.gradients, tolerance, true, label);
}

void expect_identical(const CaseResult& expected, const CaseResult& actual, const std::string& label) {
  EXPECT_EQ(expected.losses, actual.losses) << label;
  for (const auto& [name, tensor] : expected.gradients)
    EXPECT_TRUE(torch::equal(tensor, actual.gradients.at(name))) << label << " gradient " << name;
  for (const auto& [name, tensor] : expected.weights)
    EXPECT_TRUE(torch::equal(tensor, actual.weights.at(name))) << label << " weight " << name;
}

namespace {

// Of a long list half on devices, drawn once: on threads all of them run. GANTRY_LONG=1 runs all.
std::vector<Parallelism> layouts_to_run(const std::vector<Parallelism>& layouts) {
  constexpr std::size_t kLong = 8;
  const bool on_threads = start_ranks().target_type() == typeid(&launch);
  if (on_threads || is_long_form() || layouts.size() < kLong) return layouts;
  std::minstd_rand random(1);
  std::vector<Parallelism> drawn;
  std::sample(layouts.begin(), layouts.end(), std::back_inserter(drawn), (layouts.size() + 1) / 2, random);
  return drawn;
}

}  // namespace

void expect_layouts_equal(const ModelCase& what, const std::vector<Parallelism>& layouts) {
  constexpr double kTolerance = 1e-10;
  const CaseResult expected = run_case(what, {}, "local");
  for (const auto& how : layouts_to_run(layouts)) {
    expect_equal(expected, run_case(what, how), kTolerance, what.family + " " + describe(how));
    if (::testing::Test::HasFailure()) return;
  }
}

std::vector<Parallelism> product(std::vector<int> tensor, std::vector<int> pipeline, std::vector<int> data,
                                 const std::vector<std::string>& schedules, const std::vector<int>& microbatches,
                                 bool sequence_parallel) {
  std::vector<Parallelism> all;
  for (const int t : tensor)
    for (const int p : pipeline)
      for (const int d : data)
        for (const auto& schedule : schedules)
          for (const int m : microbatches)
            all.push_back({{.pipeline = p, .data = d, .tensor = t}, schedule, m, sequence_parallel});
  return all;
}

}  // namespace gantry::testing
