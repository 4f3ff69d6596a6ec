// Placements with a made-up axis that shards a second dimension. Other tensors have row shards over dp in
// addition to tp (like ZeRO 3), shared heads or partial gradients. Norms, steps, replica audits and
// checkpoints must match one rank. The optimizers work on elements, on rows, or on matrices.
#include <cmath>
#include <functional>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "gantry/checkpoint/writer.h"
#include "gantry/launch/backends.h"
#include "gantry/optimizers/gradient_norm.h"
#include "gantry/optimizers/master_parameters.h"
#include "gantry/optimizers/muon.h"
#include "gantry/optimizers/optimizer_tensors.h"
#include "gantry/plugins/gather.h"
#include "gantry/plugins/replica_audit.h"
#include "gantry/tensors/deferred_init.h"
#include "gantry/tensors/libtorch.h"
#include "gantry/tensors/slice_copy.h"
#include "program.h"

namespace gantry::testing {
namespace {

constexpr const char* kMadeUp = "xp";
constexpr double kCloseness = 1e-10;

struct ToyLayout {
  int data = 1, other = 1, tensor = 1;
  int zero = 0;
  Mesh mesh() const {
    return Mesh({{axis::kPipeline, 1}, {axis::kData, data}, {kMadeUp, other}, {axis::kTensor, tensor}});
  }
};

std::vector<Placement> toy_placements(const Mesh& mesh) {
  const auto over = [&](ShardSpec shard, const char* name) {
    shard.axes = {{name, mesh.axis_size(name)}};
    return shard;
  };
  const int tensor = mesh.axis_size(axis::kTensor), other = mesh.axis_size(kMadeUp);
  const auto placed = [](const char* name, Shape shape, std::vector<ShardSpec> shards) {
    return Placement{
        .name = name, .global_shape = std::move(shape), .shards = std::move(shards), .stages = {0}, .aliases = {}};
  };
  const ShardSpec columns = over(shard(0, 12, tensor, 2), axis::kTensor);
  const ShardSpec heads =
      over(shard_parts(0, {{.size = 4, .unit = 2, .users = 6}, {.size = 6}}, tensor), axis::kTensor);
  std::vector<Placement> all{
      placed("fused", {12, 7}, {columns, over(shard(1, 7, other), kMadeUp)}),
      placed("rows", {12, 5}, {columns, shard_rows(5, {{axis::kData, mesh.axis_size(axis::kData)}})}),
      placed("heads", {10, 3}, {heads}),
      placed("norm", {7}, {over(shard(0, 7, other), kMadeUp)}),
      placed("bias", {9, 2}, {}),
  };
  all[3].partial_axes = {axis::kTensor};
  return all;
}

// The full gradient. It is the same in every layout.
torch::Tensor full_gradient(const Placement& placement, int step) {
  const double phase = static_cast<double>(placement.name.size()) + 3.0 * step;
  return (torch::arange(elements_of(placement.global_shape), torch::kFloat64) * 0.7 + phase)
      .sin()
      .view(placement.global_shape);
}

// This rank's share of the gradient. The ranks over which the gradient is reduced have unequal shares. Ranks
// that hold the same elements of an overlapping shard have equal parts of these.
torch::Tensor share_of(const Placement& placement, int step, const ProcessGroupMesh& mesh) {
  const Mesh& all = mesh.mesh();
  torch::Tensor full = full_gradient(placement, step);
  torch::Tensor holders = torch::zeros(placement.global_shape, torch::kFloat64);
  for (const int peer : all.ranks_along(mesh.rank(), {axis::kTensor})) {
    if (!placement.overlaps()) break;
    const Slice held = held_slice(placement, all.coordinates_by_axis(peer));
    torch::Tensor counted = torch::zeros(placement.global_shape, torch::kFloat64);
    copy_common(counted, full_slice(placement.global_shape), torch::ones(held.shape, torch::kFloat64), held);
    holders += counted;
  }
  if (placement.overlaps()) full = full / holders;
  const auto axes = placement.gradient_axes(all.batch_axes());
  const auto summed = axes.empty() ? std::vector<int>{mesh.rank()} : all.ranks_along(mesh.rank(), axes);
  double total = 0, mine = 0;
  for (std::size_t i = 0; i < summed.size(); ++i) {
    total += static_cast<double>(i) + 1;
    if (summed[i] == mesh.rank()) mine = static_cast<double>(i) + 1;
  }
  return take_slice(full * (mine / total), held_slice(placement, mesh.coordinates()));
}

// A policy for a module without computation.
class NoLayers final : public Policy {
 public:
  std::string name() const override { return "NoLayers"; }
  ModelSplit split(const torch::nn::Module&) const override { return {}; }
  TensorDict forward(torch::nn::Module&, const StageContext&, TensorDict input) const override { return input; }
};

// SGD with a momentum that is normalized per row.
class SgdOfRows final : public torch::optim::Optimizer, public StatefulOptimizer {
 public:
  explicit SgdOfRows(const std::vector<torch::Tensor>& parameters)
      : Optimizer({torch::optim::OptimizerParamGroup(parameters)}, std::make_unique<torch::optim::SGDOptions>(0.05)) {}
  torch::Tensor step(LossClosure /*closure*/ = nullptr) override {
    const torch::NoGradGuard no_grad;
    for (auto& parameter : param_groups_.front().params()) {
      if (parameter.numel() == 0) continue;
      torch::Tensor momentum = state_tensors(parameter).front().second;
      momentum.mul_(0.9).add_(parameter.grad());
      parameter.sub_(0.05 * momentum / momentum.norm(2, -1, /*keepdim=*/true));
    }
    return {};
  }
  NamedTensors state_tensors(const torch::Tensor& parameter) override {
    auto& momentum = momentum_[parameter.unsafeGetTensorImpl()];
    if (!momentum.defined()) momentum = torch::zeros_like(parameter).detach();
    return {{"momentum", momentum}};
  }
  OptimizerUnit unit(const torch::optim::OptimizerParamGroup&) const override { return OptimizerUnit::kRow; }

