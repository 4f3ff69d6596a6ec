// Several adapters of one base: with each of them active, outputs are those of a model with only this adapter.
#include "gantry/booster/named_adapters.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <mutex>
#include <nlohmann/json.hpp>

#include "gantry/checkpoint/adapter.h"
#include "gantry/checkpoint/checkpoint.h"
#include "gantry/tensors/libtorch.h"
#include "lora_rig.h"
#include "program.h"
#include "thrown_by.h"

namespace gantry::testing {
namespace {

using ::testing::HasSubstr;

const std::string kNamedCases = GANTRY_SOURCE_DIR "/tests/golden/lora/";

Config base_config(const std::string& base, const LoraLayout& how) {
  Config config = layout_config(how.layout);
  config.model.path = kNamedCases + base;
  train_in_layout(config, how);
  return config;
}

// Writes PEFT's files of an adapter after two steps.
void write_adapter(const std::string& base, const LoraConfig& lora, const ScratchFolder& scratch,
                   const std::string& name) {
  Config config = base_config(base, {});
  config.lora = lora;
  config = resolve_model(std::move(config));
  run_from_base(config, 2, {}, [&](Rig& rig) {
    save_checkpoint({.directory = scratch / name + "-run",
                     .step = 2,
                     .config_text = config.to_yaml(),
                     .model_config = nlohmann::json::parse(config.model.config_json),
                     .policy = config.model.policy},
                    rig.plugin->state(rig.boosted), rig.plugin->mesh());
  });
  export_adapter(scratch / name + "-run/step-000002", scratch / name);
}

// The logits of the first replica's samples. Undefined on the other ranks.
torch::Tensor logits_of(Rig& rig) {
  const auto& mesh = rig.plugin->mesh();
  const Batch mine = replica_part(make_batch(lora_tokens(0)), mesh.size(axis::kData), mesh.coordinate(axis::kData));
  const auto result = rig.booster.execute_pipeline(
      mine, rig.boosted, {.return_loss = false, .return_outputs = true, .forward_only = true});
  const bool is_first = mesh.batch_group().rank() == 0 && mesh.coordinate(axis::kTensor) == 0;
  return is_first && rig.plugin->stages().holds_last() ? result.outputs.at("logits").cpu() : torch::Tensor();
}

using Logits = std::map<std::string, torch::Tensor>;

// Runs `body` on all ranks, which collects the logits of the rank that has them.
Logits collect(const Config& config, bool optimize,
               const std::function<void(Rig&, const std::function<void(const std::string&)>&)>& body) {
  std::mutex lock;
  Logits all;  // guarded by the lock
  const int code = start_ranks()(config, [&](World& world) {
    Rig rig(world, config, cross_entropy(), optimize);
    load_weights(config, rig.boosted, rig.plugin->mesh());
    body(rig, [&](const std::string& name) {
      const torch::Tensor logits = logits_of(rig);
      const std::lock_guard guard(lock);
      if (logits.defined()) all[name] = logits;
    });
  });
  EXPECT_EQ(code, 0);
  return all;
}

// The logits of the base ("") and of one model for each adapter, on one rank.
Logits alone(const std::string& base, const std::vector<std::string>& names, const ScratchFolder& scratch) {
  Logits all;
  for (const std::string& name : names) {
    Config config = base_config(base, {});
    if (!name.empty()) config.lora.path = scratch / name;
    all.merge(collect(resolve_model(std::move(config)), false, [&](Rig&, const auto& add) { add(name); }));
  }
  return all;
}

// Activates all adapters of one model in turn.
Logits together(const std::string& base, const std::vector<std::string>& names, const ScratchFolder& scratch,
                const LoraLayout& how, bool optimize) {
  const Config config = resolve_model(base_config(base, how));
  return collect(config, optimize, [&](Rig& rig, const auto& add) {
    NamedAdapters adapters(config, rig.boosted, rig.plugin->mesh());
    for (const std::string& name : names) adapters.load(name, scratch / name);
    EXPECT_EQ(adapters.active(), "");
    add("");
    for (const std::string& name : names) {
      adapters.activate(name);
      EXPECT_EQ(adapters.active(), name);
      add(name);
    }
    adapters.activate(names.front());
    add(names.front() + " again");
    adapters.deactivate();
    add(" again");
  });
}

void expect_same_logits(const Logits& expected, const Logits& found, const std::string& label) {
  SCOPED_TRACE(label);
  EXPECT_EQ(found.size(), expected.size() + 2);
  for (const auto& [name, logits] : found) {
    const torch::Tensor& right = expected.at(name.ends_with(" again") ? name.substr(0, name.size() - 6) : name);
    EXPECT_LE((logits - right.narrow(0, 0, logits.size(0))).abs().max().item<double>(), 1e-10) << name;
  }
}

void expect_layouts_of_names(const std::string& base, const std::map<std::string, LoraConfig>& adapters,
                             const std::vector<LoraLayout>& layouts, bool optimize) {
  const ScratchFolder scratch;
  std::vector<std::string> names;
  for (const auto& [name, lora] : adapters) {
    write_adapter(base, lora, scratch, name);
    names.push_back(name);
  }
  std::vector<std::string> all = names;
  all.push_back("");
  const Logits expected = alone(base, all, scratch);
  for (auto one = expected.begin(); one != expected.end(); ++one)
    for (auto other = expected.begin(); other != one; ++other)
      EXPECT_GT((one->second - other->second).abs().max().item<double>(), 1e-6) << one->first << " " << other->first;
  for (const auto& how : layouts) {
    expect_same_logits(expected, together(base, names, scratch, how, optimize), describe(how));
    if (::testing::Test::HasFailure()) return;
  }
}

LoraConfig adapter_of(int rank, double alpha, std::vector<std::string> targets) {
  LoraConfig lora;
  lora.r = rank;
  lora.alpha = alpha;
  lora.target_modules = std::move(targets);
  return lora;
}

TEST(NamedAdapters, OfOtherRanksLayersAndKinds) {
  LoraConfig dora = adapter_of(4, 3, {"all-linear"});
  dora.use_dora = true;
  const std::map<std::string, LoraConfig> adapters = {{"narrow", adapter_of(2, 5, {"q_proj", "down_proj"})},
                                                      {"dora", dora},
                                                      {"table", adapter_of(3, 8, {"embed_tokens"})}};
  expect_layouts_of_names("qv", adapters,
                          {{},
                           {.layout = {.tensor = 2}},
                           {.layout = {.tensor = 3}, .sequence_parallel = true},
                           {.layout = {.pipeline = 2, .tensor = 2}},
                           {.layout = {.tensor = 2, .context = 2}, .sequence_parallel = true}},
                          /*optimize=*/false);
  expect_layouts_of_names("qv", adapters,
                          {{.layout = {.data = 2}, .zero = 1},
                           {.layout = {.data = 3}, .zero = 3},
                           {.layout = {.pipeline = 2, .data = 2, .tensor = 2}, .zero = 3}},
                          /*optimize=*/true);
}

TEST(NamedAdapters, OfExpertsAndRouters) {
  expect_layouts_of_names("experts",
                          {{"all", adapter_of(3, 5, {"gate", "mlp.experts.gate_up_proj", "mlp.experts.down_proj"})},
                           {"down", adapter_of(2, 6, {"q_proj", "mlp.experts.down_proj"})}},
                          {{},
                           {.layout = {.tensor = 2}},
                           {.layout = {.pipeline = 2}},
                           {.layout = {.tensor = 2, .expert = 2}, .sequence_parallel = true}},
                          /*optimize=*/false);
}

TEST(NamedAdapters, WithModulesToSaveAndTrainedTokens) {
  LoraConfig saved = adapter_of(2, 4, {"q_proj"}), norms = adapter_of(2, 4, {"v_proj"}),
             tokens = adapter_of(2, 4, {"o_proj"});
  saved.modules_to_save = {"mlp"};
  norms.modules_to_save = {"norm"};
  tokens.trainable_token_indices = {4, 20, 15};
  for (const char* base : {"tied_tokens", "qv"})
    expect_layouts_of_names(base, {{"saved", saved}, {"norms", norms}, {"tokens", tokens}},
                            {{}, {.layout = {.tensor = 2}}, {.layout = {.pipeline = 2, .tensor = 3}}},
                            /*optimize=*/false);
}

TEST(NamedAdapters, OfAQuantizedBase) {
  const ScratchFolder scratch;
  Config config = base_config("qlora_nf4", {.layout = {.tensor = 2}});
  config.model.quantize = "nf4";
  const std::string directory = kNamedCases + "qlora_nf4/adapter";
  Config one = config;
  one.lora.path = directory;
  const Logits expected = collect(resolve_model(std::move(one)), false, [&](Rig&, const auto& add) { add("adapter"); });
  config = resolve_model(std::move(config));
  const Logits found = collect(config, false, [&](Rig& rig, const auto& add) {
    NamedAdapters adapters(config, rig.boosted, rig.plugin->mesh());
    adapters.load("adapter", directory);
    add("base");
    adapters.activate("adapter");
    add("adapter");
  });
  EXPECT_GT((found.at("base") - found.at("adapter")).abs().max().item<double>(), 1e-6);
  EXPECT_LE((expected.at("adapter") - found.at("adapter")).abs().max().item<double>(), 1e-10);
}

TEST(NamedAdapters, ErrorsAreOneLineEach) {
  const Config config = resolve_model(base_config("qv", {.layout = {.tensor = 2}}));
  const std::string own = kNamedCases + "qv/adapter";
  on_layout<int>(config, [&](World& world) {
    Rig rig(world, config, cross_entropy(), false);
    load_weights(config, rig.boosted, rig.plugin->mesh());
    NamedAdapters adapters(config, rig.boosted, rig.plugin->mesh());
    EXPECT_THAT(thrown_by([&] { adapters.activate("a"); }),
                HasSubstr("NamedAdapters: there is no adapter 'a'; expected an adapter of load()"));
    adapters.load("a", own);
    EXPECT_THAT(thrown_by([&] { adapters.load("a", own); }),
                HasSubstr("NamedAdapters: there is already an adapter 'a'; expected each name once"));
    EXPECT_THAT(thrown_by([&] { adapters.load("", own); }), HasSubstr("NamedAdapters: the name is empty"));
    EXPECT_THAT(thrown_by([&] { adapters.activate("b"); }), HasSubstr("there is no adapter 'b'; expected a"));
    EXPECT_THAT(thrown_by([&] { adapters.load("b", kNamedCases + "tied_tables/adapter"); }),
                HasSubstr("tied_tables/adapter/adapter_config.json: lora.target_modules: 'c_attn' matches no module"));
    EXPECT_EQ(adapters.active(), "");
    return 0;
  });
}

// The names fit, but the shapes do not.
TEST(NamedAdapters, OfAnotherBaseAreErrors) {
  const Config config = resolve_model(base_config("own_tokens", {}));
  on_layout<int>(config, [&](World& world) {
    Rig rig(world, config, cross_entropy(), false);
    NamedAdapters adapters(config, rig.boosted, rig.plugin->mesh());
    EXPECT_THAT(thrown_by([&] { adapters.load("b", kNamedCases + "qv/adapter"); }), HasSubstr("another base model"));
    return 0;
  });
}

TEST(NamedAdapters, ModelsThatDoNotSupportThem) {
  const auto refusal = [](Config config, bool optimize, const std::string& directory = {}) {
    std::string found;
    config = resolve_model(std::move(config));
    return on_layout<std::string>(config, [&](World& world) {
      Rig rig(world, config, cross_entropy(), optimize);
      return thrown_by([&] {
        NamedAdapters adapters(config, rig.boosted, rig.plugin->mesh());
        adapters.load("a", directory);
      });
    });
  };
  Config own = base_config("qv", {});
  own.lora.path = kNamedCases + "qv/adapter";
  EXPECT_THAT(refusal(own, false), HasSubstr("NamedAdapters: the model has adapters of its own"));
  Config shared = base_config("qv", {.layout = {.pipeline = 2}});
  shared.parallel.vocabulary = "pipeline";
  EXPECT_THAT(refusal(shared, false), HasSubstr("parallel.vocabulary: the pipeline's ranks share embedding and head"));
  Config graphs = base_config("qv", {});
  graphs.train.device_graphs = true;
  EXPECT_THAT(refusal(graphs, false), HasSubstr("train.device_graphs: a CUDA graph repeats the adapter"));
  const ScratchFolder scratch;
  LoraConfig saved = adapter_of(2, 4, {"q_proj"});
  saved.modules_to_save = {"up_proj"};
  write_adapter("qv", saved, scratch, "saved");
  EXPECT_THAT(refusal(base_config("qv", {}), true, scratch / "saved"),
              HasSubstr("the adapter has modules_to_save, but the model has an optimizer"));
  Config quantized = base_config("qv", {});
  quantized.model.quantize = "nf4";
  EXPECT_THAT(refusal(quantized, false, scratch / "saved"), HasSubstr("but the layer is quantized"));
}

}  // namespace
}  // namespace gantry::testing
