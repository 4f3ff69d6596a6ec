// Learning rates, parameter groups, Lion and Muon.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gantry/booster/recipe.h"
#include "gantry/core/error.h"
#include "gantry/optimizers/adafactor.h"
#include "gantry/optimizers/adamw_8bit.h"
#include "gantry/optimizers/adamw_step.h"
#include "gantry/optimizers/fused_adamw.h"
#include "gantry/optimizers/lion.h"
#include "gantry/optimizers/muon.h"
#include "gantry/tensors/libtorch.h"

namespace gantry::testing {
namespace {

// The rates of 12 steps with peak 2 and 3 warm-up steps,
// from the schedulers of PyTorch 2.13 and transformers 5.23.
TEST(LrSchedule, StepHasTheRateOfTransformersAtTheIndexBefore) {
  const double sixth = 2.0 / 3;
  const std::vector<std::pair<LrScheduleConfig, std::vector<double>>> cases{
      {{.name = "linear", .warmup_steps = 3},
       {0, sixth, 2 * sixth, 2, 16. / 9, 14. / 9, 12. / 9, 10. / 9, 8. / 9, 6. / 9, 4. / 9, 2. / 9}},
      {{.name = "cosine", .warmup_steps = 3},
       {0, sixth, 2 * sixth, 2, 1.9396926207859084, 1.7660444431189779, 1.5, 1.1736481776669305, 0.8263518223330697,
        0.5, 0.2339555568810221, 0.060307379214091683}},
      {{.name = "cosine_with_restarts", .warmup_steps = 3, .cycles = 2},
       {0, sixth, 2 * sixth, 2, 1.7660444431189779, 1.1736481776669305, 0.5, 0.060307379214091683, 1.9396926207859084,
        1.5, 0.8263518223330697, 0.2339555568810221}},
      {{.name = "polynomial", .warmup_steps = 3, .min_lr = 0.2, .power = 2},
       {0, sixth, 2 * sixth, 2, 1.6222222222222222, 1.288888888888889, 1, 0.7555555555555558, 0.5555555555555556, 0.4,
        0.2888888888888889, 0.22222222222222227}},
      {{.name = "inverse_sqrt", .warmup_steps = 3},
       {0, sixth, 2 * sixth, 2, 1.7320508075688774, 1.5491933384829668, 1.4142135623730949, 1.3093073414159542,
        1.2247448713915889, 1.1547005383792517, 1.0954451150103321, 1.044465935734187}},
      {{.name = "wsd", .warmup_steps = 3, .decay_steps = 4}, {0, sixth, 2 * sixth, 2, 2, 2, 2, 2, 2, 1.5, 1, 0.5}},
      {{.name = "piecewise", .milestones = {4, 8}, .factors = {0.1, 0.01}},
       {2, 2, 2, 2, 0.2, 0.2, 0.2, 0.2, 0.02, 0.02, 0.02, 0.02}},
      {{.name = "constant", .warmup_ratio = 0.25}, {0, sixth, 2 * sixth, 2, 2, 2, 2, 2, 2, 2, 2, 2}},
      {{.name = "linear", .min_lr_ratio = 0.5},
       {2, 23. / 12, 22. / 12, 21. / 12, 20. / 12, 19. / 12, 18. / 12, 17. / 12, 16. / 12, 15. / 12, 14. / 12,
        13. / 12}}};
  for (const auto& [config, rates] : cases) {
    const LrSchedule schedule(config, 2.0, 12);
    for (std::size_t i = 0; i < rates.size(); ++i)
      EXPECT_NEAR(schedule.at(static_cast<std::int64_t>(i) + 1), rates[i], 1e-12)
          << config.name << " at step " << i + 1;
  }
}

TEST(LrSchedule, IsAnyFunctionOfStepAndGroup) {
  const LrSchedule schedule(
      [](std::int64_t step, std::size_t group) { return 1.0 / static_cast<double>(step + group); });
  EXPECT_DOUBLE_EQ(schedule.at(1, 3), 0.25);
  EXPECT_EQ(schedule.unit(), LrSchedule::Unit::kRate);
}

TEST(LrSchedule, RefusesWhatItCannotCompute) {
  EXPECT_THROW(LrSchedule({.name = "liner"}, 1.0, 10), ConfigError);
  EXPECT_THROW(LrSchedule({.name = "linear", .min_lr = 0.1}, std::nullopt, 10), ConfigError);
}

Config config_with(const std::string& optimizer) {
  return Config::parse(
      "model: {policy: gpt2, config: {n_layer: 1, n_head: 2, n_embd: 8, vocab_size: 16, n_positions: 4}}\n" +
      optimizer);
}

TEST(Optimizer, GroupsGetValuesOfTheirOwn) {
  const auto config = config_with(
      "optimizer: {lr: 0.1, weight_decay: 0.5, no_decay: [\"*.bias\"], groups: [{match: [\"wte*\", \"wpe*\"], lr: "
      "0.02}, "
      "{match: [\"*\"], weight_decay: 0.25}]}\n");
  auto model = build_model(config);
  auto optimizer = build_optimizer(config, *model);
  std::map<void*, std::string> names;
  // The output layer is tied to the embedding, which comes first: the optimizer has this parameter once.
  for (const auto& item : model->named_parameters()) names.emplace(item.value().unsafeGetTensorImpl(), item.key());
  std::size_t seen = 0;
  for (auto& group : optimizer->param_groups()) {
    const auto& options = static_cast<torch::optim::AdamWOptions&>(group.options());
    for (const auto& parameter : group.params()) {
      const std::string& name = names.at(parameter.unsafeGetTensorImpl());
      const bool embedding = name.starts_with("wte") || name.starts_with("wpe");
      EXPECT_EQ(options.lr(), embedding ? 0.02 : 0.1) << name;
      // The first matching group applies, and its weight_decay takes precedence over no_decay.
      EXPECT_EQ(options.weight_decay(), embedding ? 0.5 : 0.25) << name;
      ++seen;
    }
  }
  EXPECT_EQ(seen, names.size());
}

template <class... Options>
double weight_decay_among(const torch::optim::OptimizerOptions& options) {
  double decay = -1;
  const auto take = [&]<class One>(const One* one) {
    if (one) decay = one->weight_decay();
  };
  (take(dynamic_cast<const Options*>(&options)), ...);
  return decay;
}

double weight_decay_of(const torch::optim::OptimizerOptions& options) {
  return weight_decay_among<torch::optim::AdamWOptions, torch::optim::SGDOptions, LionOptions, MuonOptions,
                            AdamW8bitOptions, AdafactorOptions>(options);
}

// A group keeps its values even if they equal LibTorch's defaults.
TEST(Optimizer, GroupsKeepWhatTheyStateWhateverLibTorchsDefaultsAre) {
  for (const std::string name : {"adamw", "adamw8bit", "adamw_bf16", "adafactor", "sgd", "lion", "muon"}) {
    const auto config =
        config_with("optimizer: {name: " + name +
                    ", lr: 0.1, weight_decay: 0.5, groups: [{match: [\"wte*\"], lr: 0.001, weight_decay: "
                    "0.01}, {match: [\"wpe*\"], lr: 0.0001, weight_decay: 0}]}\n");
    auto model = build_model(config);
    auto optimizer = build_optimizer(config, *model);
    std::map<void*, std::string> names;
    for (const auto& item : model->named_parameters()) names.emplace(item.value().unsafeGetTensorImpl(), item.key());
    for (auto& group : optimizer->param_groups()) {
      const double decay = weight_decay_of(group.options());
      for (const auto& parameter : group.params()) {
        const std::string& of = names.at(parameter.unsafeGetTensorImpl());
        const int own = of.starts_with("wte") ? 1 : of.starts_with("wpe") ? 2 : 0;
        EXPECT_EQ(group.options().get_lr(), (std::array{0.1, 0.001, 0.0001}[own])) << name << " " << of;
        EXPECT_EQ(decay, (std::array{0.5, 0.01, 0.0}[own])) << name << " " << of;
      }
    }
  }
}

TEST(Optimizer, APatternThatMatchesNothingIsNamed) {
  const auto config = config_with("optimizer: {groups: [{match: [nothing], lr: 0.1}]}\n");
  auto model = build_model(config);
  try {
    build_optimizer(config, *model);
    ADD_FAILURE();
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("optimizer.groups[0].match: 'nothing' matches no parameter"));
  }
}

TEST(Lion, StepsBySignsAsThePaperHasIt) {
  torch::Tensor weight = torch::tensor({1.0, -2.0, 0.5}, torch::kFloat64).requires_grad_();
  Lion optimizer({weight}, LionOptions(0.1).betas({0.9, 0.99}).weight_decay(0.01));
  double w[3] = {1.0, -2.0, 0.5}, m[3] = {};
  const double g[2][3] = {{0.3, -0.1, 0.0}, {-5.0, 0.2, 1e-9}};
  for (const auto& gradient : g) {
    weight.mutable_grad() = torch::tensor({gradient[0], gradient[1], gradient[2]}, torch::kFloat64);
    optimizer.step();
    for (int i = 0; i < 3; ++i) {
      const double update = 0.9 * m[i] + 0.1 * gradient[i];
      w[i] = w[i] * (1 - 0.1 * 0.01) - 0.1 * ((update > 0) - (update < 0));
      m[i] = 0.99 * m[i] + 0.01 * gradient[i];
      EXPECT_NEAR(weight[i].item<double>(), w[i], 1e-14);
    }
  }
}

TEST(Muon, ItsFactorHasSingularValuesAboutOneAndTheMatrixsDirections) {
  const torch::Tensor all = (torch::arange(2 * 5 * 9, torch::kFloat64) * 0.7).sin().view({2, 5, 9});
  const torch::Tensor factor = orthogonal_factor(all);
  for (int i = 0; i < 2; ++i) {
    const auto [left, values, right] = torch::linalg_svd(all[i], /*full_matrices=*/false);
    const torch::Tensor shown = left.t().matmul(factor[i]).matmul(right.t());
    // Each singular value goes through the same polynomial.
    // The smallest ones of this matrix are rounding errors.
    torch::Tensor expected = values / values.square().sum().sqrt();
    for (int step = 0; step < 5; ++step)
      expected = 3.4445 * expected - 4.7750 * expected.pow(3) + 2.0315 * expected.pow(5);
    EXPECT_LE((shown - torch::diag(expected)).abs().max().item<double>(), 1e-10);
    EXPECT_GE(expected[0].item<double>(), 0.65);
    EXPECT_LE(expected[0].item<double>(), 1.25);
  }
  // A tall matrix is treated as its wide transpose. Matrices in a batch are independent.
  EXPECT_LE((orthogonal_factor(all[1].t()) - factor[1].t()).abs().max().item<double>(), 1e-12);
  EXPECT_TRUE(orthogonal_factor(torch::zeros({3, 4})).eq(0).all().item<bool>());
}

TEST(Muon, StepsMatricesByTheFactorOfItsMomentumAndAllElseAsAdamW) {
  const torch::Tensor start = torch::linspace(-1, 1, 12, torch::kFloat64);
  torch::Tensor matrix = start.view({3, 4}).clone().requires_grad_(), bias = start.clone().requires_grad_(),
                expected_bias = start.clone().requires_grad_();
  std::vector<torch::optim::OptimizerParamGroup> groups;
  groups.emplace_back(std::vector<torch::Tensor>{matrix},
                      std::make_unique<MuonOptions>(MuonOptions(0.1).weight_decay(0.5)));
  const auto of_adamw = torch::optim::AdamWOptions(0.02).weight_decay(0.1);
  groups.emplace_back(std::vector<torch::Tensor>{bias}, std::make_unique<torch::optim::AdamWOptions>(of_adamw));
  Muon muon(groups);
  FusedAdamW adamw({expected_bias}, of_adamw);
  torch::Tensor expected = start.view({3, 4}).clone(), momentum = torch::zeros({3, 4}, torch::kFloat64);
  for (int step = 0; step < 3; ++step) {
    const torch::Tensor gradient = torch::cos(start * (step + 2)).view({3, 4});
    matrix.mutable_grad() = gradient.clone();
    bias.mutable_grad() = gradient.view({12}).clone();
    expected_bias.mutable_grad() = bias.grad().clone();
    muon.step();
    adamw.step();
    momentum = 0.95 * momentum + 0.05 * gradient;
    const torch::Tensor direction = 0.05 * gradient + 0.95 * momentum;
    expected = expected * (1 - 0.1 * 0.5) - 0.1 * 0.2 * std::sqrt(4.0) * orthogonal_factor(direction);
    EXPECT_LE((matrix - expected).abs().max().item<double>(), 1e-12) << step;
    EXPECT_TRUE(torch::equal(bias, expected_bias)) << step;
  }
  EXPECT_EQ(optimizer_tensors(muon, matrix).front().first, "momentum_buffer");
  EXPECT_EQ(optimizer_tensors(muon, bias).size(), 2u);
}

TEST(Muon, TakesTheMatricesOfRepeatedLayersAlone) {
  const auto config = config_with("optimizer: {name: muon, weight_decay: 0.5, no_decay: [\"*.bias\"]}\n");
  auto model = build_model(config);
  auto optimizer = build_optimizer(config, *model);
  std::map<void*, std::string> names;
  for (const auto& item : model->named_parameters()) names.emplace(item.value().unsafeGetTensorImpl(), item.key());
  int by_muon = 0;
  for (auto& group : optimizer->param_groups())
    for (const auto& parameter : group.params()) {
      const std::string& name = names.at(parameter.unsafeGetTensorImpl());
      const auto* options = dynamic_cast<const MuonOptions*>(&group.options());
      EXPECT_EQ(options != nullptr, name.starts_with("h.") && parameter.dim() == 2) << name;
      EXPECT_EQ(optimizer_unit(*optimizer, group), options ? OptimizerUnit::kMatrix : OptimizerUnit::kElement) << name;
      if (!options) continue;
      ++by_muon;
      EXPECT_EQ(options->momentum(), 0.95);
      EXPECT_EQ(options->weight_decay(), 0.5);
    }
  EXPECT_EQ(by_muon, 4);
}

TEST(Muon, RefusesWhatItCantStep) {
  const auto groups_of = [](const torch::Tensor& parameter, std::unique_ptr<torch::optim::OptimizerOptions> options) {
    std::vector<torch::optim::OptimizerParamGroup> groups;
    groups.emplace_back(std::vector<torch::Tensor>{parameter}, std::move(options));
    return groups;
  };
  EXPECT_THROW(Muon(groups_of(torch::ones({3}), std::make_unique<MuonOptions>())), UsageError);
  EXPECT_THROW(Muon(groups_of(torch::ones({3, 2}), std::make_unique<torch::optim::SGDOptions>(0.1))), UsageError);
  const auto config = config_with("optimizer: {name: muon}\n");
  try {
    build_optimizer(config, *torch::nn::Linear(3, 4));
    ADD_FAILURE();
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(),
                ::testing::HasSubstr("the value is muon, but the model has no matrix in a repeated layer"));
  }
}

