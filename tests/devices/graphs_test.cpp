// train.device_graphs: replays of captured CUDA graphs are bitwise identical to normal execution. Operations
// that cannot be captured are rejected with an error that names them.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "../checkpoint/small_run.h"
#include "device_ranks.h"
#include "gantry/tensors/device_graph.h"
#include "gantry/tensors/libtorch.h"
#include "program.h"

namespace gantry::testing {
namespace {

using ::testing::HasSubstr;

constexpr std::int64_t kTokens = 6, kMoreTokens = 8, kVocabulary = 29;

const std::string kGraphGpt2 =
    R"({"n_embd": 16, "n_layer": 4, "n_head": 4, "vocab_size": 29, "n_positions": 8, "resid_pdrop": 0, "embd_pdrop": 0,
        "attn_pdrop": 0})";
const std::string kGraphBert =
    R"({"hidden_size": 16, "num_hidden_layers": 4, "num_attention_heads": 4, "intermediate_size": 20, "vocab_size": 29,
        "max_position_embeddings": 8, "architectures": ["BertForMaskedLM"], "hidden_dropout_prob": 0, "attention_probs_dropout_prob": 0})";

struct GraphCase {
  std::string policy = "llama";
  SmallRunOptions run = {};
  int microbatches = 2;
  double clip = 0.5;
  std::string recompute = "none";
  bool has_mask = false;
  bool mean = false;  // a criterion that ignores no labels and returns a mean
  int lora = 0;       // the rank of adapters
  bool has_events = false;
  std::int64_t logit_limit = 0;  // bytes; 0: the default
};

Config graph_config(const GraphCase& one, bool graphs) {
  Config config = small_config(one.run);
  config.model.policy = one.policy;
  if (one.policy == "gpt2") config.model.config_json = kGraphGpt2;
  if (one.policy == "bert") config.model.config_json = kGraphBert;
  config.schedule.microbatches = one.microbatches;
  config.schedule.recompute = one.recompute;
  config.optimizer.clip_grad_norm = one.clip;
  config.train.device_graphs = graphs;
  config.comm.recorder = 0;
  if (one.lora > 0) {
    config.lora.r = one.lora;
    config.lora.target_modules = {"all-linear"};
  }
  return config;
}

struct GraphBatch {
  std::int64_t step = 0;
  std::int64_t samples = 6;  // total of all replicas
  std::int64_t tokens = kTokens;
};

// Returns the batch of one replica. Some labels are ignored, different ones in each step, unless the
// criterion returns a mean.
Batch graph_batch(const ProcessGroupMesh& mesh, const GraphBatch& what, const GraphCase& one) {
  const auto& [step, samples, tokens] = what;
  const torch::Tensor ids = (torch::arange(samples * tokens).pow(2) * (step + 3) + step).remainder(kVocabulary);
  torch::Tensor labels = (ids * 5 + 1).remainder(kVocabulary);
  if (!one.mean) labels = labels.masked_fill((ids + step).remainder(5) == 0, -100);
  TensorDict tensors{{"input_ids", ids.view({samples, tokens})}, {"labels", labels.view({samples, tokens})}};
  if (one.has_mask) {  // masks the last two tokens in every other step
    torch::Tensor mask = torch::ones({samples, tokens}, torch::kInt64);
    if (step % 2 == 1) mask.narrow(1, tokens - 2, 2).zero_();
    tensors.set("attention_mask", mask);
  }
  const std::int64_t replicas = mesh.size("dp"), rank = mesh.coordinate("dp");
  const std::int64_t share = samples / replicas, more = samples % replicas;
  const std::int64_t begin = rank * share + std::min(rank, more);
  Batch batch = slice(make_batch(std::move(tensors)), begin, begin + share + (rank < more ? 1 : 0));
  batch.first_sample = begin;
  batch.global_samples = samples;
  return batch;
}

