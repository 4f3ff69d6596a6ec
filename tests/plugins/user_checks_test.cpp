// Mistakes of users: each is rejected or reported. None silently trains something else.
#include <cmath>
#include <gmock/gmock.h>
#include <type_traits>

#include "gantry/core/error.h"
#include "gantry/optimizers/lion.h"
#include "gantry/optimizers/optimizer_tensors.h"
#include "gantry/tensors/libtorch.h"
#include "ranks_outcome.h"
#include "small_stack.h"

namespace gantry::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

// A boosted stack, and the optimizer that was passed to boost.
struct StackRig {
  StackRig(World& world, const Config& config, Criterion criterion = cross_entropy(),
           std::shared_ptr<torch::optim::Optimizer> given = nullptr)
      : booster(std::make_unique<HybridParallelPlugin>(world, config)), model(build_stack(config)), optimizer(given) {
    if (!optimizer) optimizer = build_optimizer(config, *model);
    boosted = booster.boost(model, optimizer, std::move(criterion));
    const auto& mesh = static_cast<HybridParallelPlugin&>(booster.plugin()).mesh();
    batch = replica_part(make_batch(stack_batch(8)), mesh.size("dp"), mesh.coordinate("dp"));
  }
  StepResult run() { return booster.execute_pipeline(batch, boosted, {.broadcast_loss = true}); }
  Booster booster;
  std::shared_ptr<torch::nn::Module> model;
  std::shared_ptr<torch::optim::Optimizer> optimizer;
  Boosted boosted;
  Batch batch;
};

TEST(UserChecks, TheOptimizerThatWasPassedToBoostDoesNotStep) {
  for (const int zero : {0, 1, 2})
    for (const char* name : {"adamw", "sgd", "lion"}) {
      Config config = stack_config({.data = 2});
      config.parallel.zero = zero;
      config.optimizer.name = name;
      const RanksOutcome said = outcome_of(config, [&](World& world) {
        StackRig rig(world, config);
        rig.run();
        EXPECT_TRUE(rig.boosted.optimizer->step());
        rig.boosted.optimizer->zero_grad();
        rig.run();
        rig.optimizer->step();
      });
      EXPECT_EQ(said.code, 2) << name;
      EXPECT_THAT(said.text, HasSubstr("step() was called on the optimizer that was passed to boost; call "
                                       "boosted.optimizer->step()"));
    }
}

TEST(UserChecks, ItsZeroGradIsTheBoostedOnes) {
  for (const int zero : {0, 1, 2})
    for (const char* precision : {"float64", "bfloat16"}) {
      Config config = stack_config({.data = 2});
      config.parallel.zero = zero;
      config.precision = precision;
      const RanksOutcome said = outcome_of(config, [&](World& world) {
        StackRig rig(world, config);
        rig.run();
        const double norm = rig.boosted.optimizer->grad_norm();
        rig.optimizer->zero_grad();
        rig.run();
        EXPECT_EQ(rig.boosted.optimizer->grad_norm(), norm) << zero << " " << precision;
      });
      EXPECT_EQ(said.code, 0);
      EXPECT_THAT(said.text, IsEmpty());
    }
}

TEST(UserChecks, AnotherOptimizerWhereItTrainsNothing) {
  Config config = stack_config({.data = 2});
  const auto body = [&](World& world) {
    StackRig rig(world, config);
    torch::optim::AdamW own(rig.model->parameters(), torch::optim::AdamWOptions(1e-2));
    for (int step = 0; step < 3; ++step) {
      rig.run();
      own.step();
      own.zero_grad();
    }
  };
  config.parallel.zero = 1;
  RanksOutcome said = outcome_of(config, body);
  EXPECT_EQ(said.code, 2);
  EXPECT_THAT(said.text, HasSubstr("another optimizer has removed gradients that were not applied"));
  config.parallel.zero = 2;  // there are no gradients to remove
  said = outcome_of(config, body);
  EXPECT_EQ(said.code, 0);
  EXPECT_THAT(said.text, HasSubstr("warning: execute_pipeline adds to gradients that were neither applied nor zeroed"));
  EXPECT_EQ(said.text.find("warning:"), said.text.rfind("warning:"));
}

