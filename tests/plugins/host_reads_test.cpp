// A step on a device reads back to the host once. The CPU
// runs the same operators, so the test counts them there.
#include <atomic>
#include <map>
#include <mutex>

#include <ATen/record_function.h>
#include <torch/nn/functional/loss.h>

#include "gantry/optimizers/gradient_buffers.h"
#include "gantry/tensors/host_copy.h"
#include "gantry/tensors/libtorch.h"
#include "tiny_rig.h"

namespace gantry::testing {
namespace {

// Operators whose result depends on device data, so that the host has to wait for the device.
bool waits_for_numbers(const std::string& name) {
  for (const char* one : {"aten::_local_scalar_dense", "aten::is_nonzero", "aten::nonzero", "aten::equal",
                          "aten::allclose", "aten::masked_select", "aten::_unique2"})
    if (name == one) return true;
  return false;
}

struct Reads {
  std::mutex mutex;
  std::map<std::string, int> counts;
};
Reads reads;

std::unique_ptr<at::ObserverContext> note_read(const at::RecordFunction& function) {
  const std::string name = function.name();
  if (name != "gantry::read_back" && !waits_for_numbers(name)) return nullptr;
  const std::lock_guard lock(reads.mutex);
  ++reads.counts[name];
  return nullptr;
}

// Counts the reads of all ranks between the constructor and end(). Both are collective over `ranks`.
class CountedReads {
 public:
  CountedReads(World& world, ProcessGroup& ranks) : world_(world), ranks_(ranks) {
    ranks_.barrier().wait();
    if (world_.is_main()) {
      reads.counts.clear();
      handle_ = at::addGlobalCallback(at::RecordFunctionCallback(&note_read));
    }
    ranks_.barrier().wait();
  }
  std::map<std::string, int> end() {
    ranks_.barrier().wait();
    if (world_.is_main()) at::removeCallback(handle_);
    ranks_.barrier().wait();
    return reads.counts;
  }