TEST(FusedAdamW, KeepsTheLargestSquaresAsLibTorchsAdamWDoes) {
  const torch::Tensor start = torch::linspace(-1, 1, 7, torch::kFloat64);
  torch::Tensor weight = start.clone().requires_grad_(), expected = start.clone().requires_grad_();
  const auto options = torch::optim::AdamWOptions(0.05).weight_decay(0.1).amsgrad(true);
  FusedAdamW fused({weight}, options);
  torch::optim::AdamW plain({expected}, options);
  // The squares fall. Without their maximum the steps would grow.
  for (const double size : {3.0, 2.0, 1e-3, 1e-4, 0.5}) {
    weight.mutable_grad() = size * torch::cos(start * 3 + size);
    expected.mutable_grad() = weight.grad().clone();
    fused.step();
    plain.step();
    EXPECT_LE((weight - expected).abs().max().item<double>(), 1e-12) << size;
  }
  EXPECT_TRUE(optimizer_tensors(fused, weight)[2].second.sum().item<double>() > 0);
}

// With clipping, AdamW's kernel scales the gradients while it reads them.
TEST(FusedAdamW, StepsGradientsThatItScalesAndLeavesThemScaled) {
  for (const bool largest : {false, true}) {
    // Several vector registers, and not a multiple of one.
    const torch::Tensor start = torch::linspace(-1, 1, 71);
    torch::Tensor weight = start.clone().requires_grad_(), expected = start.clone().requires_grad_();
    const auto options = torch::optim::AdamWOptions(0.05).weight_decay(0.1).amsgrad(largest);
    FusedAdamW scaling({weight}, options), plain({expected}, options);
    for (const double factor : {0.25, 1.0, 1e-3, 0.7}) {
      weight.mutable_grad() = torch::cos(start * 3 + factor);
      expected.mutable_grad() = weight.grad() * factor;
      step_by_adamw(scaling, factor);
      plain.step();
      EXPECT_TRUE(torch::allclose(weight.grad(), expected.grad(), 1e-6, 0)) << factor;
      EXPECT_TRUE(torch::allclose(weight, expected, 1e-5, 1e-6)) << factor;
    }
    const auto held = optimizer_tensors(scaling, weight), of_plain = optimizer_tensors(plain, expected);
    ASSERT_EQ(held.size(), of_plain.size());
    for (std::size_t i = 0; i < held.size(); ++i)
      EXPECT_TRUE(torch::allclose(held[i].second, of_plain[i].second, 1e-5, 1e-9)) << held[i].first;
  }
}