 private:
  std::map<void*, torch::Tensor> momentum_;
};

std::unique_ptr<torch::optim::Optimizer> toy_optimizer(OptimizerUnit unit, const std::vector<torch::Tensor>& tensors) {
  if (unit == OptimizerUnit::kElement)
    return std::make_unique<torch::optim::AdamW>(tensors, torch::optim::AdamWOptions(0.05));
  if (unit == OptimizerUnit::kRow) return std::make_unique<SgdOfRows>(tensors);
  std::vector<torch::optim::OptimizerParamGroup> groups;
  for (const auto& tensor : tensors) {
    std::unique_ptr<torch::optim::OptimizerOptions> options = std::make_unique<MuonOptions>(0.05);
    if (tensor.dim() < 2) options = std::make_unique<torch::optim::AdamWOptions>(0.05);
    groups.emplace_back(std::vector<torch::Tensor>{tensor}, std::move(options));
  }
  return std::make_unique<Muon>(groups);
}

// One rank of the test: parameters, gradients, an optimizer and its state.
class Toy final : public StateSource {
 public:
  Toy(World& world, int zero, OptimizerUnit unit)
      : mesh_(world),
        module_(std::make_shared<torch::nn::Module>(), std::make_shared<const NoLayers>(), {}),
        buffers_(make_parameters(), {}, mesh_, {.zero = zero}) {
    std::vector<torch::Tensor> tensors;
    for (const auto& held : buffers_.parameters()) tensors.push_back(held.tensor);
    optimizer_ = toy_optimizer(unit, tensors);
    if (MasterParameters::needed(*optimizer_, buffers_.parameters(), zero > 0))
      masters_ = std::make_unique<MasterParameters>(*optimizer_, buffers_, mesh_);
  }