TEST(UserChecks, AStepWithoutABackward) {
  const Config config = stack_config({});
  EXPECT_EQ(outcome_of(config,
                       [&](World& world) {
                         StackRig rig(world, config);
                         EXPECT_THROW(rig.boosted.optimizer->step(), UsageError);
                         rig.run();
                         EXPECT_TRUE(rig.boosted.optimizer->step());
                         EXPECT_THROW(rig.boosted.optimizer->step(), UsageError);
                         rig.run();
                         rig.boosted.optimizer->zero_grad();
                         EXPECT_THROW(rig.boosted.optimizer->step(), UsageError);
                       })
                .code,
            0);
}

TEST(UserChecks, EvaluationLeavesEveryModuleInItsOwnMode) {
  const Config config = tiny({});
  EXPECT_EQ(outcome_of(config,
                       [&](World& world) {
                         Rig rig(world, config);
                         auto& model = rig.boosted.model->module();
                         model.train();
                         std::map<std::string, bool> before;
                         for (const auto& item : model.named_modules("", /*include_self=*/false)) {
                           if (item.key() == "h.1" || item.key() == "ln_f") item.value()->eval();
                           if (item.key() == "h.1.mlp.dropout") item.value()->train();
                         }
                         for (const auto& item : model.named_modules("", false))
                           before[item.key()] = item.value()->is_training();
                         EXPECT_FALSE(before.at("h.1.attn"));
                         rig.booster.execute_pipeline(rig.batch(tokens(4)), rig.boosted, {.forward_only = true});
                         EXPECT_TRUE(model.is_training());
                         for (const auto& item : model.named_modules("", false))
                           EXPECT_EQ(item.value()->is_training(), before.at(item.key())) << item.key();
                       })
                .code,
            0);
}

TEST(UserChecks, BoostingTwiceIsSaidIdenticallyByAllRanks) {
  for (const Layout& layout : {Layout{.tensor = 2}, Layout{.pipeline = 2}, Layout{.data = 2}}) {
    const Config config = stack_config(layout);
    const RanksOutcome said = outcome_of(config, [&](World& world) {
      StackRig rig(world, config);
      try {
        rig.booster.boost(rig.model, build_optimizer(config, *rig.model), cross_entropy());
        ADD_FAILURE();
      } catch (const ConfigError& error) {
        EXPECT_THAT(error.what(), HasSubstr("the model has already been sharded"));
        throw;
      }
    });
    EXPECT_EQ(said.code, 3);
  }
}

TEST(UserChecks, ParametersThatNothingReachesAreNamedOnce) {
  for (const Layout& layout : {Layout{}, Layout{.pipeline = 2, .data = 2}, Layout{.tensor = 2}}) {
    const Config config = stack_config(layout, "stack_skips");
    const RanksOutcome said = outcome_of(config, [&](World& world) {
      StackRig rig(world, config);
      for (int step = 0; step < 2; ++step) {
        rig.run();
        rig.boosted.optimizer->step();
        rig.boosted.optimizer->zero_grad();
      }
    });
    EXPECT_EQ(said.code, 0);
    EXPECT_THAT(said.text, HasSubstr("warning: 2 parameters got no gradient in the first step: blocks.1.weight, "
                                     "blocks.1.bias; "));
    EXPECT_EQ(said.text.find("warning:"), said.text.rfind("warning:"));
  }
}

