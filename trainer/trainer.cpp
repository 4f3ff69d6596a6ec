#include "gantry/trainer/trainer.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <utility>

#include "gantry/booster/lora.h"
#include "gantry/booster/recipe.h"
#include "gantry/checkpoint/format/files.h"
#include "gantry/comm/observed_backend.h"
#include "gantry/core/error.h"
#include "gantry/core/steady_seconds.h"
#include "gantry/core/zero_level.h"
#include "gantry/optimizers/gradient_norm.h"
#include "gantry/profiling/communication_meter.h"
#include "gantry/profiling/memory_meter.h"
#include "gantry/profiling/run_profile.h"
#include "gantry/tensors/deferred_init.h"
#include "gantry/trainer/choice_scorer.h"
#include "gantry/trainer/continued_prompts.h"
#include "gantry/trainer/evaluator.h"
#include "gantry/trainer/expert_watch.h"
#include "gantry/trainer/held_out_record.h"
#include "gantry/trainer/live_status.h"
#include "gantry/trainer/metrics_file.h"
#include "gantry/trainer/output_folder.h"
#include "gantry/trainer/planned_step.h"
#include "gantry/trainer/progress_line.h"
#include "gantry/trainer/run_checkpoints.h"
#include "gantry/trainer/run_report.h"
#include "gantry/trainer/run_stops.h"
#include "gantry/trainer/sample_text.h"
#include "gantry/trainer/step_parts.h"
#include "gantry/trainer/tensorboard_file.h"
#include "gantry/trainer/timeline.h"

namespace gantry {
namespace {

std::string in_megabytes(const std::vector<std::int64_t>& bytes) {
  std::vector<std::string> texts;
  for (const auto each : bytes) texts.push_back(fmt::format("{:.1f}", static_cast<double>(each) / 1e6));
  return fmt::format("{}", fmt::join(texts, ", "));
}

// A run that is followed shows its pipeline soon, and then from time to time.
bool redraws_at(std::int64_t step) { return step == 2 || step == 10 || step % 50 == 0; }

}  // namespace

class Trainer::Run {
 public:
  Run(World& world, const Config& config, const RunOptions& options)
      : memory_(world.device().type()),
        metered_(world.backend(), meter_),
        world_(metered_, world.config(), world.mesh()),
        config_(config),
        options_(options),
        booster_(plugins().at("hybrid_parallel")(world_, config)),
        mesh_(booster_.mesh()),
        stops_(config, mesh_),
        checkpoints_(world_, config_, booster_.plugin(), [this] { clear_progress(); }),
        timeline_(booster_.plugin()),
        parts_of_step_(zero_level(config.parallel.zero).gradients, mesh_.size(axis::kPipeline) > 1),
        traffic_(*meter_, mesh_),
        profile_(config_, mesh_, [this] { clear_progress(); }) {
    if (options_.status && world_.is_main()) live_ = add_own(std::make_unique<LiveStatus>(*options_.status, world_));
    if (config_.profile.active > 0)
      timeline_.set_listener(
          [this](const schedule::Action& action, double start, double end) { profile_.saw(action, start, end); });
  }

  RunEnd run() {
    if (std::exchange(has_run_, true))
      throw UsageError({"Trainer::run", "is called a second time", "one run of one Trainer", "make another Trainer"});
    boost();
    done_ = last_step_ = checkpoints_.resume(boosted_);
    const bool owes_evaluation = open_output(config_, done_, mesh_);
    profile_.follow_earlier();
    add_sinks();
    report(done_);
    has_begun_ = true;
    if (live_) live_->show_report();
    RunEnd end{.how = train(owes_evaluation), .last_step = last_step_, .checkpoint = {}};
    finish(end);
    return end;
  }

  TrainerParts parts_;
  std::vector<TrainerCallbacks> callbacks_;
  std::vector<std::unique_ptr<MetricSink>> sinks_;  // the program's; rank 0 calls them

  World& world() { return world_; }
  Booster& booster() { return booster_; }
  Boosted& boosted() { return boosted_; }
  const Config& config() const { return config_; }
  void end() { stops_.end(); }
  bool has_begun() const { return has_begun_ && !config_.output.empty(); }

 private:
  using How = RunEnd::How;

