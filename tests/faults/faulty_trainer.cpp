// A small training program that fails on request: faulty_trainer FOLDER STEPS RANKS-OF-TP RANKS-OF-PP TIMEOUT
//
// GANTRY_FAULT=KIND@MOMENT:RANK:STEP selects the fault. A run that `gantry launch` has restarted
// (GANTRY_RESTART above 0) has no fault. The program saves into FOLDER after every second step, starts from
// the newest checkpoint there, and prints the last loss with all digits.
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <sstream>
#include <stdexcept>
#include <thread>
#include <unistd.h>

#include <torch/nn/functional/loss.h>

#include "gantry/booster/gantry.h"
#include "gantry/checkpoint/writer.h"
#include "gantry/policies/policy.h"
#include "gantry/tensors/libtorch.h"

namespace {

struct Fault {
  std::string kind, moment;
  int rank = -1;
  long step = 0;
};

Fault wanted_fault() {
  const char* text = std::getenv("GANTRY_FAULT");
  const char* restart = std::getenv("GANTRY_RESTART");
  if (!text || (restart && std::atoi(restart) > 0)) return {};
  Fault fault;
  char colon = 0;
  std::istringstream stream(text);
  std::getline(stream, fault.kind, '@');
  std::getline(stream, fault.moment, ':');
  stream >> fault.rank >> colon >> fault.step;
  return fault;
}

const Fault fault = wanted_fault();

// The delay of a slow rank, shorter than any timeout.
constexpr auto kSlow = std::chrono::seconds(1);

// A rank is one thread.
thread_local gantry::World* world = nullptr;
thread_local long step = 0;

// Suspends this process (SIGSTOP). A child process resumes it after kSlow.
void stop_briefly() {
  const pid_t self = ::getpid();
  if (::fork() == 0) {
    std::this_thread::sleep_for(kSlow);
    ::kill(self, SIGCONT);
    ::_exit(0);
  }
  ::raise(SIGSTOP);
}

void fail_by(const std::string& kind) {
  if (kind == "exception") throw std::runtime_error("a fault of the test's");
  if (kind == "memory") torch::empty({std::int64_t{1} << 50});
  if (kind == "abort") std::abort();
  if (kind == "segv") *static_cast<volatile int*>(nullptr) = 1;
  if (kind == "kill") ::raise(SIGKILL);
  if (kind == "term") ::raise(SIGTERM);
  if (kind == "stop") ::raise(SIGSTOP);
  if (kind == "brief") stop_briefly();
  if (kind == "exit") ::_exit(0);
  if (kind == "leave") std::exit(0);
  if (kind == "slow") std::this_thread::sleep_for(kSlow);
  if (kind == "deadlock")
    for (;;) ::pause();
}

void moment(const char* name) {
  thread_local bool done = false;
  if (done || !world || fault.rank != world->rank() || fault.moment != name || fault.step > step) return;
  done = true;
  fail_by(fault.kind);
}

// The identity. A fault can happen in its backward.
struct FaultPoint : torch::autograd::Function<FaultPoint> {
  static torch::Tensor forward(torch::autograd::AutogradContext*, const torch::Tensor& x) { return x.clone(); }
  static torch::autograd::tensor_list backward(torch::autograd::AutogradContext*,
                                               torch::autograd::tensor_list gradients) {
    moment("backward");
    return gradients;
  }
};

// A save that can fail between its first byte and its last.
struct FaultyFiles : gantry::FileSystem {
  ssize_t write(int file, const void* data, std::size_t bytes) override {
    moment("save");
    return FileSystem::write(file, data, bytes);
  }
};

struct BlockImpl : torch::nn::Module {
  explicit BlockImpl(int width) {
    up = register_module("up", gantry::nn::Linear(width, 4 * width));
    down = register_module("down", gantry::nn::Linear(4 * width, width));
  }
  torch::Tensor forward(const torch::Tensor& x) { return x + down(torch::relu(up(x))); }
  gantry::nn::Linear up{nullptr}, down{nullptr};
};
TORCH_MODULE(Block);

struct StackImpl : torch::nn::Module {
  StackImpl(int width, int depth) {
    blocks = register_module("blocks", torch::nn::ModuleList());
    for (int i = 0; i < depth; ++i) blocks->push_back(Block(width));
    head = register_module("head", gantry::nn::Linear(width, 2));
  }
  gantry::nn::Linear head{nullptr};
  torch::nn::ModuleList blocks;
};
TORCH_MODULE(Stack);

class StackPolicy final : public gantry::PolicyFor<StackImpl> {
 public:
  std::string name() const override { return "StackPolicy"; }
  gantry::ModelSplit split(const StackImpl&) const override {
    return {.shards = {{"blocks.*.up", gantry::Column{}}, {"blocks.*.down", gantry::Row{}}},
            .stages = {.first = {}, .repeated = "blocks", .last = {"head"}}};
  }
  gantry::TensorDict forward(StackImpl& model, const gantry::StageContext& stage,
                             gantry::TensorDict in) const override {
    moment("forward");
    torch::Tensor hidden = stage.is_first() ? in.at("x") : in.at("hidden");
    for (const int layer : stage.layers()) hidden = model.blocks->at<BlockImpl>(layer).forward(hidden);
    if (!stage.is_last()) return {{"hidden", FaultPoint::apply(hidden)}};
    return {{"scores", FaultPoint::apply(model.head(hidden))}};
  }
};

gantry::Batch batch_of(long number) {
  torch::Tensor x = torch::sin(torch::arange(16 * 8).view({16, 8}) * (1.7 + 0.3 * static_cast<double>(number % 7)));
  return gantry::make_batch({{"x", x}, {"y", (x.sum(1) > 0).to(torch::kInt64)}});
}

void train(gantry::World& here, const gantry::Config& config, const std::string& folder, long steps) {
  world = &here;
  step = 0;
  moment("start");
  auto* plugin = new gantry::HybridParallelPlugin(here, config);
  gantry::Booster booster{std::unique_ptr<gantry::Plugin>(plugin)};
  auto model = [] {
    const gantry::DeferredInit deferred;
    return Stack(8, 4);
  }();
  auto optimizer =
      std::make_shared<torch::optim::SGD>(model->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
  const auto criterion = [](const gantry::TensorDict& outputs, const gantry::TensorDict& batch) {
    return torch::nn::functional::cross_entropy(outputs.at("scores"), batch.at("y"));
  };
  auto boosted = booster.boost(model, optimizer, criterion);
  FaultyFiles files;
  gantry::CheckpointWriter writer(folder, plugin->mesh(), {.async = false, .files = &files});
  if (const auto found = gantry::find_newest_checkpoint(folder); found.folder) {
    gantry::load_checkpoint(*found.folder, plugin->state(boosted), plugin->mesh());
    step = gantry::read_checkpoint_info(*found.folder).step;
  }
  double loss = 0;
  while (step < steps) {
    ++step;
    loss = *booster.execute_pipeline(batch_of(step), boosted, {.broadcast_loss = true}).loss;
    moment("optimizer");
    boosted.optimizer->step();
    boosted.optimizer->zero_grad();
    if (step % 2 == 0)
      writer.save(
          {.directory = folder, .step = step, .config_text = "", .model_config = {{"width", 8}}, .policy = "stack"},
          plugin->state(boosted));
  }
  writer.finish();
  moment("end");
  if (here.is_main()) std::printf("loss %.17g\n", loss);
  std::fflush(stdout);
  world = nullptr;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 6) return 2;
  gantry::policies().add<StackPolicy>("stack");
  const auto config = gantry::Config::parse(
      fmt::format("model: {{policy: stack}}\nparallel: {{tensor: {}, pipeline: {}}}\nschedule: {{microbatches: 4}}\n"
                  "comm: {{timeout_seconds: {}, threads_per_rank: 1}}\n",
                  argv[3], argv[4], argv[5]));
  return gantry::launch(config, [&](gantry::World& here) { train(here, config, argv[1], std::atol(argv[2])); });
}