std::vector<std::string> kept_of(torch::optim::Optimizer& optimizer, const torch::Tensor& parameter) {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : optimizer_tensors(optimizer, parameter)) names.push_back(name);
  return names;
}

// Two groups, of which the second has its own options.
template <class Optimizer, class Options>
void expect_kept(const Options& defaults, const Options& own, const std::vector<std::string>& by_default,
                 const std::vector<std::string>& by_own) {
  const auto parameter = [] { return torch::ones({2}).requires_grad_(); };
  const torch::Tensor first = parameter(), second = parameter();
  std::vector<torch::optim::OptimizerParamGroup> groups;
  groups.emplace_back(std::vector<torch::Tensor>{first});
  groups.emplace_back(std::vector<torch::Tensor>{second}, std::make_unique<Options>(own));
  Optimizer optimizer(std::move(groups), defaults);
  for (const bool after_a_step : {false, true}) {
    EXPECT_EQ(kept_of(optimizer, first), by_default);
    EXPECT_EQ(kept_of(optimizer, second), by_own);
    if (after_a_step) break;
    for (torch::Tensor each : {first, second}) each.mutable_grad() = torch::ones({2});
    optimizer.step();
  }
}

TEST(OptimizerTensors, AreThoseOfTheParametersOwnGroup) {
  using torch::optim::AdamOptions, torch::optim::AdamWOptions, torch::optim::SGDOptions;
  const std::vector<std::string> moments = {"exp_avg", "exp_avg_sq"};
  const std::vector<std::string> with_largest = {"exp_avg", "exp_avg_sq", "max_exp_avg_sq"};
  expect_kept<torch::optim::AdamW>(AdamWOptions(), AdamWOptions().amsgrad(true), moments, with_largest);
  expect_kept<FusedAdamW>(AdamWOptions(), AdamWOptions().amsgrad(true), moments, with_largest);
  expect_kept<torch::optim::Adam>(AdamOptions(), AdamOptions().amsgrad(true), moments, with_largest);
  expect_kept<torch::optim::SGD>(SGDOptions(0.1), SGDOptions(0.1).momentum(0.9), {}, {"momentum_buffer"});
}

}  // namespace
}  // namespace gantry::testing