  void boost() {
    if (parts_.optimizer && !parts_.model)
      throw UsageError(
          {"Trainer", "was given an optimizer without its model", "both, or neither", "give it the model"});
    if (!parts_.loader) config_.require_training();
    if (parts_.evaluation_loader) config_.evaluation.every = parts_.evaluate_every;
    if (parts_.model && config_.model.policy.empty()) config_.model.policy = policy_name_for(*parts_.model);
    if (parts_.model) set_dtype(*parts_.model, dtype_of(config_.precision));  // build_model does that itself
    if (parts_.model && !parts_.optimizer) {  // one that comes with the model knows its parameters already
      add_lora(*parts_.model, config_);
      freeze_parameters(*parts_.model, config_);
    }
    auto model = parts_.model ? parts_.model : build_model(config_);
    auto optimizer = parts_.optimizer ? parts_.optimizer : build_optimizer(config_, *model);
    auto loader = parts_.loader ? parts_.loader : build_loader(config_);
    resolve_epochs(*loader);
    held_out_ = parts_.evaluation_loader ? parts_.evaluation_loader : build_evaluation_loader(config_);
    const Criterion criterion = parts_.criterion ? *parts_.criterion : build_criterion(config_);
    scores_predictions_ = !parts_.criterion && predicts_classes(config_);
    const LrSchedule rates = parts_.lr_schedule ? *parts_.lr_schedule : build_lr_schedule(config_);
    refuse_unhonoured_parts();
    boosted_ = booster_.boost(model, optimizer, criterion, loader, rates);
    boosted_.optimizer->keep_loss_scale(true);
    parts_ = {};  // what boosting has made is all that is left of them
    if (held_out_) booster_.distribute(*held_out_, boosted_);
    choices_ = ChoiceScorer::of(config_);
    if (choices_) choices_->distribute(booster_, boosted_);
    prompts_ = ContinuedPrompts::of(config_);
    const auto fresh = load_weights(config_, boosted_, mesh_);
    if (options_.cluster) {  // what can't be predicted is refused before the first step
      options_.cluster = planner::with_ranks(*options_.cluster, world_.size(), /*grows=*/true);
      predicted_step(config_, *options_.cluster, world_.mesh());
    }
    if (!world_.is_main()) return;
    fmt::print("{}", options_.plan);
    for (const auto& found : boosted_.loader->summaries()) fmt::print("data: {}\n", found);
    if (!fresh.empty()) fmt::print("new in this model, with initial weights: {}\n", fmt::join(fresh, ", "));
    fmt::print("{} ranks ({}) over {}: {} stages, {} microbatches of {}\n", world_.size(), world_.mesh().describe(),
               world_.backend().name(), booster_.plugin().stages().num_stages(),
               booster_.plugin().microbatches(boosted_.loader->global_batch() / mesh_.size(axis::kData)),
               config_.schedule.name);
    std::fflush(stdout);
  }

  // train.epochs as steps, now that it is known how many samples there are. Rank 0 looks, for all.
  void resolve_epochs(const DataLoader& loader) {
    config_.honour("train.epochs");
    if (config_.train.epochs == 0) return;
    const double samples =
        all_reduce_number(mesh_.world_group(), world_.is_main() ? static_cast<double>(loader.samples()) : 0);
    const double steps = std::ceil(config_.train.epochs * samples / static_cast<double>(loader.global_batch()));
    config_.train.steps = static_cast<int>(std::clamp(steps, 1.0, 1e9));
    if (world_.is_main())
      fmt::print("{} epochs of {} samples: {} steps of {}\n", config_.train.epochs, samples, config_.train.steps,
                 loader.global_batch());
    config_.train.epochs = 0;
    if (live_) live_->set_steps(config_.train.steps);
  }

  // load_weights is still to come, and the rest of these keys was honoured by those that are members.
  void refuse_unhonoured_parts() const {
    for (const char* key : {"model.path", "train.max_minutes", "train.patience", "evaluation.choices",
                            "evaluation.prompts", "output", "profile", "checkpoint.path", "checkpoint.keep_best"})
      config_.honour(key);
    if (parts_.model) config_.honour("model.config");  // whose keys are for whoever built it
    refuse_unhonoured_keys(config_);
  }

  void add_sinks() {
    if (!world_.is_main()) return;
    if (!config_.output.empty()) {
      add_own(std::make_unique<MetricsFile>(config_.output));
      add_own(std::make_unique<TensorBoardFile>(config_.output, done_));
    }
    progress_ = add_own(std::make_unique<ProgressLine>(done_ + 1, config_.train.steps, config_.train.log_every));
  }