  // Takes a step and returns the gradient norm.
  double step(int number) {
    buffers_.begin_accumulation();
    for (const auto& [placement, tensor] : buffers_.parameters()) {
      torch::Tensor& gradient = torch::Tensor(tensor).mutable_grad();
      const torch::Tensor share = share_of(placement, number, mesh_);
      if (gradient.defined())
        gradient.add_(share);
      else
        gradient = share.clone();
    }
    if (buffers_.scatters()) buffers_.scatter_stage(0);
    buffers_.sync(1);
    const double norm = gradient_norm(buffers_, mesh_, {0});
    if (masters_) masters_->before_step();
    optimizer_->step();
    if (masters_) masters_->after_step();
    buffers_.wait_values();
    buffers_.complete();
    const PipelineStageManager stages(0, 1);
    audit_replicas(buffers_, mesh_, stages);
    for (std::size_t i = 0; i < buffers_.parameters().size(); ++i)
      gradients_differ_ += difference_of_gradient(i, number);
    buffers_.zero();
    ++steps_;
    return norm;
  }

  TensorDict weights() {
    const PipelineStageManager stages(0, 1);
    return gather_tensors(module_, stages, mesh_, [&](std::size_t i) { return buffers_.parameters()[i].tensor; });
  }
  double gradients_differ() const { return gradients_differ_; }
  ProcessGroupMesh& mesh() { return mesh_; }

  std::vector<StateEntry> state_entries() override {
    std::vector<StateEntry> entries;
    for (std::size_t i = 0; i < buffers_.parameters().size(); ++i) {
      const auto& held = buffers_.parameters()[i];
      const Placement stepped = masters_ ? masters_->placement(i) : held.placement;
      entries.push_back({"model", held, ""});
      for (const auto& [name, tensor] : optimizer_tensors(*optimizer_, master(i)))
        entries.push_back(
            {"optimizer." + name, {stepped, tensor.detach().view(stepped.local_shape(mesh_.coordinates()))}, ""});
    }
    return entries;
  }
  int first_holder(const Placement&) const override { return 0; }
  nlohmann::json state_numbers() const override { return {{"steps", steps_}}; }
  void load_state_numbers(const nlohmann::json& numbers) override {
    steps_ = numbers.at("steps");
    for (std::size_t i = 0; i < buffers_.parameters().size(); ++i) set_optimizer_steps(*optimizer_, master(i), steps_);
    if (masters_) masters_->loaded();
  }

 private:
  // Initial weights by Philox, sampled only for the local part.
  std::vector<HeldTensor> make_parameters() {
    module_.all_placements = toy_placements(mesh_.mesh());
    for (const auto& placement : module_.all_placements) {
      const auto deferred = [&] {
        const DeferredInit recording;
        return torch::empty(placement.global_shape, torch::kFloat64).uniform_(-1, 1);
      };
      torch::Tensor full = deferred(), part = deferred(), shard = deferred();
      materialize(full, placement.name, 3);
      for (const ShardSpec& each : placement.shards) shard_tensor(part, each, each.rank_of(mesh_.coordinates()));
      materialize(part, placement.name, 3);
      materialize(shard, placement.name, 3);  // shards a tensor that has memory
      for (const ShardSpec& each : placement.shards) shard_tensor(shard, each, each.rank_of(mesh_.coordinates()));
      const torch::Tensor expected = take_slice(full, held_slice(placement, mesh_.coordinates()));
      EXPECT_TRUE(torch::equal(part, expected)) << placement.name;
      EXPECT_TRUE(torch::equal(shard, expected)) << placement.name;
      module_.parameters.push_back({placement, part.requires_grad_()});
    }
    return module_.parameters;
  }

  const torch::Tensor& master(std::size_t i) const {
    return masters_ ? masters_->master(i) : buffers_.parameters()[i].tensor;
  }

  double difference_of_gradient(std::size_t i, int step) const {
    const auto& placement = buffers_.parameters()[i].placement;
    const torch::Tensor expected =
        take_slice(full_gradient(placement, step), held_slice(placement, mesh_.coordinates()));
    const double difference = (buffers_.gradient(i).view(expected.sizes()) - expected).abs().sum().item<double>();
    EXPECT_LE(difference, kCloseness) << placement.name;
    return difference;
  }