TEST(UserChecks, ACriterionWithoutAGraphIsAnError) {
  for (const Layout& layout : {Layout{}, Layout{.pipeline = 2, .data = 2}, Layout{.tensor = 2}}) {
    const Config config = stack_config(layout);
    const auto with = [&](const Criterion& criterion) {
      return outcome_of(config, [&](World& world) { StackRig(world, config, criterion).run(); });
    };
    const RanksOutcome said = with([](const TensorDict& outputs, const TensorDict&) {
      return Loss{outputs.at("logits").detach().sum(), torch::tensor(outputs.at("logits").size(0))};
    });
    EXPECT_EQ(said.code, 2) << said.text;
    EXPECT_THAT(said.text, HasSubstr("criterion: the loss of the first step depends on no parameter"));
    // A gradient of zeros is allowed.
    const RanksOutcome zero = with([](const TensorDict& outputs, const TensorDict&) {
      return Loss{outputs.at("logits").sum() * 0, torch::tensor(outputs.at("logits").size(0))};
    });
    EXPECT_EQ(zero.code, 0) << zero.text;
  }
}

TEST(UserChecks, DocumentsThatNobodyReadsAreOneWarning) {
  for (const Layout& layout : {Layout{}, Layout{.pipeline = 2, .data = 2}, Layout{.tensor = 2}}) {
    const Config config = stack_config(layout);
    const RanksOutcome unread = outcome_of(config, [&](World& world) {
      StackRig rig(world, config);
      rig.batch.tensors.set("document_ids", torch::zeros({rig.batch.samples, 5}, torch::kInt64));
      for (int step = 0; step < 2; ++step) {
        rig.run();
        rig.boosted.optimizer->step();
        rig.boosted.optimizer->zero_grad();
      }
    });
    EXPECT_EQ(unread.code, 0);
    EXPECT_THAT(unread.text, HasSubstr("warning: the batches have document_ids, but the model does not read them"));
    EXPECT_EQ(unread.text.find("warning:"), unread.text.rfind("warning:"));
  }
  for (const Layout& layout : {Layout{}, Layout{.pipeline = 2}}) {
    const Config config = tiny(layout);
    const RanksOutcome read = outcome_of(config, [&](World& world) {
      Rig rig(world, config);
      TensorDict full = tokens(8);
      full.set("document_ids", torch::tensor({{0, 0, 1, 1, 1}}).repeat({8, 1}));
      rig.booster.execute_pipeline(rig.batch(full), rig.boosted);
    });
    EXPECT_EQ(read.code, 0);
    EXPECT_THAT(read.text, IsEmpty());
  }
}

TEST(UserChecks, ALoopOfThePolicysOwnRecomputesNothing) {
  Config config = stack_config({.pipeline = 2}, "stack_loops");
  const auto body = [&](World& world) { StackRig(world, config).run(); };
  EXPECT_EQ(outcome_of(config, body).code, 0);
  for (const char* recompute : {"selective", "parts", "full"}) {
    config.schedule.recompute = recompute;
    const RanksOutcome said = outcome_of(config, body);
    EXPECT_EQ(said.code, 3);
    EXPECT_THAT(said.text, HasSubstr("schedule.recompute: StackPolicy::forward runs its layers without "
                                     "stage.run_layers, so they cannot be recomputed; expected a forward that calls "
                                     "stage.run_layers; call stage.run_layers in it, or remove schedule.recompute"));
  }
}

TEST(UserChecks, WhatThrowsInAPartOfALayerIsNamed) {
  const Config config = stack_config({.pipeline = 2}, "stack_throws_in_a_part");
  const RanksOutcome said = outcome_of(config, [&](World& world) { StackRig(world, config).run(); });
  EXPECT_THAT(said.text, HasSubstr("forward of stage 1 (blocks.2 (block)), microbatch 0: it threw"));
}

TEST(UserChecks, ParametersThatAreReachedAreNot) {
  for (const char* schedule : {"1f1b", "zb_h1"})
    for (const char* recompute : {"none", "full"})
      for (const int zero : {0, 2}) {
        Config config = tiny({.pipeline = 2, .data = 2});
        config.schedule.name = schedule;
        config.schedule.recompute = recompute;
        config.parallel.zero = zero;
        const RanksOutcome said = outcome_of(config, [&](World& world) {
          Rig rig(world, config);
          rig.booster.execute_pipeline(rig.batch(tokens(8)), rig.boosted);
        });
        EXPECT_EQ(said.code, 0);
        EXPECT_THAT(said.text, IsEmpty()) << schedule << " " << recompute << " " << zero;
      }
}