  template <class Sink>
  Sink* add_own(std::unique_ptr<Sink> sink) {
    Sink* added = sink.get();
    own_sinks_.push_back(std::move(sink));
    return added;
  }

  How train(bool owes_evaluation) {
    // Its checkpoint was saved before it was evaluated: a run that goes by the losses needs this one too.
    const bool goes_by_losses = config_.train.patience > 0 || config_.checkpoint.keep_best;
    if ((owes_evaluation || (goes_by_losses && done_ > 0)) && evaluates_at(done_, /*last=*/false) &&
        !evaluate(done_, /*publishes=*/owes_evaluation))
      return How::kStopped;
    bool stopped = false, ended = done_ >= config_.train.steps || is_out_of_patience();
    for (std::int64_t step = done_ + 1; !stopped && !ended; ++step) {
      const std::optional<StepMetrics> metrics = train_step(step);
      if (!metrics) {
        save_given_up();
        return How::kStopped;
      }
      publish(*metrics, &TrainerCallbacks::on_step);
      warn_of_starving(*metrics);
      if (config_.train.max_minutes > 0 && steady_seconds() - start_ >= 60 * config_.train.max_minutes) stops_.end();
      const RunStops::Wish wish = agree();
      ended = step == config_.train.steps || wish == RunStops::Wish::kEnd;
      const bool asked = wish == RunStops::Wish::kStop, evaluates = evaluates_at(step, ended);
      // Saved before anything else is done with the step, which may fail or take long.
      if (ended || asked || checkpoints_.saves_at(step) || (evaluates && config_.checkpoint.keep_best)) save();
      if (ended || asked) checkpoints_.finish();
      stopped = asked && (!ended || evaluates);
      if (!stopped && evaluates) {
        stopped = !evaluate(step);
        ended |= !stopped && (stops_.agreed() == RunStops::Wish::kEnd || is_out_of_patience());
        if (stopped || ended) save();
      }
      profile_.step();
      if (options_.status && !ended && redraws_at(step)) report(step);
    }
    if (stopped) return How::kStopped;
    return last_step_ < config_.train.steps ? How::kEnded : How::kDone;
  }

  // Nothing where the run was asked to stop: the step is given up, and all is as after the last one.
  std::optional<StepMetrics> train_step(std::int64_t step) {
    const double start = steady_seconds();
    const std::int64_t first_sample = boosted_.loader->position();
    timeline_.begin();
    meter_->resume();
    const Batch batch = boosted_.loader->next();
    const StepResult result = booster_.execute_pipeline(
        batch, boosted_, {.return_loss = true, .broadcast_loss = true, .stops = stops_.within_step()});
    if (result.given_up) {
      boosted_.loader->seek(first_sample);
      timeline_.give_up();
      meter_->pause();
      parts_of_step_.give_up(meter_->counts());
      return std::nullopt;
    }
    timeline_.end(batch.samples);
    const double norm = boosted_.optimizer->grad_norm();
    require_finite(step, *result.loss, norm);
    const bool stepped = boosted_.optimizer->step();
    boosted_.optimizer->zero_grad();
    if (!stepped && world_.is_main()) {
      clear_progress();
      fmt::print(stderr, "warning: step {} is skipped: gradient norm {}, loss scale now {}\n", step, norm,
                 boosted_.optimizer->loss_scale());
    }
    meter_->pause();
    ++counted_steps_;
    last_step_ = step;
    const double seconds = steady_seconds() - start;
    parts_of_step_.add(seconds, timeline_.busy(), meter_->counts());
    peaks_ = all_gather_numbers(mesh_.world_group(), memory_.peak_bytes());
    StepMetrics metrics{.step = step,
                        .loss = *result.loss,
                        .added_losses = result.added_losses,
                        .grad_norm = norm,
                        .lr = boosted_.lr_schedule->at(step),
                        .tokens = result.tokens,
                        .step_seconds = seconds,
                        .peak_memory_bytes = peaks_,
                        .bubble = timeline_.bubble(),
                        .predicted_bubble = timeline_.predicted_bubble(),
                        .experts = result.experts};
    traffic_.set(metrics);
    return metrics;
  }

  void warn_of_starving(const StepMetrics& metrics) {
    if (!world_.is_main()) return;
    const std::string warning = experts_.add(metrics);
    if (warning.empty()) return;
    clear_progress();
    fmt::print(stderr, "warning: {}\n", warning);
  }

