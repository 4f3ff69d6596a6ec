// The C++ code of docs/*.md that is not part of an example. The pages quote these lines, and
// tests/docs/snippets_test.cpp compares them. This file compiles them. It also runs them, unless they need
// files that the tests do not have.
#include <cstdio>
#include <filesystem>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <iterator>
#include <nlohmann/json.hpp>
#include <sstream>

#include <torch/data/dataloader.h>
#include <torch/data/samplers/sequential.h>

#include "gantry/booster/gantry.h"
#include "gantry/booster/show_sample.h"
#include "gantry/data/corpus/megatron_dataset.h"
#include "gantry/data/function_dataset.h"
#include "gantry/data/tokenizers/tokenizer.h"
#include "gantry/data/torch_dataset.h"
#include "gantry/generation/chat_prompts.h"
#include "gantry/nn/attention.h"
#include "gantry/nn/norms.h"
#include "gantry/nn/prepare_input.h"
#include "gantry/policies/sharder.h"
#include "gantry/tensors/libtorch.h"
#include "program.h"
#include "ranks.h"

namespace gantry::testing {
namespace {

// --- custom_models.md: a custom sharded module

// Multiplies each feature by a learned factor.
struct GainImpl : torch::nn::Module, gantry::Shardable {
  explicit GainImpl(std::int64_t features) : features(features) {
    gain = register_parameter("gain", torch::ones({features}));
  }
  torch::Tensor forward(const torch::Tensor& x) { return x * gain; }

