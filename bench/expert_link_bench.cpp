// What computing hides of the time that rows of experts are under way: training steps over links that hold back every
// all-to-all for some milliseconds after a rank has posted it.
//   expert_link_bench [--quick]
// A JSON line for each case: seconds of a step without delay, where every rank waits at once, and as Gantry runs it.
// `hidden` is the share of the delay that the last one saves. Ranks are threads; those that wait compute nothing, so
// with fewer cores than ranks others' computing hides some of the delay in both.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <map>
#include <thread>

#include <torch/torch.h>

#include "gantry/booster/gantry.h"

namespace {

using Clock = std::chrono::steady_clock;

enum class Mode { kNoDelay, kWaitsAtOnce, kOverlaps };
constexpr Mode kModes[] = {Mode::kNoDelay, Mode::kWaitsAtOnce, Mode::kOverlaps};

struct Link {
  Mode mode = Mode::kNoDelay;
  std::chrono::milliseconds delay{0};
  long held = 0;  // all-to-alls of this rank
};

class HeldBack final : public gantry::Work::State {
 public:
  HeldBack(gantry::Work inner, Clock::time_point end) : inner_(std::move(inner)), end_(end) {}
  bool done() override { return inner_.done() && Clock::now() >= end_; }
  void wait() override {
    inner_.wait();
    std::this_thread::sleep_until(end_);
  }

 private:
  gantry::Work inner_;
  Clock::time_point end_;
};

class DelayedGroup final : public gantry::ProcessGroup {
 public:
  DelayedGroup(std::unique_ptr<gantry::ProcessGroup> inner, Link& link) : inner_(std::move(inner)), link_(link) {}
  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  gantry::Work send(const torch::Tensor& tensor, int to, const gantry::Tag& tag) override {
    return inner_->send(tensor, to, tag);
  }
  gantry::Work hand_over(const torch::Tensor& tensor, int to, const gantry::Tag& tag) override {
    return inner_->hand_over(tensor, to, tag);
  }
  gantry::Work recv(const gantry::TensorSpec& spec, int from, const gantry::Tag& tag) override {
    return inner_->recv(spec, from, tag);
  }
  gantry::Work start(const gantry::Collective& call) override {
    gantry::Work work = inner_->start(call);
    if (call.kind != gantry::OperationKind::kAllToAll || link_.mode == Mode::kNoDelay) return work;
    ++link_.held;
    gantry::Work held(std::make_shared<HeldBack>(std::move(work), Clock::now() + link_.delay));
    if (link_.mode == Mode::kWaitsAtOnce) held.wait();
    return held;
  }
  void abort(const std::string& reason) override { inner_->abort(reason); }

 private:
  std::unique_ptr<gantry::ProcessGroup> inner_;
  Link& link_;
};

class DelayedBackend final : public gantry::Backend {
 public:
  DelayedBackend(gantry::Backend& inner, Link& link) : inner_(inner), link_(link) {}
  const char* name() const override { return inner_.name(); }
  int rank() const override { return inner_.rank(); }
  int size() const override { return inner_.size(); }
  torch::Device device() const override { return inner_.device(); }
  std::shared_ptr<gantry::DeviceEnd> take_end() const override { return inner_.take_end(); }
  std::unique_ptr<gantry::ProcessGroup> make_group(const std::string& label, const std::vector<int>& ranks) override {
    return std::make_unique<DelayedGroup>(inner_.make_group(label, ranks), link_);
  }
  void abort(const std::string& reason) override { inner_.abort(reason); }
  bool has_ended(int rank) const override { return inner_.has_ended(rank); }

 private:
  gantry::Backend& inner_;
  Link& link_;
};

struct Case {
  const char* name;
  const char* yaml;
  int milliseconds;
};

constexpr std::int64_t kTokens = 128, kVocabulary = 256, kSamples = 8;

// Products of the shared experts take longer than the delay, and so do those of the other of a pair.
const Case kCases[] = {{"shared experts, ep 2",
                        R"(model: {policy: qwen2_moe, config: {vocab_size: 256, hidden_size: 256, num_hidden_layers: 4,
         num_attention_heads: 8, num_key_value_heads: 4, num_experts: 8, num_experts_per_tok: 2,
         moe_intermediate_size: 128, shared_expert_intermediate_size: 1024, max_position_embeddings: 128}}
parallel: {data: 2, expert: 2}
comm: {threads_per_rank: 1})",
                        10},
                       {"DualPipe-V, pp 2 x ep 2",
                        R"(model: {policy: mixtral, config: {vocab_size: 256, hidden_size: 256, num_hidden_layers: 4,
         num_attention_heads: 8, num_key_value_heads: 4, num_local_experts: 8, num_experts_per_tok: 2,
         intermediate_size: 512, max_position_embeddings: 128}}
parallel: {pipeline: 2, data: 2, expert: 2}
schedule: {name: dualpipe_v, microbatches: 4}
comm: {threads_per_rank: 1})",
                        10}};

gantry::Batch batch_of(int replicas, int replica) {
  const torch::Tensor ids = torch::arange(kSamples * kTokens).view({kSamples, kTokens}) * 37 % kVocabulary;
  return gantry::replica_part(gantry::make_batch({{"input_ids", ids}, {"labels", ids.roll(-1, 1)}}), replicas, replica);
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

void measure(const Case& what, int rounds) {
  const gantry::Config config = gantry::Config::parse(what.yaml, what.name);
  gantry::launch(config, [&](gantry::World& inner) {
    Link link{.delay = std::chrono::milliseconds(what.milliseconds)};
    DelayedBackend backend(inner.backend(), link);
    gantry::World world(backend, inner.config(), inner.mesh());
    auto* plugin = new gantry::HybridParallelPlugin(world, config);
    gantry::Booster booster{std::unique_ptr<gantry::Plugin>(plugin)};
    auto model = gantry::build_model(config);
    auto boosted = booster.boost(model, gantry::build_optimizer(config, *model), gantry::cross_entropy());
    const auto& mesh = plugin->mesh();
    const gantry::Batch batch = batch_of(mesh.size("dp"), mesh.coordinate("dp"));
    std::map<Mode, std::vector<double>> seconds;
    // In turn, so that a machine whose speed drifts is fair to all; the first round warms up.
    for (int round = 0; round <= rounds; ++round)
      for (const Mode mode : kModes) {
        link.mode = mode;
        link.held = 0;
        mesh.world_group().barrier().wait();
        const auto start = Clock::now();
        booster.execute_pipeline(batch, boosted);
        boosted.optimizer->step();
        boosted.optimizer->zero_grad();
        mesh.world_group().barrier().wait();
        if (round > 0) seconds[mode].push_back(std::chrono::duration<double>(Clock::now() - start).count());
      }
    if (!world.is_main()) return;
    const double plain = median(seconds[Mode::kNoDelay]), at_once = median(seconds[Mode::kWaitsAtOnce]),
                 overlapped = median(seconds[Mode::kOverlaps]);
    std::printf(
        "{\"case\": \"%s\", \"milliseconds\": %d, \"all_to_alls\": %ld, \"no_delay\": %.4f, \"waits_at_once\": %.4f, "
        "\"overlaps\": %.4f, \"hidden\": %.3f}\n",
        what.name, what.milliseconds, link.held, plain, at_once, overlapped,
        (at_once - overlapped) / (at_once - plain));
    std::fflush(stdout);
  });
}

}  // namespace

int main(int argc, char** argv) {
  const bool quick = argc > 1 && std::strcmp(argv[1], "--quick") == 0;
  for (const Case& what : kCases) measure(what, quick ? 3 : 11);
  return 0;
}