// Keeps a table between calls, as modules do, and replaces it if the sequence length changes.
Criterion mean_of_all() {
  const auto table = std::make_shared<torch::Tensor>();
  return Criterion([table](const TensorDict& outputs, const TensorDict& batch) -> Loss {
    const torch::Tensor logits = outputs.at("logits").to(torch::kFloat32);
    const std::int64_t tokens = logits.size(1);
    if (!table->defined() || table->size(0) != tokens)
      *table =
          torch::arange(tokens * kVocabulary, logits.options().requires_grad(false)).view({tokens, kVocabulary}) / 99;
    const torch::Tensor of_labels = batch.at("labels").clamp_min(0).unsqueeze(-1);
    return Loss(-(logits + *table).log_softmax(-1).gather(-1, of_labels).mean());
  });
}

struct Trained {
  std::vector<double> losses;
  TensorDict weights;
  std::int64_t kernels = 0, replays = 0;  // rank 0's device in the last step, without the optimizer
};

class GraphRun {
 public:
  GraphRun(World& world, const GraphCase& one, const Config& config)
      : world_(world),
        one_(one),
        plugin_(new HybridParallelPlugin(world, config)),
        booster_(std::unique_ptr<Plugin>(plugin_)) {
    auto model = build_model(config);
    Criterion criterion = one.mean ? mean_of_all() : build_criterion(config);
    if (one.logit_limit > 0) criterion.set_logit_limit(one.logit_limit);
    boosted_ = booster_.boost(model, build_optimizer(config, *model), std::move(criterion));
    boosted_.model->train();
  }

  // Every step has a different learning rate. Some steps are followed by an evaluation with shorter or longer
  // sequences.
  void step(int number) {
    boosted_.optimizer->set_lr(1e-2 / (1 + number));
    if (one_.has_events) event(number);
    const DeviceCounts before = device_counts(world_.rank());
    execute({.step = number, .samples = number == 5 ? 5 : 6});
    const DeviceCounts after = device_counts(world_.rank());
    trained_.kernels = after.kernels - before.kernels;
    trained_.replays = after.replays - before.replays;
    boosted_.optimizer->step();
    boosted_.optimizer->zero_grad();
    if (number % 3 == 1) execute({100 + number, 4, number == 1 ? kTokens - 2 : kMoreTokens}, {.forward_only = true});
  }

  Trained end() {
    boosted_.optimizer->wait();
    const auto& module = boosted_.model->stage_module();
    const TensorDict all = gather_tensors(module, plugin_->stages(), plugin_->mesh(),
                                          [&](std::size_t i) { return module.parameters[i].tensor; });
    if (world_.is_main())
      for (const auto& [name, tensor] : all) trained_.weights.set(name, tensor.detach().cpu());
    return trained_;
  }

 private:
  // Events before a step: parameters are frozen or trained again, a step is aborted, or another call adds to
  // the step's gradients.
  void event(int number) {
    if (number == 4 || number == 8)
      for (const auto& held : boosted_.model->stage_module().parameters)
        if (held.placement.name.find(".1.") != std::string::npos) {
          torch::Tensor parameter = held.tensor;
          parameter.requires_grad_(number == 8);
        }
    if (number == 6 || number == 12) execute({200 + number}, {.stops = [asked = 0]() mutable { return ++asked == 3; }});
    if (number == 3 || number == 11) {
      const auto guard = booster_.no_sync(boosted_);
      execute({300 + number});
    }
  }

  void execute(const GraphBatch& batch, ExecuteOptions options = {}) {
    options.broadcast_loss = true;
    const StepResult made = booster_.execute_pipeline(graph_batch(plugin_->mesh(), batch, one_), boosted_, options);
    EXPECT_EQ(made.aborted, static_cast<bool>(options.stops));
    trained_.losses.push_back(made.loss.value_or(0));
  }

  World& world_;
  const GraphCase& one_;
  HybridParallelPlugin* plugin_;  // owned by booster_
  Booster booster_;
  Boosted boosted_;
  Trained trained_;
};