TEST(UserChecks, StepsWithoutALabelThatCounts) {
  const Config config = stack_config({.data = 2});
  const auto ignored = [](StackRig& rig) { rig.batch.tensors.set("labels", torch::full({4}, -100)); };
  RanksOutcome said = outcome_of(config, [&](World& world) {
    StackRig rig(world, config);
    ignored(rig);
    rig.run();
  });
  EXPECT_EQ(said.code, 4);
  EXPECT_THAT(said.text, HasSubstr("all labels of the first step are ignored"));
  said = outcome_of(config, [&](World& world) {
    StackRig rig(world, config);
    rig.boosted.optimizer->set_steps(1, 1);  // as a resumed run
    ignored(rig);
    EXPECT_EQ(rig.run().tokens, 0);
  });
  EXPECT_EQ(said.code, 0);
  EXPECT_THAT(said.text, HasSubstr("warning: all labels of step 2 are ignored"));
  said = outcome_of(config, [&](World& world) {
    StackRig rig(world, config);
    rig.run();
    rig.boosted.optimizer->step();
    rig.boosted.optimizer->zero_grad();
    ignored(rig);
    EXPECT_EQ(rig.run().tokens, 0);
  });
  EXPECT_EQ(said.code, 0);
  EXPECT_THAT(said.text, HasSubstr("warning: all labels of step 2 are ignored"));
}

TEST(UserChecks, NumbersThatAreNotFiniteWithoutClipping) {
  const Config config = stack_config({});
  ASSERT_EQ(config.train.non_finite, "stop");
  ASSERT_FALSE(config.optimizer.clip_grad_norm);
  RanksOutcome said = outcome_of(config, [&](World& world) {
    StackRig rig(world, config);
    rig.run();
    rig.boosted.optimizer->set_lr(std::nan(""));
    rig.boosted.optimizer->step();
  });
  EXPECT_EQ(said.code, 8);
  EXPECT_THAT(said.text, HasSubstr("the learning rate is nan"));
  said = outcome_of(config, [&](World& world) {
    StackRig rig(world, config);
    rig.batch.tensors.at("x")[0].fill_(std::nan(""));
    rig.run();
    rig.boosted.optimizer->step();
  });
  EXPECT_EQ(said.code, 8);
  EXPECT_THAT(said.text, HasSubstr("nan, first in "));
}

TEST(UserChecks, KeysOfTheModelThatNoFamilyHas) {
  const auto resolved = [](const std::string& keys) {
    try {
      resolve_model(Config::parse("model: {policy: " + keys + "}\n"));
      return std::string();
    } catch (const ConfigError& error) {
      return std::string(error.what());
    }
  };
  EXPECT_EQ(resolved("gpt2, config: {n_embdd: 8}"),
            "model.config.n_embdd: unknown key of gpt2; expected a key of Hugging Face's config.json for gpt2; did you "
            "mean 'n_embd'?");
  EXPECT_THAT(resolved("llama, config: {hidden: 8}"), HasSubstr("model.config.hidden: unknown key of llama"));
  EXPECT_THAT(resolved("bert, config: {zzzzzzzzzzzzzzzzzz: 8}"), HasSubstr("; remove it"));
  EXPECT_EQ(resolved("gpt2, config: {n_embd: 24, n_ctx: 5, use_cache: true, bos_token_id: 0}"), "");
}

TEST(UserChecks, AnExceptionInAForwardSaysWhere) {
  const Config config = stack_config({.pipeline = 2}, "stack_throws");
  const RanksOutcome said = outcome_of(config, [&](World& world) {
    StackRig rig(world, config);
    rig.run();
  });
  EXPECT_EQ(said.code, 9);
  EXPECT_THAT(said.text, HasSubstr("forward of stage 1 (blocks.2), microbatch 0: it threw \""));
  EXPECT_THAT(said.text, HasSubstr("on {hidden: float64 [4, 8]}"));
}