  void require_finite(std::int64_t step, double loss, double norm) {
    if ((std::isfinite(loss) && std::isfinite(norm)) || boosted_.optimizer->skips_non_finite()) return;
    const std::string where = first_non_finite(boosted_.optimizer->gradients(), mesh_);
    throw NumericalError(
        {fmt::format("step {}", step),
         fmt::format("loss {}, gradient norm {}{}", loss, norm, where.empty() ? "" : ", first in " + where),
         "finite numbers", "lower the learning rate, or clip with optimizer.clip_grad_norm"});
  }

  // To the sinks on rank 0, and then to the callbacks on all ranks.
  template <class Metrics>
  void publish(const Metrics& metrics, std::function<void(const Metrics&)> TrainerCallbacks::*callback) {
    if (world_.is_main()) {
      for (const auto& sink : own_sinks_) sink->write(metrics);
      for (const auto& sink : sinks_) sink->write(metrics);
    }
    for (const auto& each : callbacks_)
      if (each.*callback) (each.*callback)(metrics);
  }

  RunStops::Wish agree() {
    checkpoints_.check();
    return stops_.agreed();
  }

  void save() {
    if (!checkpoints_.save(last_step_, boosted_)) return;
    for (const auto& each : callbacks_)
      if (each.on_save) each.on_save(last_step_);
  }

  void save_given_up() {
    if (last_step_ > done_)
      save();
    else if (world_.is_main())
      fmt::print("stopped before this run's first step was done: there is nothing new to save\n");
  }

  bool evaluates_at(std::int64_t step, bool last) const {
    const int every = config_.evaluation.every;
    return held_out_ && (last || step == config_.train.steps || (every > 0 && step % every == 0));
  }

  // False, and nothing is written, where the run was asked to stop meanwhile.
  bool evaluate(std::int64_t step, bool publishes = true) {
    const auto ends = [this] { return stops_.asked_to_stop(); };
    auto metrics = Evaluator(booster_, held_out_, scores_predictions_).run(step, boosted_, ends, stops_.within_step());
    if (!metrics) return false;
    if (publishes && choices_) {
      metrics->choices = choices_->run(booster_, boosted_, ends, stops_.within_step());
      if (!metrics->choices) return false;
    }
    if (publishes && prompts_) metrics->samples = prompts_->make(boosted_, booster_.plugin());
    checkpoints_.held_out().note(step, metrics->loss);
    if (publishes) publish(*metrics, &TrainerCallbacks::on_evaluation);
    return true;
  }

  bool is_out_of_patience() {
    const HeldOutRecord& record = checkpoints_.held_out();
    if (config_.train.patience == 0 || record.since_best() < config_.train.patience) return false;
    if (world_.is_main() && !std::exchange(said_impatience_, true)) {
      clear_progress();
      fmt::print("no lower held-out loss in {} evaluations: the run ends\n", record.since_best());
    }
    return true;
  }

  void clear_progress() {
    if (progress_) progress_->clear();
  }

  void finish(RunEnd& end) {
    profile_.finish();
    end.checkpoint = checkpoints_.finish();
    std::erase_if(own_sinks_, [this](const auto& sink) { return sink.get() == progress_; });  // it leaves its line
    progress_ = nullptr;
    if (options_.sample && end.how != How::kStopped && !stops_.asked_to_stop()) show_sample();
    draw_last_step();
    const std::string gap = report(last_step_);
    print_end(end, gap);
    for (const auto& each : callbacks_)
      if (each.on_end) each.on_end(end);
  }

  void show_sample() {
    const std::string text =
        options_.sample->make(boosted_, booster_.plugin(), [this] { return stops_.stage_asked_to_stop(); });
    if (world_.is_main()) fmt::print("sample (greedy):\n{}\n", text);
  }

  void draw_last_step() {
    if (config_.output.empty()) return;
    const auto pictures = timeline_.pictures(boosted_.model->stage_module().layer_ranges());
    if (!pictures || !world_.is_main()) return;
    write_pictures(*pictures, config_.output);
    if (mesh_.size(axis::kPipeline) == 1) return;
    fmt::print("bubble of the last step: {:.1f}%, by the times of its actions {:.1f}%: {}/timeline.svg\n",
               100 * pictures->measured.bubble_rate, 100 * pictures->simulated.bubble_rate, config_.output);
  }