Trained trained(const GraphCase& one, bool graphs) {
  const Config config = graph_config(one, graphs);
  Trained result;
  const int code = launch_on_devices(config, [&](World& world) {
    GraphRun run(world, one, config);
    for (int step = 0; step < (one.has_events ? 14 : 8); ++step) run.step(step);
    const Trained end = run.end();
    if (world.is_main()) result = end;
  });
  EXPECT_EQ(code, 0) << "a rank failed; its error is above";
  return result;
}

void expect_same_bits(const GraphCase& one, const std::string& what) {
  SCOPED_TRACE(what);
  const Trained plain = trained(one, false), replayed = trained(one, true);
  EXPECT_EQ(plain.losses, replayed.losses);
  EXPECT_EQ(plain.replays, 0);
  EXPECT_GE(replayed.replays, 2 * one.microbatches);
  ASSERT_EQ(plain.weights.size(), replayed.weights.size());
  for (const auto& [name, tensor] : plain.weights) EXPECT_TRUE(torch::equal(tensor, replayed.weights.at(name))) << name;
}

TEST(DeviceGraphs, GiveTheBitsOfEachModel) {
  expect_same_bits({.policy = "gpt2", .run = {.precision = "float32"}}, "gpt2");
  expect_same_bits({.policy = "llama", .run = {.precision = "bfloat16"}}, "llama");
  expect_same_bits({.policy = "bert", .run = {.precision = "float32"}, .has_mask = true}, "bert");
}

TEST(DeviceGraphs, GiveTheBitsOfEachSchedule) {
  expect_same_bits({.run = {.layout = {.pipeline = 2}}, .microbatches = 5}, "1f1b");
  expect_same_bits({.policy = "gpt2", .run = {.layout = {.pipeline = 2}, .schedule = "interleaved_1f1b", .chunks = 2}},
                   "interleaved");
  expect_same_bits({.policy = "gpt2", .run = {.layout = {.pipeline = 2}, .schedule = "zb_h1"}, .microbatches = 3},
                   "zero bubble");
  expect_same_bits({.run = {.layout = {.pipeline = 2}, .schedule = "zb_v", .chunks = 2}, .microbatches = 3}, "zb_v");
}

TEST(DeviceGraphs, GiveTheBitsOfReplicas) {
  expect_same_bits({.run = {.layout = {.data = 2}, .zero = 1, .precision = "bfloat16"}, .microbatches = 1}, "zero 1");
  expect_same_bits({.policy = "gpt2", .run = {.layout = {.pipeline = 2, .data = 2}, .precision = "float16"}},
                   "float16");
}

TEST(DeviceGraphs, GiveTheBitsOfWhatElseAStageDoes) {
  expect_same_bits({.run = {.precision = "float32"}, .recompute = "full"}, "recomputed");
  expect_same_bits({.policy = "gpt2", .run = {.precision = "float32"}, .mean = true}, "a mean");
  expect_same_bits({.run = {.precision = "float32"}, .lora = 2}, "adapters");
}

TEST(DeviceGraphs, StoreFullLogitsOfAnySize) {
  GraphCase one{.run = {.precision = "float32"}};
  const Trained full = trained(one, true);
  one.logit_limit = 160;
  const Trained limited = trained(one, true);
  EXPECT_GE(limited.replays, 2 * one.microbatches);
  EXPECT_EQ(full.losses, limited.losses);
}

// Parameters are frozen, calls add to the gradients and steps are aborted, between captures and replays.
TEST(DeviceGraphs, GiveTheBitsOfARunWithEvents) {
  expect_same_bits({.run = {.precision = "float32"}, .has_events = true}, "one rank");
  expect_same_bits({.policy = "gpt2",
                    .run = {.layout = {.pipeline = 2, .data = 2}, .zero = 1, .schedule = "zb_h1"},
                    .has_events = true},
                   "replicas");
}

