#include "gantry/trainer/elastic_run.h"

#include <algorithm>
#include <any>
#include <utility>

#include "gantry/core/axis.h"
#include "gantry/core/error.h"
#include "gantry/plugins/boosted.h"
#include "gantry/tensors/libtorch.h"

namespace gantry {
namespace {

// The state of a rank between two runs of its body. The tensors are those of the model that has gone.
struct CarriedState {
  std::vector<StateEntry> entries;
  nlohmann::json numbers;
};

nlohmann::json to_json(const StepMetrics& metrics) {
  return {{"step", metrics.step},     {"loss", metrics.loss},        {"grad_norm", metrics.grad_norm},
          {"lr", metrics.lr},         {"tokens", metrics.tokens},    {"step_seconds", metrics.step_seconds},
          {"images", metrics.images}, {"replicas", metrics.replicas}};
}

nlohmann::json report_json(const std::string& report) {
  const auto parsed = nlohmann::json::parse(report, nullptr, /*allow_exceptions=*/false);
  return parsed.is_object() ? parsed : nlohmann::json::object();
}

void adopt(std::vector<StateEntry>& entries, const CarriedState& carried) {
  const torch::NoGradGuard no_grad;
  if (entries.size() != carried.entries.size())
    throw InternalError(
        {"elastic", "the model of this generation has other tensors than that of the last one", "", ""});
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const StateEntry& from = carried.entries[i];
    if (from.kind != entries[i].kind || from.held.placement.name != entries[i].held.placement.name)
      throw InternalError({"elastic", from.kind + " " + from.held.placement.name + " has another place", "", ""});
    entries[i].held.tensor.copy_(from.held.tensor);
  }
}

}  // namespace

StepMetrics carried_metrics(const nlohmann::json& report) {
  return {.step = report.at("step"),
          .loss = report.at("loss"),
          .grad_norm = report.at("grad_norm"),
          .lr = report.at("lr"),
          .tokens = report.at("tokens"),
          .images = report.at("images"),
          .replicas = report.at("replicas"),
          .step_seconds = report.at("step_seconds"),
          .peak_memory_bytes = {}};
}

StepCommit ElasticRun::commit() const {
  const std::vector<int> replicas = generation_->replicas_in_reports();
  std::vector<RankProgress> ranks;
  for (std::size_t i = 0; i < generation_->reports().size(); ++i) {
    const nlohmann::json report = report_json(generation_->reports()[i]);
    ranks.push_back({replicas[i], report.value("done", RankProgress::kNone), report.value("prepared", false)});
  }
  return commit_step(ranks);
}

bool ElasticRun::has_state() const {
  const std::vector<std::string>& reports = generation_->reports();
  const auto joins = [](const std::string& report) { return report == Generation::kJoinsReport; };
  if (!reports.empty() && std::all_of(reports.begin(), reports.end(), joins))
    throw PeerError("the ranks that had the training state were lost before another rank had received it");
  return commit().step != RankProgress::kNone;
}

std::int64_t ElasticRun::started() const {
  std::int64_t started = 0;
  for (const std::string& report : generation_->reports())
    started = std::max(started, report_json(report).value("started", std::int64_t{0}));
  return started;
}

std::string ElasticRun::report(std::int64_t started) const {
  return nlohmann::json{{"done", progress_.done}, {"prepared", progress_.prepared}, {"started", started}}.dump();
}

nlohmann::json ElasticRun::restore(Plugin& plugin, Boosted& boosted) {
  const StepCommit commit = this->commit();
  const auto holds = [&](int rank) { return commit.has_state[static_cast<std::size_t>(rank)]; };
  const ProcessGroupMesh& mesh = plugin.mesh();
  StateSource& state = plugin.state(boosted);
  std::vector<StateEntry> entries = state.state_entries();
  nlohmann::json numbers;
  if (holds(world_.rank())) {
    const auto& carried = std::any_cast<const CarriedState&>(generation_->carried());
    adopt(entries, carried);
    numbers = carried.numbers;
  }
  ProcessGroup& replicas = mesh[axis::kData];
  const std::vector<int> peers = mesh.mesh().ranks_along(world_.rank(), {axis::kData});
  if (!std::all_of(peers.begin(), peers.end(), holds)) {
    const torch::NoGradGuard no_grad;
    const auto source = std::find_if(peers.begin(), peers.end(), holds) - peers.begin();
    for (StateEntry& entry : entries) {
      torch::Tensor values = entry.held.tensor.contiguous();
      replicas.broadcast(values, static_cast<int>(source)).wait();
      if (!values.is_same(entry.held.tensor)) entry.held.tensor.copy_(values);
    }
  }
  int source = 0;
  while (!holds(source)) ++source;
  numbers = nlohmann::json::parse(broadcast_text(mesh.world_group(), numbers.dump(), source));
  state.load_state_numbers(numbers.at("state"));
  boosted.loader->seek(numbers.at("position").get<std::int64_t>());
  generation_->carry({}, "");
  begin(commit.step, boosted);
  nlohmann::json record = numbers.at("record");
  if (record.contains("metrics")) latest_ = carried_metrics(record.at("metrics"));
  return record;
}

void ElasticRun::begin(std::int64_t step, const Boosted& boosted) {
  progress_ = {.replica = 0, .done = step, .prepared = false};
  position_ = boosted.loader->position();
}

bool ElasticRun::step(const StepMetrics& metrics, Boosted& boosted) {
  prepared_ = metrics;
  prepared_->replicas = boosted.optimizer->mesh().size(axis::kData);
  progress_.prepared = true;
  all_reduce_number(boosted.optimizer->mesh().world_group(), 0);
  const bool stepped = boosted.optimizer->step(metrics.grad_norm);
  complete(*std::exchange(prepared_, std::nullopt), boosted);
  return stepped;
}

void ElasticRun::complete(const StepMetrics& metrics, const Boosted& boosted) {
  latest_ = metrics;
  latest_->lr = boosted.optimizer->lr();
  progress_.done = metrics.step;
  progress_.prepared = false;
  position_ = boosted.loader->position();
}

bool ElasticRun::may_continue(const Error& error) const {
  return error.exit_code() == PeerError::kExitCode || generation_->has_ended();
}

void ElasticRun::carry(Plugin& plugin, Boosted& boosted, std::int64_t started,
                       const std::function<nlohmann::json()>& record) {
  if (progress_.done == RankProgress::kNone || !generation_->agree(report(started))) return;
  const StepCommit agreed = commit();
  const auto place = static_cast<std::size_t>(generation_->place_in_reports());
  if (!agreed.has_state[place]) return;
  if (agreed.finishes[place]) {
    boosted.optimizer->step(prepared_->grad_norm);
    complete(*std::exchange(prepared_, std::nullopt), boosted);
  }
  progress_.prepared = false;
  keep(plugin, boosted, started, record);
}

void ElasticRun::keep(Plugin& plugin, Boosted& boosted, std::int64_t started,
                      const std::function<nlohmann::json()>& record) {
  StateSource& state = plugin.state(boosted);
  CarriedState carried{.entries = state.state_entries(), .numbers = {}};
  nlohmann::json noted = record();
  if (latest_) noted["metrics"] = to_json(*latest_);
  carried.numbers = {{"state", state.state_numbers()}, {"position", position_}, {"record", std::move(noted)}};
  generation_->carry(std::move(carried), report(started));
}

}  // namespace gantry
