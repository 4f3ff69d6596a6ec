// Measures the share of the expert communication that overlaps with computation. The links delay each
// all-to-all by some milliseconds after a rank has posted it.
//   expert_link_bench [--quick]
// Prints one JSON line per case: seconds per step without delay, with every rank waiting
// at once, and with Gantry's overlap. `hidden` is the share of the delays that ranks
// compute through in the last mode. It is based on the processor time of the ranks'
// threads, so that other programs do not affect it. Ranks are threads: with fewer cores
// than ranks, other ranks compute while one waits, and steps gain less than `hidden`.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <map>
#include <thread>
#include <utility>

#include "gantry/booster/gantry.h"
#include "gantry/tensors/libtorch.h"

namespace {

using Clock = std::chrono::steady_clock;

enum class Mode { kNoDelay, kWaitsAtOnce, kOverlaps };
constexpr Mode kModes[] = {Mode::kNoDelay, Mode::kWaitsAtOnce, Mode::kOverlaps};

struct Link {
  Mode mode = Mode::kNoDelay;
  std::chrono::milliseconds delay{0};
  long held = 0;      // number of this rank's delayed all-to-alls in the step
  double waited = 0;  // seconds of these delays that the rank did not compute through
};

// Processor time of the calling thread, which runs the forwards and backwards of its rank.
double processor_seconds() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

class HeldBack final : public gantry::Work::State {
 public:
  HeldBack(gantry::Work inner, Link& link) : inner_(std::move(inner)), link_(link) {}
  bool done() override { return inner_.done() && Clock::now() >= end_; }
  void wait() override {
    const double computed = processor_seconds() - posted_;
    if (!std::exchange(waited_, true))
      link_.waited += std::max(0.0, std::chrono::duration<double>(link_.delay).count() - computed);
    inner_.wait();
    std::this_thread::sleep_until(end_);
  }

 private:
  gantry::Work inner_;
  Link& link_;
  const Clock::time_point end_ = Clock::now() + link_.delay;
  const double posted_ = processor_seconds();
  bool waited_ = false;
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
    gantry::Work held(std::make_shared<HeldBack>(std::move(work), link_));
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
  std::int64_t samples;
};

constexpr std::int64_t kTokens = 128, kVocabulary = 256;

// Shared experts have the proportions of Qwen 1.5; the other experts have those of Mixtral.
const Case kCases[] = {{"shared experts, ep 2",
                        R"(model: {policy: qwen2_moe, config: {vocab_size: 256, hidden_size: 512, num_hidden_layers: 2,
         num_attention_heads: 8, num_key_value_heads: 8, num_experts: 8, num_experts_per_tok: 4,
         moe_intermediate_size: 352, shared_expert_intermediate_size: 1408, max_position_embeddings: 128}}
parallel: {data: 2, expert: 2}
comm: {threads_per_rank: 1})",
                        10, 8},
                       {"DualPipe-V, pp 2 x ep 2",
                        R"(model: {policy: mixtral, config: {vocab_size: 256, hidden_size: 256, num_hidden_layers: 4,
         num_attention_heads: 8, num_key_value_heads: 2, num_local_experts: 8, num_experts_per_tok: 2,
         intermediate_size: 896, max_position_embeddings: 128}}
parallel: {pipeline: 2, data: 2, expert: 2}
schedule: {name: dualpipe_v, microbatches: 8}
comm: {threads_per_rank: 1})",
                        5, 32}};

gantry::Batch batch_of(std::int64_t samples, int replicas, int replica) {
  const torch::Tensor ids = torch::arange(samples * kTokens).view({samples, kTokens}) * 37 % kVocabulary;
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
    const gantry::Batch batch = batch_of(what.samples, mesh.size("dp"), mesh.coordinate("dp"));
    std::map<Mode, std::vector<double>> seconds;
    std::vector<double> hidden;
    // The modes alternate, so that a drift of the machine's
    // speed affects all equally. The first round warms up.
    for (int round = 0; round <= rounds; ++round)
      for (const Mode mode : kModes) {
        link.mode = mode;
        link.held = 0;
        link.waited = 0;
        mesh.world_group().barrier().wait();
        const auto start = Clock::now();
        booster.execute_pipeline(batch, boosted);
        boosted.optimizer->step();
        boosted.optimizer->zero_grad();
        mesh.world_group().barrier().wait();
        if (round == 0) continue;
        seconds[mode].push_back(std::chrono::duration<double>(Clock::now() - start).count());
        if (mode != Mode::kOverlaps) continue;
        const double delays = static_cast<double>(link.held) * std::chrono::duration<double>(link.delay).count();
        const double of_ranks = gantry::all_reduce_number(mesh.world_group(), link.waited / delays);
        hidden.push_back(1 - of_ranks / world.size());
      }
    if (!world.is_main()) return;
    std::printf(
        "{\"case\": \"%s\", \"milliseconds\": %d, \"all_to_alls\": %ld, \"no_delay\": %.4f, \"waits_at_once\": %.4f, "
        "\"overlaps\": %.4f, \"hidden\": %.3f}\n",
        what.name, what.milliseconds, link.held, median(seconds[Mode::kNoDelay]), median(seconds[Mode::kWaitsAtOnce]),
        median(seconds[Mode::kOverlaps]), median(hidden));
    std::fflush(stdout);
  });
}

}  // namespace

int main(int argc, char** argv) {
  const bool quick = argc > 1 && std::strcmp(argv[1], "--quick") == 0;
  for (const Case& what : kCases) measure(what, quick ? 1 : 5);
  return 0;
}