// Steps after a checkpoint is loaded, in the run that saved it and then continued, and in a new run.
TEST(DeviceGraphs, GoOnFromACheckpoint) {
  const ScratchFolder scratch;
  std::vector<TensorDict> ends;
  for (const bool graphs : {false, true}) {
    Config config = graph_config({.run = {.layout = {.pipeline = 2}}}, graphs);
    std::string saved;
    const auto go_on = [&](World& world, SmallRun& run) {
      run.load(saved);
      for (int step = 4; step < 8; ++step) run.step(step);
      const TensorDict weights = run.weights();
      if (!world.is_main()) return;
      for (auto& [name, tensor] : ends.emplace_back(weights)) tensor = tensor.cpu();
    };
    EXPECT_EQ(launch_on_devices(config,
                                [&](World& world) {
                                  SmallRun run(world, config);
                                  for (int step = 0; step < 4; ++step) run.step(step);
                                  const std::string folder = run.save(scratch / (graphs ? "graphs" : "plain"), 4);
                                  if (world.is_main()) saved = folder;
                                  run.mesh().world_group().barrier().wait();
                                  for (int step = 4; step < 6; ++step) run.step(step);
                                  go_on(world, run);
                                }),
              0);
    EXPECT_EQ(launch_on_devices(config,
                                [&](World& world) {
                                  SmallRun run(world, config);
                                  go_on(world, run);
                                }),
              0);
  }
  ASSERT_EQ(ends.size(), 4U);
  for (const TensorDict& end : ends)
    for (const auto& [name, tensor] : ends.front()) EXPECT_TRUE(torch::equal(tensor, end.at(name))) << name;
}

TEST(DeviceGraphs, LateKernelsChangeNothing) {
  set_kernel_timing(KernelTiming::kLate, 100);
  expect_same_bits({.run = {.layout = {.pipeline = 2}, .schedule = "zb_h1"}, .microbatches = 3}, "late");
  set_kernel_timing(KernelTiming::kAtOnce);
}

TEST(DeviceGraphs, TheHostGivesAFewCommandsInPlaceOfKernels) {
  const GraphCase one{.policy = "gpt2", .run = {.precision = "float32"}};
  EXPECT_LT(5 * trained(one, true).kernels, trained(one, false).kernels);
}

// Trains on one rank for some steps. Returns the error that the run ends with.
std::string refusal_of(const Config& config, const Criterion& criterion = {}) {
  ::testing::internal::CaptureStderr();
  EXPECT_NE(launch_on_devices(config,
                              [&](World& world) {
                                auto* plugin = new HybridParallelPlugin(world, config);
                                Booster booster{std::unique_ptr<Plugin>(plugin)};
                                auto model = build_model(config);
                                Boosted boosted = booster.boost(model, build_optimizer(config, *model),
                                                                criterion ? criterion : build_criterion(config));
                                boosted.model->train();
                                for (int step = 0; step < 4; ++step)
                                  booster.execute_pipeline(graph_batch(plugin->mesh(), {step, 4}, {}), boosted, {});
                              }),
            0);
  return ::testing::internal::GetCapturedStderr();
}

TEST(DeviceGraphs, WhatCannotBeRecordedIsRefused) {
  const GraphCase one{.policy = "gpt2", .run = {.precision = "float32"}};
  Config config = graph_config(one, true);
  config.model.config_json.replace(config.model.config_json.find("resid_pdrop\": 0"), 15, "resid_pdrop\": 0.5");
  EXPECT_THAT(refusal_of(config),
              HasSubstr("has dropout 0.5, but a captured CUDA graph would repeat the same mask in every step"));
  config = graph_config(one, true);
  config.parallel.tensor = 2;
  EXPECT_THAT(refusal_of(config), HasSubstr("parallel.tensor: the value 2 needs communication within a stage"));
  config = graph_config({.policy = "mixtral", .run = {.experts = 4}}, true);
  EXPECT_THAT(refusal_of(config), HasSubstr("the host reads the number of tokens per expert"));
  config = graph_config(one, true);
  EXPECT_THAT(
      refusal_of(config, mean_over_labels([](const TensorDict& outputs, const TensorDict&) -> Loss {
                   return Loss(outputs.at("logits").to(torch::kFloat32).mean());
                 })),
      HasSubstr("the forward of stage 0 cannot be captured: \"operation not permitted when stream is capturing"));
  EXPECT_THAT(refusal_of(config, Criterion([](const TensorDict& outputs, const TensorDict&) -> Loss {
                           return Loss(torch::dropout(outputs.at("logits"), 0.5, /*train=*/true).sum(),
                                       torch::tensor(1));
                         })),
              HasSubstr("the forward of stage 0 uses random numbers, which a captured CUDA graph would repeat"));
}