 private:
  World& world_;
  ProcessGroup& ranks_;
  at::CallbackHandle handle_{};
};

using Counts = std::map<std::string, int>;

Config with_everything(const std::string& family, const Layout& layout) {
  Config config = tiny(layout);
  if (family == "gpt2")
    config.model.config_json =
        R"({"n_layer": 4, "n_head": 2, "n_embd": 12, "vocab_size": 29, "n_positions": 5, "resid_pdrop": 0.1, "embd_pdrop": 0.1, "attn_pdrop": 0.1})";
  else
    config.model.config_json =
        R"({"num_hidden_layers": 4, "num_attention_heads": 2, "num_key_value_heads": 2, "hidden_size": 12, "intermediate_size": 20, "vocab_size": 29, "max_position_embeddings": 5})";
  config.model.policy = family;
  config.optimizer.name = "sgd";  // AdamW's CPU kernel reads its own step count
  config.optimizer.clip_grad_norm = 0.1;
  return config;
}

TensorDict masked_tokens() {
  TensorDict full = tokens(8);
  torch::Tensor mask = torch::ones({8, 5}, torch::kInt64), labels = full.at("labels").clone();
  mask.narrow(0, 2, 3).narrow(1, 0, 2).zero_();
  labels.narrow(0, 2, 3).narrow(1, 0, 2).fill_(-100);
  full.set("attention_mask", mask);
  full.set("labels", labels);
  return full;
}

// Counts the reads of two steps. The step before them is not counted, because it has additional reads.
Counts reads_of_two_steps(const Config& config, const Criterion& criterion) {
  return on_layout<Counts>(config, [&](World& world) {
    Rig rig(world, config, criterion);
    const auto step = [&] {
      const auto result =
          rig.booster.execute_pipeline(rig.batch(masked_tokens()), rig.boosted, {.broadcast_loss = true});
      EXPECT_GT(*result.loss, 0);
      EXPECT_GT(rig.boosted.optimizer->grad_norm(), 0.1);  // is clipped
      EXPECT_TRUE(rig.boosted.optimizer->step());
      rig.boosted.optimizer->zero_grad();
    };
    step();
    CountedReads counted(world, rig.plugin->mesh().world_group());
    step();
    step();
    return counted.end();
  });
}

Loss mean_by_torch(const TensorDict& outputs, const TensorDict& batch) {
  return torch::nn::functional::cross_entropy(outputs.at("logits").reshape({-1, 29}), batch.at("labels").reshape({-1}));
}

TEST(HostReads, AStepReadsBackOnce) {
  struct Case {
    std::string name, family;
    Layout layout;
    std::function<void(Config&)> change = [](Config&) {};
    Criterion criterion = cross_entropy();
  };
  const std::vector<Case> cases = {
      {"gpt2", "gpt2", {.pipeline = 2, .tensor = 2}},
      {"llama", "llama", {.pipeline = 2, .tensor = 2}},
      {"sequence parallel, zero bubble",
       "gpt2",
       {.pipeline = 2, .tensor = 2},
       [](Config& config) {
         config.parallel.sequence_parallel = true;
         config.schedule.name = "zb_h1";
       }},
      {"recomputed, ZeRO 2",
       "gpt2",
       {.pipeline = 2, .data = 2},
       [](Config& config) {
         config.schedule.recompute = "full";
         config.parallel.zero = 2;
       }},
      {"float16", "llama", {.data = 2, .tensor = 2}, [](Config& config) { config.precision = "float16"; }},
      {"causal", "llama", {.pipeline = 4}, [](Config&) {}, causal_cross_entropy()},
      {"a mean over labels", "gpt2", {.pipeline = 2, .data = 2}, [](Config&) {}, mean_over_labels(mean_by_torch)},
  };
  for (const Case& one : cases) {
    Config config = with_everything(one.family, one.layout);
    one.change(config);
    EXPECT_EQ(reads_of_two_steps(config, one.criterion), (Counts{{"gantry::read_back", 2 * one.layout.ranks()}}))
        << one.name;
  }
}

TEST(HostReads, AnEvaluationReadsItsLossWhereItIs) {
  const Config config = with_everything("gpt2", {.pipeline = 2, .tensor = 2});
  const auto counts = on_layout<Counts>(config, [&](World& world) {
    Rig rig(world, config);
    const ExecuteOptions evaluated{.broadcast_loss = true, .forward_only = true};
    const Batch batch = rig.batch(masked_tokens());
    rig.booster.execute_pipeline(batch, rig.boosted, evaluated);
    CountedReads counted(world, rig.plugin->mesh().world_group());
    rig.booster.execute_pipeline(batch, rig.boosted, evaluated);
    return counted.end();
  });
  EXPECT_EQ(counts, (Counts{{"gantry::read_back", 2}}));  // the two ranks of the last stage
}

// Gradients that only some ranks hold may be changed on these ranks alone.
TEST(HostReads, TheNormIsThatOfGradientsChangedInPlace) {
  const Config config = with_everything("gpt2", {.pipeline = 2});
  on_layout<int>(config, [&](World& world) {
    Rig rig(world, config);
    rig.booster.execute_pipeline(rig.batch(masked_tokens()), rig.boosted);
    const auto& gradients = rig.boosted.optimizer->gradients();
    double squares = 0;
    for (std::size_t i = 0; i < gradients.parameters().size(); ++i) {
      const auto& [placement, tensor] = gradients.parameters()[i];
      if (placement.stages == std::vector<int>{0}) tensor.grad().zero_();
      if (placement.stages == std::vector<int>{1}) tensor.grad().mul_(3);
      if (placement.stages.front() == rig.plugin->stages().stages().front())
        squares += number_of(tensor.grad().square().sum());
    }
    squares = all_reduce_number(rig.plugin->mesh().world_group(), squares);
    EXPECT_NEAR(rig.boosted.optimizer->grad_norm(), std::sqrt(squares), 1e-9);
    return 0;
  });
}

}  // namespace
}  // namespace gantry::testing