  // What the report shows beside the metrics, as of that step; gives what write_run_report() does. Collective over the
  // world.
  std::string report(std::int64_t step) {
    if (config_.output.empty()) return "";
    return write_run_report(world_, booster_.plugin(), boosted_,
                            {.step = step,
                             .pictures = timeline_.pictures(boosted_.model->stage_module().layer_ranges()),
                             .counts = meter_->counts(),
                             .counted_steps = std::max<std::int64_t>(counted_steps_, 1),
                             .operators = profile_.operators(),
                             .parts = parts_of_step_.mean(),
                             .timed_steps = static_cast<std::int64_t>(parts_of_step_.steps()),
                             .peaks = peaks_,
                             .cluster = options_.cluster});
  }

  void print_end(const RunEnd& end, const std::string& gap) {
    if (!world_.is_main()) return;
    if (!peaks_.empty()) {
      const auto largest = std::max_element(peaks_.begin(), peaks_.end());
      fmt::print("peak memory of tensors: {} MB per rank, most {:.1f} MB on {}\n", in_megabytes(peaks_),
                 static_cast<double>(*largest) / 1e6,
                 world_.mesh().describe_rank(static_cast<int>(largest - peaks_.begin())));
    }
    if (!gap.empty()) fmt::print("largest gap from the plan: {}\n", gap);
    if (!config_.output.empty())
      fmt::print("metrics: {}/metrics.jsonl\nreport: {}\n", config_.output, write_report(config_.output));
    if (!end.checkpoint.empty()) fmt::print("checkpoint: {}\n", end.checkpoint);
    if (const auto best = checkpoints_.held_out().best_step(); best && config_.checkpoint.keep_best)
      fmt::print("best checkpoint: {}/{} (held-out loss {:.6g})\n", config_.checkpoint.path, step_folder_name(*best),
                 checkpoints_.held_out().best_loss());
    std::fflush(stdout);
  }

  MemoryMeter memory_;  // first, so that it sees all that follows
  const std::shared_ptr<CommunicationMeter> meter_ = std::make_shared<CommunicationMeter>();
  ObservedBackend metered_;
  World world_;  // over metered_
  Config config_;
  RunOptions options_;
  Booster booster_;
  ProcessGroupMesh& mesh_;
  RunStops stops_;
  RunCheckpoints checkpoints_;
  Boosted boosted_;
  StepTimeline timeline_;
  StepParts parts_of_step_;
  ExpertTraffic traffic_;
  ExpertWatch experts_;
  RunProfile profile_;
  std::vector<std::unique_ptr<MetricSink>> own_sinks_;  // rank 0's
  ProgressLine* progress_ = nullptr;                    // one of them
  LiveStatus* live_ = nullptr;                          // likewise
  std::shared_ptr<DataLoader> held_out_;                // null without evaluation
  std::unique_ptr<ChoiceScorer> choices_;               // null without evaluation.choices
  std::unique_ptr<ContinuedPrompts> prompts_;           // likewise
  bool scores_predictions_ = false;                     // at evaluations
  bool has_run_ = false, has_begun_ = false, said_impatience_ = false;
  const double start_ = steady_seconds();
  std::int64_t done_ = 0;                           // steps before this run's first one
  std::int64_t last_step_ = 0, counted_steps_ = 0;  // done ones
  std::vector<std::int64_t> peaks_;                 // by rank
};

Trainer::Trainer(World& world, const Config& config, const RunOptions& options)
    : run_(std::make_unique<Run>(world, config, options)) {}
Trainer::~Trainer() = default;

void Trainer::use(TrainerParts parts) { run_->parts_ = std::move(parts); }
void Trainer::add(TrainerCallbacks callbacks) { run_->callbacks_.push_back(std::move(callbacks)); }
void Trainer::add(std::unique_ptr<MetricSink> sink) { run_->sinks_.push_back(std::move(sink)); }
RunEnd Trainer::run() { return run_->run(); }
void Trainer::end() { run_->end(); }
World& Trainer::world() { return run_->world(); }
Booster& Trainer::booster() { return run_->booster(); }
Boosted& Trainer::boosted() { return run_->boosted(); }
const Config& Trainer::config() const { return run_->config(); }
bool Trainer::has_begun() const { return run_->has_begun(); }

}  // namespace gantry