TEST(UserChecks, AnExceptionInACriterionOrABackwardSaysWhere) {
  struct Throws : torch::autograd::Function<Throws> {
    static torch::Tensor forward(torch::autograd::AutogradContext*, const torch::Tensor& x) { return x.clone(); }
    static torch::autograd::variable_list backward(torch::autograd::AutogradContext*, torch::autograd::variable_list) {
      throw std::runtime_error("a backward of mine");
    }
  };
  const Config config = stack_config({.pipeline = 2});
  const auto with = [&](const Criterion& criterion) {
    return outcome_of(config, [&](World& world) {
      StackRig rig(world, config, criterion);
      rig.run();
    });
  };
  RanksOutcome said =
      with(Criterion([](const TensorDict&, const TensorDict&) -> Loss { throw std::runtime_error("mine"); }));
  EXPECT_EQ(said.code, 9);
  EXPECT_THAT(said.text,
              HasSubstr("criterion of stage 1 (blocks 2 to 3), microbatch 0: it threw \"mine\" on {logits: "));
  EXPECT_THAT(said.text, HasSubstr("check the criterion, and the entries of outputs and batch that it reads"));
  said = with(Criterion([](const TensorDict&, const TensorDict& batch) {
    return Loss{batch.at("target").sum(), batch.at("target").sum()};
  }));
  EXPECT_EQ(said.code, 4);
  EXPECT_THAT(said.text,
              HasSubstr("criterion of stage 1 (blocks 2 to 3), microbatch 0: tensors: there is no entry 'target'"));
  said = with(Criterion([](const TensorDict& outputs, const TensorDict& batch) {
    return nn::cross_entropy(Throws::apply(outputs.at("logits")), batch.at("labels"));
  }));
  EXPECT_EQ(said.code, 9);
  EXPECT_THAT(said.text,
              HasSubstr("backward of stage 1 (blocks 2 to 3), microbatch 0: it threw \"a backward of mine\""));
}

TEST(UserChecks, AnExceptionOfTheLoopHasACodeOfItsOwn) {
  const RanksOutcome said = outcome_of(stack_config({}), [](World&) { throw std::logic_error("a fault of the loop"); });
  EXPECT_EQ(said.code, 9);
  EXPECT_THAT(said.text, HasSubstr("a fault of the loop"));
}

TEST(UserChecks, SplitOutputsThatThePolicyForgets) {
  // Labels below 2 are valid in every rank's part of the logits too, so no other check would fail.
  for (const std::int64_t labels : {6, 2}) {
    const Config config = stack_config({.pipeline = 2, .tensor = 2}, "stack_forgets");
    const RanksOutcome said = outcome_of(config, [&](World& world) {
      StackRig rig(world, config);
      rig.batch.tensors.set("labels", rig.batch.tensors.at("labels") % labels);
      rig.run();
    });
    EXPECT_EQ(said.code, 3) << said.text;
    EXPECT_THAT(said.text, HasSubstr("StackPolicy::split: output 'logits' float64 [4, 3] of rank 2"));
  }
}

TEST(UserChecks, AStageWithoutLayersIsNamed) {
  Config config = stack_config({.pipeline = 2});
  config.schedule.layers = std::vector<int>{4, 0};
  const RanksOutcome said = outcome_of(config, [&](World& world) {
    StackRig(world, config,
             Criterion([](const TensorDict&, const TensorDict&) -> Loss { throw std::runtime_error("mine"); }))
        .run();
  });
  EXPECT_THAT(said.text, HasSubstr("criterion of stage 1 (no layers), microbatch 0"));
}