  ProcessGroupMesh mesh_;
  StageModule module_;
  GradientBuffers buffers_;
  std::unique_ptr<torch::optim::Optimizer> optimizer_;
  std::unique_ptr<MasterParameters> masters_;
  std::int64_t steps_ = 0;
  double gradients_differ_ = 0;
};

void run_toy(const ToyLayout& layout, OptimizerUnit unit, const std::function<void(Toy&)>& body) {
  Config config;
  config.comm.timeout_seconds = 30;
  config.comm.threads_per_rank = 1;
  const auto failure = run_local(config, layout.mesh(), [&](World& world) {
    Toy toy(world, layout.zero, unit);
    body(toy);
    toy.mesh().world_group().barrier().wait();
  });
  ASSERT_FALSE(failure) << failure->line;
}

struct Reference {
  std::vector<double> norms;
  std::vector<TensorDict> weights;  // after each step
};

Reference reference_of(OptimizerUnit unit, int steps) {
  Reference reference;
  run_toy({}, unit, [&](Toy& toy) {
    for (int step = 0; step < steps; ++step) {
      reference.norms.push_back(toy.step(step));
      reference.weights.push_back(toy.weights());
      for (auto& [name, tensor] : reference.weights.back()) tensor = tensor.clone();
    }
  });
  return reference;
}

void expect_as(const TensorDict& expected, const TensorDict& weights) {
  for (const auto& [name, tensor] : expected)
    EXPECT_LE((weights.at(name) - tensor).abs().max().item<double>(), kCloseness) << name;
}

constexpr int kToySaved = 2, kToySteps = 4;
const std::vector<ToyLayout> kToyLayouts = {
    {.other = 2},
    {.data = 2, .other = 2, .tensor = 2},
    {.data = 2, .other = 1, .tensor = 3, .zero = 1},  // shared heads; rows unevenly
    {.data = 2, .other = 2, .tensor = 2, .zero = 2},
    {.data = 3, .other = 2, .zero = 1},
    {.data = 1, .other = 2, .tensor = 3},
};

class FurtherAxis : public ::testing::TestWithParam<OptimizerUnit> {};
INSTANTIATE_TEST_SUITE_P(ElementsRowsAndMatrices, FurtherAxis,
                         ::testing::Values(OptimizerUnit::kElement, OptimizerUnit::kRow, OptimizerUnit::kMatrix));

TEST_P(FurtherAxis, EverythingThatFollowsFromPlacementsIsAsOnOneRank) {
  const Reference reference = reference_of(GetParam(), kToySteps);
  double expected = 0;
  for (const auto& placement : toy_placements(ToyLayout{}.mesh()))
    expected += std::pow(full_gradient(placement, 0).norm().item<double>(), 2);
  EXPECT_NEAR(reference.norms[0], std::sqrt(expected), kCloseness);
  const ScratchFolder scratch;
  for (std::size_t from = 0; from < kToyLayouts.size(); ++from) {
    const ToyLayout& layout = kToyLayouts[from];
    SCOPED_TRACE(layout.mesh().describe() + " zero " + std::to_string(layout.zero));
    const std::string folder = scratch / ("saved" + std::to_string(from));
    std::string saved;
    run_toy(layout, GetParam(), [&](Toy& toy) {
      for (int step = 0; step < kToySaved; ++step) {
        EXPECT_NEAR(toy.step(step), reference.norms[step], kCloseness);
        expect_as(reference.weights[step], toy.weights());
      }
      const SaveRequest request{
          .directory = folder, .step = kToySaved, .model_config = nlohmann::json::object(), .policy = "toy"};
      const std::string made = save_checkpoint(request, toy, toy.mesh());
      if (toy.mesh().rank() == 0) saved = made;
    });
    if (HasFailure()) return;
    // Resharded: to one rank, and to the next layout.
    for (const ToyLayout& to : {ToyLayout{}, kToyLayouts[(from + 1) % kToyLayouts.size()]}) {
      SCOPED_TRACE("into " + to.mesh().describe() + " zero " + std::to_string(to.zero));
      run_toy(to, GetParam(), [&](Toy& toy) {
        load_checkpoint(saved, toy, toy.mesh());
        expect_as(reference.weights[kToySaved - 1], toy.weights());
        for (int step = kToySaved; step < kToySteps; ++step)
          EXPECT_NEAR(toy.step(step), reference.norms[step], kCloseness);
        expect_as(reference.weights[kToySteps - 1], toy.weights());
      });
      if (HasFailure()) return;
    }
  }
}

}  // namespace
}  // namespace gantry::testing