class RecordedStream : public ::testing::TestWithParam<KernelTiming> {
 protected:
  void SetUp() override { set_kernel_timing(GetParam(), 200); }
  void TearDown() override { set_kernel_timing(KernelTiming::kAtOnce); }

  const torch::Device device_ = pretend_device(0);
  const torch::TensorOptions on_device_ = torch::TensorOptions().device(device_);
  const c10::StreamGuard on_stream_{c10::impl::VirtualGuardImpl(kPretendType).getStreamFromGlobalPool(device_)};
};

TEST_P(RecordedStream, RunsWhenItIsReplayedAsOftenAsItIs) {
  const torch::Tensor given = torch::ones({3}, on_device_), sum = torch::zeros({3}, on_device_);
  torch::Tensor made;
  const auto graph = make_device_graph(kPretendType);
  graph->begin({});
  made = given * 2;
  sum.add_(made);
  graph->end();
  EXPECT_EQ(sum.sum().item<float>(), 0);
  graph->replay();
  given.fill_(5);
  graph->replay();
  EXPECT_EQ(made.sum().item<float>(), 30);
  EXPECT_EQ(sum.sum().item<float>(), 36);
}

// A replay overwrites the memory that was freed within its capture. Another capture that got this memory from
// the pool then has NaN in it.
TEST_P(RecordedStream, MemoryThatTwoRecordingsShareByMistakeHasNoNumbers) {
  const torch::Tensor given = torch::ones({3}, on_device_);
  torch::Tensor kept;
  const auto first = make_device_graph(kPretendType), second = make_device_graph(kPretendType);
  first->begin({});
  (given * 2).add_(1);
  first->end();
  second->begin(first->pool());
  kept = given * 3;
  second->end();
  second->replay();
  EXPECT_EQ(kept.sum().item<float>(), 9);
  first->replay();
  EXPECT_TRUE(kept.sum().isnan().item<bool>());
}

TEST_P(RecordedStream, RefusesWhatCudaRefuses) {
  const torch::Tensor given = torch::ones({3}, on_device_);
  const auto graph = make_device_graph(kPretendType);
  {
    const c10::impl::VirtualGuardImpl guard(kPretendType);
    const c10::StreamGuard on_default(guard.getDefaultStream(device_));
    EXPECT_THROW(graph->begin({}), c10::Error);
  }
  c10::Event before(kPretendType);
  before.record(on_stream_.current_stream());
  graph->begin({});
  EXPECT_THROW(given.sum().item<float>(), c10::Error);
  EXPECT_THROW(given.nonzero(), c10::Error);
  EXPECT_THROW(given.cpu(), c10::Error);
  EXPECT_THROW(given.copy_(torch::ones({3})), c10::Error);
  EXPECT_THROW(on_stream_.current_stream().synchronize(), c10::Error);
  EXPECT_THROW(before.block(on_stream_.current_stream()), c10::Error);
  c10::Event within(kPretendType);
  within.record(on_stream_.current_stream());
  const c10::impl::VirtualGuardImpl guard(kPretendType);
  EXPECT_THROW(within.block(guard.getDefaultStream(device_)), c10::Error);
  graph->end();
}

INSTANTIATE_TEST_SUITE_P(InBothTimings, RecordedStream, ::testing::Values(KernelTiming::kAtOnce, KernelTiming::kLate));

TEST(DeviceGraphs, RanksOnTheCpuAreRefused) {
  const Config config = graph_config({.policy = "gpt2"}, true);
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(launch(config, [&](World& world) { SmallRun(world, config).step(0); }), ConfigError::kExitCode);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              HasSubstr("train.device_graphs: graphs are not supported on cpu, where the ranks compute"));
}

}  // namespace
}  // namespace gantry::testing