  gantry::Placements shard(const gantry::ShardStyle& style, const gantry::ShardAxes& axes) override {
    if (!std::holds_alternative<gantry::Column>(style)) gantry::refuse_style("a Gain", style, "Column{}");
    const auto spec = axes.over(gantry::shard(0, features, axes.ranks()));
    gantry::shard_tensor(gain, spec, axes.rank());
    return {{"gain", spec}};
  }
  std::int64_t features;
  torch::Tensor gain;
};
TORCH_MODULE(Gain);

// Divides by the root mean square over all features. After shard(), this rank has a part of them.
struct FeatureNormImpl : torch::nn::Module, gantry::Shardable {
  explicit FeatureNormImpl(std::int64_t features) : features(features) {}
  torch::Tensor forward(const torch::Tensor& x) {
    torch::Tensor squares = x.square().sum(-1, /*keepdim=*/true);
    if (group) squares = gantry::copy_to_group(gantry::reduce_from_group(squares, *group), *group);
    return x * torch::rsqrt(squares / features + 1e-6);
  }
  gantry::Placements shard(const gantry::ShardStyle& style, const gantry::ShardAxes& axes) override {
    if (!std::holds_alternative<gantry::Column>(style)) gantry::refuse_style("a FeatureNorm", style, "Column{}");
    group = &axes.group();
    return {};
  }
  std::int64_t features;
  gantry::ProcessGroup* group = nullptr;  // null: this rank has all features
};
TORCH_MODULE(FeatureNorm);

struct GainedMlpImpl : torch::nn::Module {
  GainedMlpImpl() {
    up = register_module("up", gantry::nn::Linear(6, 10));
    norm = register_module("norm", FeatureNorm(10));
    gain = register_module("gain", Gain(10));
    down = register_module("down", gantry::nn::Linear(10, 6));
  }
  torch::Tensor forward(const torch::Tensor& x) { return down(torch::relu(gain(norm(up(x))))); }
  gantry::nn::Linear up{nullptr}, down{nullptr};
  FeatureNorm norm{nullptr};
  Gain gain{nullptr};
};
TORCH_MODULE(GainedMlp);

GainedMlp gained_mlp() {
  const DeferredInit deferred;
  GainedMlp model;
  set_dtype(*model, torch::kFloat64);
  return model;
}

void expect_close(const torch::Tensor& a, const torch::Tensor& b) {
  ASSERT_EQ(a.sizes(), b.sizes());
  EXPECT_LE((a - b).abs().max().item<double>(), 1e-10);
}

TEST(Sharding, ACustomModuleEqualsTheFullOne) {
  run_ranks(3, [](World&, ProcessGroupMesh& mesh) {
    auto full = gained_mlp(), model = gained_mlp();
    gantry::parallelize_module(
        *model, mesh["tp"],
        {{"up", gantry::Column{}}, {"norm", gantry::Column{}}, {"gain", gantry::Column{}}, {"down", gantry::Row{}}});
    materialize(*full, 1);
    materialize(*model, 1);
    const Range own = shard(0, 10, 3).ranges(mesh["tp"].rank()).front();
    EXPECT_EQ(model->gain->gain.size(0), own.size());
    const torch::Tensor x = torch::sin(torch::arange(24, torch::kFloat64)).view({4, 6}).requires_grad_();
    const torch::Tensor other = x.detach().clone().requires_grad_();
    const torch::Tensor y = model(x), expected = full(other);
    expect_close(y, expected);
    y.square().sum().backward();
    expected.square().sum().backward();
    expect_close(x.grad(), other.grad());
    expect_close(model->gain->gain.grad(), full->gain->gain.grad().narrow(0, own.begin, own.size()));
    expect_close(model->up->weight.grad(), full->up->weight.grad().narrow(0, own.begin, own.size()));
  });
}

// --- custom_models.md: fused projections with grouped heads

constexpr std::int64_t kQueryHeads = 6, kKeyHeads = 2, kHeadSize = 4, kFusedWidth = kQueryHeads * kHeadSize;

struct FusedLayerImpl : torch::nn::Module {
  FusedLayerImpl() {
    qkv = register_module("qkv", gantry::nn::Linear(kFusedWidth, (kQueryHeads + 2 * kKeyHeads) * kHeadSize));
    proj = register_module("proj", gantry::nn::Linear(kFusedWidth, kFusedWidth));
    gate_up = register_module("gate_up", gantry::nn::Linear(kFusedWidth, 2 * 10));
    down = register_module("down", gantry::nn::Linear(10, kFusedWidth));
    dropout = register_module("dropout", gantry::nn::Dropout(0.0));
  }
  torch::Tensor attend(const torch::Tensor& x) {
    const auto heads = gantry::nn::held_heads(qkv, kHeadSize, kQueryHeads, 0);  // in the first part of qkv
    const auto key_heads = gantry::nn::held_heads(qkv, kHeadSize, kKeyHeads, 1);
    const auto parts = qkv(x).split_with_sizes(
        {heads.count * kHeadSize, key_heads.count * kHeadSize, key_heads.count * kHeadSize}, -1);
    const torch::Tensor q = gantry::nn::split_heads(parts[0], heads.count);
    const torch::Tensor k = gantry::nn::split_heads(parts[1], key_heads.count);
    const torch::Tensor v = gantry::nn::split_heads(parts[2], key_heads.count);
    return proj(gantry::nn::merge_heads(gantry::nn::attention(q, k, v, heads, key_heads, {.causal = true}, *dropout)));
  }
  torch::Tensor forward(const torch::Tensor& x) {
    const torch::Tensor hidden = x + attend(x);
    const auto halves = gate_up(hidden).chunk(2, -1);  // this rank's part of gate, and of up
    return hidden + down(torch::silu(halves[0]) * halves[1]);
  }
  gantry::nn::Linear qkv{nullptr}, proj{nullptr}, gate_up{nullptr}, down{nullptr};
  gantry::nn::Dropout dropout{nullptr};
};
TORCH_MODULE(FusedLayer);

gantry::ShardPlan fused_plan() {
  const gantry::Part keys{.size = kKeyHeads * kHeadSize, .unit = kHeadSize, .users = kQueryHeads};
  return {{"qkv", gantry::Column{.parts = {{.size = kQueryHeads * kHeadSize, .unit = kHeadSize}, keys, keys}}},
          {"proj", gantry::Row{.unit = kHeadSize}},
          {"gate_up", gantry::Column{.segments = 2}},
          {"down", gantry::Row{}}};
}

FusedLayer fused_layer() {
  const DeferredInit deferred;
  FusedLayer layer;
  set_dtype(*layer, torch::kFloat64);
  return layer;
}

TEST(Sharding, FusedProjectionsWithGroupedHeadsEqualOneRank) {
  run_ranks(2, [](World&, ProcessGroupMesh& mesh) {
    auto full = fused_layer(), layer = fused_layer();
    gantry::parallelize_module(*layer, mesh["tp"], fused_plan());
    materialize(*full, 1);
    materialize(*layer, 1);
    const torch::Tensor x = torch::sin(torch::arange(2 * 5 * kFusedWidth, torch::kFloat64)).view({2, 5, kFusedWidth});
    expect_close(layer(x), full(x));
  });
}

// --- custom_models.md: functions of a policy that no example uses

struct Layer : torch::nn::Module {
  explicit Layer(std::int64_t width, std::int64_t heads) : heads(heads) {
    qkv = register_module("qkv", gantry::nn::Linear(width, 3 * width));
    proj = register_module("proj", gantry::nn::Linear(width, width));
  }
  torch::Tensor forward(const torch::Tensor& x) {
    const auto parts = qkv(x).chunk(3, -1);
    return x + proj(parts[0] * parts[1].sigmoid() + parts[2]);
  }
  std::int64_t heads;
  gantry::nn::Linear qkv{nullptr}, proj{nullptr};
};

struct TiedModel : torch::nn::Module {
  TiedModel(std::int64_t vocabulary, std::int64_t width, int depth, std::int64_t heads) : heads(heads), width(width) {
    wte = register_module("wte", gantry::nn::Embedding(vocabulary, width));
    h = register_module("h", torch::nn::ModuleList());
    for (int i = 0; i < depth; ++i) h->push_back(std::make_shared<Layer>(width, heads));
    lm_head = register_module("lm_head", gantry::nn::Linear(torch::nn::LinearOptions(width, vocabulary).bias(false)));
    lm_head->tie_weight(wte->weight);
  }
  std::int64_t heads, width;
  gantry::nn::Embedding wte{nullptr};
  torch::nn::ModuleList h;
  gantry::nn::Linear lm_head{nullptr};
};

class TiedPolicy final : public gantry::PolicyFor<TiedModel> {
 public:
  std::string name() const override { return "TiedPolicy"; }
  gantry::ModelSplit split(const TiedModel& model) const override {
    const std::int64_t head_size = model.width / model.heads;
    return {.shards = {{"wte", gantry::Vocab{}},
                       {"h.*.qkv", gantry::Column{.segments = 3, .unit = head_size}},
                       {"h.*.proj", gantry::Row{.unit = head_size}},
                       {"lm_head", gantry::Column{}}},
            .stages = {.first = {"wte"}, .repeated = "h", .last = {"lm_head"}},
            .split_outputs = {{"logits", "lm_head"}},
            .batch = {.between = {}}};
  }
  gantry::SharedParameters shared_parameters(const TiedModel&) const override {
    return {{"wte.weight", "lm_head.weight"}};
  }
  void validate_model(const TiedModel& model) const override {
    if (model.width % model.heads != 0)
      throw gantry::ConfigError({"TiedModel",
                                 fmt::format("width {} is no multiple of {} heads", model.width, model.heads), "",
                                 "choose another width"});
  }
  std::vector<int> distribute_layers(int layers, int stages) const override {
    auto counts = gantry::distribute_layers(layers, stages);
    if (stages > 1 && counts.back() > 1) --counts.back(), ++counts.front();  // the head weighs as much as a layer
    return counts;
  }
  gantry::TensorDict forward(TiedModel& model, const gantry::StageContext& stage,
                             gantry::TensorDict in) const override {
    torch::Tensor hidden = stage.is_first() ? model.wte(in.at("input_ids")) : in.at("hidden");
    hidden = stage.run_layers(
        hidden, [&model](int layer, const torch::Tensor& x) { return model.h->at<Layer>(layer).forward(x); });
    if (stage.is_last()) stage.add_loss("activations", 1e-4 * hidden.square().sum(), gantry::Shard{1});
    if (!stage.is_last()) return {{"hidden", hidden}};
    return {{"logits", model.lm_head(hidden)}};
  }
};

double tied_loss(const std::string& parallel) {
  double loss = 0;
  const auto config = Config::parse("model: {policy: tied}\nparallel: " + parallel +
                                    "\nschedule: {microbatches: 2, recompute: full}\ncomm: {timeout_seconds: 30}\n");
  EXPECT_EQ(launch(config,
                   [&](World& world) {
                     Booster booster(std::make_unique<HybridParallelPlugin>(world, config));
                     auto model = [] {
                       const DeferredInit deferred;
                       auto made = std::make_shared<TiedModel>(11, 8, 4, 2);
                       set_dtype(*made, torch::kFloat64);
                       return made;
                     }();
                     auto optimizer = std::make_shared<torch::optim::SGD>(model->parameters(), 0.1);
                     auto boosted = booster.boost(model, optimizer, cross_entropy());
                     const torch::Tensor ids = torch::arange(12).view({4, 3}) % 11;
                     for (int step = 0; step < 3; ++step) {
                       const auto result =
                           booster.execute_pipeline(make_batch({{"input_ids", ids}, {"labels", (ids + 1) % 11}}),
                                                    boosted, {.broadcast_loss = true});
                       boosted.optimizer->step();
                       boosted.optimizer->zero_grad();
                       if (world.is_main()) loss = *result.loss;
                     }
                   }),
            0);
  return loss;
}

TEST(Policies, TiesSegmentsAndAddedLossesEqualOneRank) {
  gantry::policies().add<TiedPolicy>("tied");
  const double one = tied_loss("{}");
  EXPECT_GT(one, 0);
  EXPECT_NEAR(tied_loss("{tensor: 2, pipeline: 2}"), one, 1e-10);
  EXPECT_NEAR(tied_loss("{tensor: 2, pipeline: 2, sequence_parallel: true}"), one, 1e-10);
}

// --- checkpoints.md and data.md: calls that need files, which are only compiled

[[maybe_unused]] void checkpoint_calls(gantry::HybridParallelPlugin* plugin, gantry::Boosted& boosted,
                                       std::int64_t step, const nlohmann::json& keys, const gantry::Config& config) {
  gantry::CheckpointWriter writer("runs/mine", plugin->mesh(), {.async = true});
  writer.save({.directory = "runs/mine",
               .step = step,
               .model_config = keys,
               .policy = "gpt2",
               .keep = 2,
               .progress = {{"data", {{"samples", boosted.loader->position()}}}},
               .user = {{"epoch", 3}}},
              plugin->state(boosted));
  const std::string folder = gantry::require_checkpoint("runs/mine");
  auto info = gantry::read_checkpoint_info(folder);
  gantry::require_same_model(info, config);
  gantry::require_same_optimizer(info, config);
  gantry::load_checkpoint(folder, plugin->state(boosted), plugin->mesh());
  boosted.loader->seek(info.progress["data"]["samples"]);
  auto epoch = info.user["epoch"];
  static_cast<void>(epoch);
}

[[maybe_unused]] void data_calls(gantry::Booster& booster, const std::shared_ptr<torch::nn::Module>& model,
                                 const std::shared_ptr<torch::optim::Optimizer>& optimizer) {
  auto data = gantry::open_megatron_dataset("corpus/train", 1024, 50257);
  auto loader = std::make_shared<gantry::DataLoader>(std::move(data),
                                                     gantry::DataLoaderOptions{.global_batch = 32, .prefetch = 2});
  auto boosted = booster.boost(model, optimizer, gantry::cross_entropy(), loader);
  for (auto& batch : *boosted.loader) {
    booster.execute_pipeline(batch, boosted);  // the batch is this replica's part
    boosted.optimizer->step();
    boosted.optimizer->zero_grad();
  }
}

[[maybe_unused]] void samples_of_a_file() {
  auto samples = std::make_shared<gantry::TensorDataset>(gantry::read_safetensors("images.safetensors"));
  auto images = std::make_shared<gantry::DataLoader>(samples, gantry::DataLoaderOptions{.global_batch = 64});
}

TEST(Snippets, TextsOfDifferentLengths) {
  auto texts = std::make_shared<gantry::FunctionDataset>(1000, [](std::int64_t index) -> gantry::TensorDict {
    const torch::Tensor ids = torch::arange(4 + index % 9);
    return {{"input_ids", ids}, {"labels", ids}, {"attention_mask", torch::ones_like(ids)}};
  });
  auto collate = gantry::pad_to_longest({{"input_ids", 0}, {"labels", gantry::kNotCounted}, {"attention_mask", 0}});
  auto batches =
      std::make_shared<gantry::DataLoader>(texts, gantry::DataLoaderOptions{.global_batch = 32, .collate = collate});
  EXPECT_EQ(batches->next().tensors.at("labels").size(0), 32);
}

template <class TorchDataset>
[[maybe_unused]] void data_set_of_torch(TorchDataset digits) {
  auto dataset = gantry::from_torch(digits, "pixel_values", "labels");
  const gantry::StreamSource source = gantry::from_torch_loader([&](int) {
    return torch::data::make_data_loader<torch::data::samplers::SequentialSampler>(digits, /*batch_size=*/64);
  });
}

[[maybe_unused]] void tokenizer_calls() {
  const auto tokenizer = gantry::load_tokenizer("models/gpt2");
  gantry::TokenIds ids = tokenizer->encode("Hello, world");
  std::string text = tokenizer->decode(ids);  // the exact bytes
}

// --- custom_models.md

[[maybe_unused]] void fill_from_file(gantry::Boosted& boosted, const gantry::ProcessGroupMesh& mesh) {
  const gantry::SafetensorsFile file("weights.safetensors");
  const torch::NoGradGuard no_grad;
  for (auto& [placement, tensor] : boosted.model->stage_module().parameters) {  // this rank's parameters
    const auto& along = placement.along("tp");
    tensor.copy_(along.sharded() ? file.read_slice(placement.name, along.dim, along.ranges(mesh.coordinate("tp")))
                                 : file.read(placement.name));
  }
}

// --- training_programs.md

[[maybe_unused]] void options_in_code(World& world) {
  gantry::ParallelOptions options;
  options.zero = {.stage = 1};
  options.schedule = {.name = "interleaved_1f1b", .microbatches = 8, .chunks = 2};
  options.recompute.how = gantry::Recomputation::kFull;
  options.update.clip_grad_norm = 1.0;
  gantry::Booster booster(std::make_unique<gantry::HybridParallelPlugin>(world, options));
}

// --- custom_models.md

[[maybe_unused]] void own_loop(std::shared_ptr<models::DecoderImpl> model, const torch::Tensor& ids) {
  auto optimizer = std::make_shared<torch::optim::AdamW>(model->parameters(), 3e-4);
  auto [booster, boosted] = gantry::initialize(*model, "gantry.yaml", {.optimizer = optimizer});
  for (int step = 0; step < 100; ++step) {
    const torch::Tensor inputs = ids.slice(1, 0, -1), labels = ids.slice(1, 1);
    torch::Tensor logits = model->forward({{"input_ids", inputs}}).at("logits");  // full on every rank
    torch::cross_entropy_loss(logits.flatten(0, 1), labels.flatten()).backward();
    booster.sync_gradients(boosted);  // the mean over replicas, which have equal numbers of labels here
    boosted.optimizer->step();
    boosted.optimizer->zero_grad();
  }
}

// --- fine_tuning.md: several adapters

[[maybe_unused]] void use_adapters(const gantry::Config& config, gantry::Booster& booster, gantry::Boosted& boosted) {
  gantry::NamedAdapters adapters(config, boosted, booster.mesh());
  adapters.load("first", "adapted/adapter");  // collective; each rank reads its part
  adapters.load("second", "adapted/other");
  adapters.activate("second");  // from now on, outputs are those of the base with this adapter
}

// --- generation.md

[[maybe_unused]] void generation_calls(gantry::Boosted& boosted, gantry::Plugin& plugin, torch::nn::Module& model,
                                       const std::vector<gantry::TokenIds>& prompts) {
  auto options = gantry::generation_defaults("models/gpt2");
  options.num_beams = 3;
  // A boosted model, in the layout of its plugin; booster.generate(boosted, ...) is the same:
  auto sequences = gantry::generate(boosted, plugin, {{464, 3290}, {15496}}, options);
  // A plain model on one rank:
  auto same = gantry::generate(model, {{464, 3290}, {15496}}, options);
  gantry::GenerationOptions with_images;
  with_images.images = gantry::read_safetensors("images.safetensors");  // pixel_values, image_sizes or image_grid_thw
  auto described = gantry::generate(boosted, plugin, prompts, with_images);
  const gantry::ChatPrompts chats("models/chat", "", "");  // the template of the directory
  const auto chat = nlohmann::ordered_json::parse(R"({"messages": [{"role": "user", "content": "Why?"}]})");
  auto answers = gantry::generate(boosted, plugin, {chats.encode(chat, "the chat")});
}

// --- data.md

[[maybe_unused]] void show_calls(const gantry::Config& config) {
  const gantry::ShownSample sample = gantry::show_line(config, "chats.jsonl", 2);
  for (std::size_t i = 0; i < sample.tokens.size(); ++i)
    std::printf("%s: %s\n", sample.texts[i].c_str(), sample.tokens[i].why.c_str());
}

// --- coming_from.md

int generate_and_save() {
  auto config = gantry::resolve_model(gantry::Config::parse("model: {path: models/gpt2}\nparallel: {tensor: 2}\n"));
  return gantry::launch(config, [&](gantry::World& world) {
    auto model = gantry::build_model(config);  // ordinary, and not yet in memory
    auto [booster, boosted] = gantry::initialize(*model, "oslo-config.json");
    gantry::load_weights(config, boosted, booster.mesh());  // from models/gpt2; each rank loads its part
    auto sequences = booster.generate(boosted, {{40, 7, 101}}, {.num_beams = 3});
    if (world.is_main())
      for (auto token : sequences.front().tokens) std::printf("%d ", static_cast<int>(token));
    gantry::save_parallelized("saved", boosted, booster.plugin(), config);
    gantry::from_parallelized("saved", boosted, booster.plugin());
  });
}

TEST(ComingFromOslo, WeightsGenerateAndAreSavedByRank) {
  const ScratchFolder scratch;
  const auto before = std::filesystem::current_path();
  std::filesystem::current_path(scratch.path());
  std::filesystem::create_directory("models");
  std::filesystem::create_directory_symlink(GANTRY_SOURCE_DIR "/tests/golden/gpt2", "models/gpt2");
  scratch.write("oslo-config.json", R"({"model_parallelism": {"tensor_parallel_size": 2}})");
  ::testing::internal::CaptureStdout();
  EXPECT_EQ(generate_and_save(), 0);
  std::istringstream printed(::testing::internal::GetCapturedStdout());
  const std::vector<std::int64_t> tokens{std::istream_iterator<std::int64_t>(printed), {}};
  std::filesystem::current_path(before);
  EXPECT_TRUE(std::filesystem::exists(scratch / "saved/model_tp_1_pp_0.safetensors"));
  // One device generates the same tokens.
  const Config config = resolve_model(Config::parse("model: {path: " GANTRY_SOURCE_DIR "/tests/golden/gpt2}\n"));
  std::vector<std::int64_t> expected;
  run_ranks(1, [&](World& world, ProcessGroupMesh& mesh) {
    auto owned = std::make_unique<HybridParallelPlugin>(world, config);
    HybridParallelPlugin& plugin = *owned;
    Booster booster(std::move(owned));
    auto boosted = booster.boost(build_model(config));
    load_weights(config, boosted, mesh);
    expected = generate(boosted, plugin, {{40, 7, 101}}, {.num_beams = 3}).front().tokens;
  });
  EXPECT_EQ(tokens, expected);
  EXPECT_FALSE(expected.empty());
}

// --- models.md: a custom model family

gantry::models::DecoderSpec read_capped(gantry::models::ConfigReader& reader) {
  gantry::models::DecoderSpec spec = gantry::models::read_common(reader, {.hidden = 512, .layers = 8, .heads = 8});
  spec.logit_soft_cap = reader.number("logit_cap", 30, 0, 1e6);
  return spec;
}

void add_capped() {
  gantry::add_decoder_family({.model_type = "capped", .architecture = "CappedForCausalLM", .read = read_capped});
}

TEST(Models, AFamilyOfOnesOwn) {
  add_capped();
  const auto model = gantry::models::families().at("capped").build({{"hidden_size", 16},
                                                                    {"intermediate_size", 20},
                                                                    {"num_hidden_layers", 1},
                                                                    {"num_attention_heads", 2},
                                                                    {"vocab_size", 11},
                                                                    {"logit_cap", 0.5}});
  EXPECT_EQ(gantry::policy_name_for(*model), "capped");
  const auto logits = dynamic_cast<gantry::models::DecoderImpl&>(*model)
                          .forward({{"input_ids", torch::zeros({1, 3}, torch::kInt64)}})
                          .at("logits");
  EXPECT_LE(logits.abs().max().item<double>(), 0.5);
}

}  // namespace
}  // namespace gantry::testing
