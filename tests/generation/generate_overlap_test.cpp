// Stages generate at the same time: with at least as many prompts as stages, a stage computes one group's
// token while the next stage computes that of the previous group. The test uses no clock: forwards that must
// run at the same time wait for each other. If they ran one after the other, they would wait forever.
#include <chrono>
#include <condition_variable>
#include <mutex>

#include "gantry/booster/gantry.h"
#include "gantry/policies/policy.h"
#include "gantry/tensors/libtorch.h"
#include "generation_case.h"

namespace gantry::testing {
namespace {

// Time in slots: in each slot a stage computes the next token of one group. Each stage has groups x tokens
// forwards, and stage s runs forward n in slot n + s. So all forwards take groups x tokens + stages - 1
// slots, and no stage is idle between its first and its last forward.
class Slots {
 public:
  Slots(int stages, int forwards) : forwards_(forwards), done_(stages), arrived_(forwards + stages - 1) {}

  // Called within the next forward of `stage`: waits until
  // all stages that are due in this slot are within theirs.
  void meet(int stage) {
    std::unique_lock lock(mutex_);
    const int slot = done_.at(stage)++ + stage;
    int due = 0;
    for (int other = 0; other < static_cast<int>(done_.size()); ++other)
      due += slot >= other && slot - other < forwards_ ? 1 : 0;
    ++arrived_.at(slot);
    changed_.notify_all();
    const bool all =
        changed_.wait_for(lock, std::chrono::seconds(20), [&] { return has_failed_ || arrived_[slot] == due; });
    if (!all) ADD_FAILURE() << "stage " << stage << " is alone in slot " << slot << " of " << arrived_.size();
    has_failed_ = has_failed_ || !all;
  }

  // By stage.
  std::vector<int> forwards_done() const { return done_; }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int forwards_;
  std::vector<int> done_;     // by stage
  std::vector<int> arrived_;  // by slot
  bool has_failed_ = false;
};

Slots* slots = nullptr;  // the slots of the running test

struct RendezvousModelImpl : torch::nn::Module {
  explicit RendezvousModelImpl(int depth) {
    table = register_module("table", nn::Embedding(10, 10));
    layers = register_module("layers", torch::nn::ModuleList());
    for (int i = 0; i < depth; ++i) layers->push_back(nn::Linear(10, 10));
  }
  nn::Embedding table{nullptr};
  torch::nn::ModuleList layers;
};
TORCH_MODULE(RendezvousModel);

struct RendezvousModelPolicy final : PolicyFor<RendezvousModelImpl> {
  std::string name() const override { return "RendezvousModelPolicy"; }
  ModelSplit split(const RendezvousModelImpl&) const override { return {.stages = {{"table"}, "layers", {}}}; }
  TensorDict forward(RendezvousModelImpl& model, const StageContext& stage, TensorDict input) const override {
    slots->meet(stage.stage());
    torch::Tensor hidden = stage.is_first() ? model.table(input.at("input_ids")) : input.at("hidden");
    for (const int layer : stage.layers()) hidden = hidden + model.layers->at<nn::LinearImpl>(layer).forward(hidden);
    return {{stage.is_last() ? "logits" : "hidden", hidden}};
  }
};

std::vector<TokenIds> tokens_over(int stages, const std::vector<TokenIds>& prompts, std::int64_t new_tokens) {
  Config config = layout_config({.pipeline = stages});
  config.model.policy = "meeting";
  config.comm.threads_per_rank = 1;
  std::vector<TokenIds> made;
  const int code = start_ranks()(config, [&](World& world) {
    auto* plugin = new HybridParallelPlugin(world, config);
    Booster booster{std::unique_ptr<Plugin>(plugin)};
    auto model = [] {
      const DeferredInit deferred;
      return RendezvousModel(4);
    }();
    auto boosted = booster.boost(model, nullptr, cross_entropy());
    const auto sequences = generate(boosted, *plugin, prompts, {.max_new_tokens = new_tokens});
    if (world.is_main()) made = tokens_of(sequences);
  });
  EXPECT_EQ(code, 0) << stages << " stages";
  return made;
}

TEST(GenerateOverlap, EveryStageIsBusyWithAnotherGroup) {
  policies().add<RendezvousModelPolicy>("meeting");
  constexpr int kTokens = 5;
  std::vector<TokenIds> prompts;  // prompts of different lengths
  for (int i = 0; i < 9; ++i) prompts.push_back(TokenIds(1 + i % 4, i % 10));
  Slots alone(1, kTokens);
  slots = &alone;
  const auto expected = tokens_over(1, prompts, kTokens);
  ASSERT_EQ(expected.size(), prompts.size());
  for (const int stages : {2, 3, 4}) {
    const int forwards = stages * kTokens;  // per stage; there are as many groups as stages
    Slots all(stages, forwards);
    slots = &all;
    EXPECT_EQ(tokens_over(stages, prompts, kTokens), expected);
    EXPECT_EQ(all.forwards_done(), std::vector<int>(stages, forwards));
  }
}

}  // namespace
}  // namespace gantry::testing