TEST(UserChecks, AConfigurationOfAProgramIsChecked) {
  const std::vector<std::pair<std::function<void(Config&)>, std::string>> mistakes = {
      {[](Config& config) { config.schedule.recompute = "selectiv"; }, "schedule.recompute: "},
      {[](Config& config) { config.train.non_finite = "ignore"; }, "train.non_finite: "},
      {[](Config& config) { config.parallel.zero = 4; }, "parallel.zero: "},
      {[](Config& config) { config.parallel.gather = "never"; }, "parallel.gather: "},
      {[](Config& config) { config.precision = "fp16"; }, "precision: "},
      {[](Config& config) { config.optimizer.clip_grad_norm = -1; }, "optimizer.clip_grad_norm: "},
  };
  for (const auto& [make, key] : mistakes) {
    Config config = stack_config({});
    const auto model = build_stack(config);
    config.parallel.gather = "step";
    config.parallel.zero = 3;
    make(config);
    const RanksOutcome said =
        outcome_of(stack_config({}), [&](World& world) { const HybridParallelPlugin plugin(world, config); });
    EXPECT_EQ(said.code, 3) << key;
    EXPECT_THAT(said.text, HasSubstr(key));
  }
}

// Stands for an optimizer that uses the norm of a parameter, like LARS.
class StepsByNorms : public torch::optim::SGD {
 public:
  using torch::optim::SGD::SGD;
};
class StepsByElements final : public StepsByNorms, public StatefulOptimizer {
 public:
  using StepsByNorms::StepsByNorms;
  NamedTensors state_tensors(const torch::Tensor&) override { return {}; }
  void set_steps(const torch::Tensor&, std::int64_t) override {}
};

TEST(UserChecks, AnOptimizerWhoseUnitIsUnknown) {
  for (const auto& [layout, zero] : {std::pair(Layout{.tensor = 2}, 0), std::pair(Layout{.data = 2}, 1),
                                     std::pair(Layout{.data = 2}, 3), std::pair(Layout{.pipeline = 2, .data = 2}, 0)}) {
    Config config = stack_config(layout);
    config.parallel.zero = zero;
    const auto with = [&]<class Optimizer>(std::type_identity<Optimizer>) {
      return outcome_of(config, [&](World& world) {
        Booster booster(std::make_unique<HybridParallelPlugin>(world, config));
        auto model = build_stack(config);
        booster.boost(model, std::make_shared<Optimizer>(model->parameters(), 0.1), cross_entropy());
      });
    };
    const RanksOutcome said = with(std::type_identity<StepsByNorms>());
    const bool shards = layout.tensor > 1 || zero > 0;
    EXPECT_EQ(said.code, shards ? 2 : 0);
    if (shards) {
      EXPECT_THAT(said.text, HasSubstr("StepsByNorms may need full parameters"));
    }
    EXPECT_EQ(with(std::type_identity<StepsByElements>()).code, 0);
  }
}

TEST(UserChecks, OnlyLabelsMarkIgnoredOnes) {
  const Config config = stack_config({.data = 2});
  const auto mean = [](const TensorDict& outputs, const TensorDict& batch) {
    return nn::cross_entropy(outputs.at("logits"), batch.at("labels")).sum / outputs.at("logits").size(0);
  };
  EXPECT_EQ(outcome_of(config,
                       [&](World& world) {
                         StackRig rig(world, config, mean);
                         rig.batch.tensors.set("temperature", torch::full({4}, -100));
                         rig.run();
                       })
                .code,
            0);
}

TEST(UserChecks, APathWithoutANeighbourSuggestsNone) {
  const RanksOutcome said = outcome_of(stack_config({}, "stack_names_none"), [&](World& world) {
    StackRig rig(world, stack_config({}, "stack_names_none"));
  });
  EXPECT_EQ(said.code, 3);
  EXPECT_THAT(said.text, HasSubstr("has no module 'transformer.encoder.layers'"));
  EXPECT_THAT(said.text, Not(HasSubstr("''")));
}

}  // namespace
}  // namespace gantry::testing
