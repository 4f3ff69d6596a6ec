#include "gantry/trainer/trainer.h"

#include <exception>
#include <fmt/format.h>
#include <optional>
#include <utility>

#include "gantry/booster/preference_step.h"
#include "gantry/booster/recipe.h"
#include "gantry/booster/show_sample.h"
#include "gantry/comm/observed_backend.h"
#include "gantry/core/base/steady_seconds.h"
#include "gantry/core/base/warning.h"
#include "gantry/core/config/teacher_layout.h"
#include "gantry/core/error.h"
#include "gantry/launch/backends.h"
#include "gantry/profiling/communication_meter.h"
#include "gantry/profiling/run_profile.h"
#include "gantry/tensors/exceptions.h"
#include "gantry/tensors/memory_meter.h"
#include "gantry/trainer/cached_teacher.h"
#include "gantry/trainer/elastic_run.h"
#include "gantry/trainer/expert_watch.h"
#include "gantry/trainer/held_out_record.h"
#include "gantry/trainer/output_folder.h"
#include "gantry/trainer/planned_step.h"
#include "gantry/trainer/reference_scores.h"
#include "gantry/trainer/report/earlier_run.h"
#include "gantry/trainer/run_checkpoints.h"
#include "gantry/trainer/run_evaluations.h"
#include "gantry/trainer/run_lines.h"
#include "gantry/trainer/run_listeners.h"
#include "gantry/trainer/run_parts.h"
#include "gantry/trainer/run_report.h"
#include "gantry/trainer/run_spans.h"
#include "gantry/trainer/run_stops.h"
#include "gantry/trainer/sample_text.h"
#include "gantry/trainer/teacher.h"
#include "gantry/trainer/training_steps.h"

namespace gantry {
namespace {

// Steps after which the live report is rewritten: two early ones, so that it shows the pipeline soon, and
// every 50th.
bool redraws_at(std::int64_t step) { return step == 2 || step == 10 || step % 50 == 0; }

}  // namespace

class Trainer::Run {
 public:
  Run(World& world, const Config& config, const RunOptions& options)
      : memory_(world.device().type()),
        metered_(world.backend(), meter_),
        spans_(config.train.otlp.empty() ? nullptr
                                         : std::make_shared<RunSpans>([this] { listeners_.clear_progress(); })),
        spanned_(spans_ ? std::make_unique<ObservedBackend>(metered_, spans_) : nullptr),
        world_(spanned_ ? *spanned_ : metered_, world.config(), world.mesh()),
        config_(config),
        options_(options),
        booster_(plugins().at("hybrid_parallel")(world_, config)),
        mesh_(booster_.mesh()),
        listeners_(world_),
        stops_(config, mesh_),
        checkpoints_(world_, config_, booster_.plugin(), [this] { listeners_.clear_progress(); }),
        steps_(world_, config_, booster_, memory_, *meter_, listeners_),
        evaluations_(world_, config_, booster_, stops_, checkpoints_.held_out(),
                     [this] { listeners_.clear_progress(); }),
        profile_(config_, mesh_, [this] { listeners_.clear_progress(); }),
        elastic_(current_generation(), world_) {
    if (elastic_.is_on())
      steps_.set_taking([this](const StepMetrics& metrics) { return elastic_.step(metrics, boosted_); });
    if (options_.status) listeners_.serve(*options_.status);
    if (config_.profile.active > 0 || spans_)
      steps_.set_listener([this](const schedule::Action& action, double start, double end) {
        profile_.saw(action, start, end);
        if (spans_) spans_->saw(action, start, end);
      });
  }

  RunEnd run() {
    if (std::exchange(has_run_, true))
      throw UsageError(
          {"Trainer::run", "this Trainer has already run", "one run per Trainer", "create another Trainer"});
    try {
      return elastic_.is_on() ? run_generation() : run_to_end();
    } catch (...) {
      listeners_.tell_of_failure(std::current_exception());
      if (spans_) spans_->end(describe_exception(std::current_exception()).line);
      throw;
    }
  }

  void use(TrainerParts parts) { given_ = std::move(parts); }
  RunListeners& listeners() { return listeners_; }
  World& world() { return world_; }
  Booster& booster() { return booster_; }
  Boosted& boosted() { return boosted_; }
  const Config& config() const { return config_; }
  void end() { stops_.end(); }
  bool has_run() const { return has_run_; }

 private:
  using How = RunEnd::How;

  RunEnd run_generation() {
    const auto record = [this] { return record_of_run(); };
    try {
      const RunEnd end = run_to_end();
      elastic_.keep(booster_.plugin(), boosted_, config_.data.started, record);
      return end;
    } catch (const Error& error) {
      if (elastic_.may_continue(error)) elastic_.carry(booster_.plugin(), boosted_, config_.data.started, record);
      throw;
    }
  }

  RunEnd run_to_end() {
    if (config_.data.format == "jsonl")
      config_.data.started = continues() ? elastic_.started() : checkpoints_.first_start();
    boost();
    const nlohmann::json earlier = resume();
    bool owes_evaluation = open_output(config_, done_, mesh_);
    profile_.follow_earlier();
    listeners_.open(config_, done_);
    if (spans_) spans_->open(config_, mesh_, done_, world_.is_main() || ranks_are_processes(config_.comm));
    owes_evaluation |= publish_earlier(earlier);
    report(done_);
    listeners_.show_report();
    listeners_.tell_of_start(done_);
    RunEnd end{.how = train(owes_evaluation), .last_step = last_step_, .checkpoint = {}};
    finish(end);
    return end;
  }

  // The state of an earlier generation of an elastic job is newer than any checkpoint.
  bool continues() const { return elastic_.is_on() && elastic_.has_state(); }

  // Returns what an earlier generation has recorded of the run, or null.
  nlohmann::json resume() {
    if (!continues()) {
      done_ = last_step_ = checkpoints_.resume(boosted_);
      if (elastic_.is_on()) elastic_.begin(done_, boosted_);
      return {};
    }
    nlohmann::json earlier = elastic_.restore(booster_.plugin(), boosted_);
    done_ = last_step_ = elastic_.done();
    checkpoints_.continue_run(earlier.at("companions").get<std::string>());
    checkpoints_.held_out().restore(earlier.at("held_out"));
    start_ -= earlier.at("seconds").get<double>();
    if (world_.is_main())
      fmt::print("generation {}: {} replica{} after step {}\n", elastic_.generation(), mesh_.size(axis::kData),
                 mesh_.size(axis::kData) == 1 ? "" : "s", done_);
    return earlier;
  }

  nlohmann::json record_of_run() {
    return {{"companions", checkpoints_.companions()},
            {"held_out", checkpoints_.held_out().state()},
            {"seconds", steady_seconds() - start_}};
  }

  // Publishes the metrics of a step that was completed while its generation ended. Returns true if they were
  // missing.
  bool publish_earlier(const nlohmann::json& earlier) {
    if (!earlier.is_object() || !earlier.contains("metrics")) return false;
    const nlohmann::json& known = earlier["metrics"];
    const bool is_missing =
        world_.is_main() && (config_.output.empty() || !has_metrics_of(config_.output, known.at("step")));
    if (is_missing) keep_fault(listeners_.publish(carried_metrics(known)));
    const bool was_missing = all_reduce_number(mesh_.world_group(), is_missing ? 1 : 0) > 0;
    elastic_.published();
    return was_missing;
  }

  void boost() {
    teacher_mesh(config_, world_.size());  // throws before data and models are read
    const bool has_own_data = given_.loader != nullptr, has_own_samples = has_own_data || given_.evaluation_loader,
               has_own_model = given_.model != nullptr;
    const RunParts parts = assemble_parts(std::exchange(given_, {}), config_, world_, mesh_);
    listeners_.set_steps(config_.train.steps);
    refuse_unused_parts();
    std::optional<ReferenceScorer> reference;
    if (parts.objective.reference)
      reference.emplace(config_, world_, mesh_.world_group(), !has_own_model, parts.held_out != nullptr,
                        parts.objective.reference);
    boosted_ = booster_.boost(parts.model, parts.optimizer, parts.criterion, parts.loader, parts.rates);
    boosted_.optimizer->keep_loss_scale(!listeners_.reads_gradients());
    const PrepareBatch prepare = preparation_of(parts.objective, has_own_samples);
    evaluations_.prepare(parts.held_out, parts.predictions, prepare, parts.objective.rewards, boosted_);
    steps_.set_objective(parts.objective, prepare);
    if (reference) reference->score(booster_, boosted_);
    const auto fresh = load_weights(config_, boosted_, mesh_);
    if (options_.cluster) {  // throws for a run without a prediction, before the first step
      options_.cluster = planner::with_ranks(*options_.cluster, world_.size(), /*grows=*/true);
      predicted_step(config_, *options_.cluster, world_.mesh());
    }
    if (!world_.is_main() || continues()) return;
    fmt::print("{}", options_.plan);
    print_beginning(world_, config_, booster_, boosted_, fresh, has_own_data ? "" : describe_first_sample(config_));
  }

  PrepareBatch preparation_of(const ObjectiveParts& parts, bool has_own_samples) {
    if (parts.teacher && config_.train.objective.top_k > 0) {
      if (has_own_samples)
        throw ConfigError({"train.objective.top_k", "the samples of the program's loader have no known numbers",
                           "the data of the configuration", "remove the key, or set data in place of the loader"});
      return [teacher = std::make_shared<CachedTeacher>(config_, world_, booster_, boosted_, parts.teacher)](
                 Batch batch) { return teacher->prepare(std::move(batch)); };
    }
    if (parts.teacher)
      return [teacher = std::make_shared<Teacher>(config_, world_, booster_, boosted_, parts.teacher)](Batch batch) {
        return teacher->prepare(std::move(batch));
      };
    if (!parts.step) return {};
    return [this, parts](Batch batch) {
      prepare_step(parts, batch, booster_, boosted_);
      return batch;
    };
  }

  // load_weights() will use model.path, and members of this class use the other keys.
  void refuse_unused_parts() const {
    for (const char* key :
         {"model.path", "train.log_files", "train.otlp", "train.max_minutes", "train.patience",
          "train.objective.reference_cache", "evaluation.choices", "evaluation.prompts", "evaluation.only",
          "evaluation.ema", "output", "profile", "elastic", "checkpoint.path", "checkpoint.keep_best"})
      config_.mark_used(key);
    refuse_unused_keys(config_);
  }

  How train(bool owes_evaluation) {
    if (config_.evaluation.only) return evaluate(done_) ? How::kDone : How::kStopped;
    const bool is_last = done_ >= config_.train.steps || is_out_of_samples();
    // The generation may have ended before this step was saved.
    const bool keeps = config_.checkpoint.keep_best && evaluations_.due_at(done_, is_last);
    if (done_ > 0 && continues() && (is_last || checkpoints_.saves_at(done_) || keeps)) save();
    // A checkpoint is saved before its step is evaluated. Patience and keep_best need the loss of that step
    // too.
    const bool goes_by_losses = config_.train.patience > 0 || config_.checkpoint.keep_best;
    if ((owes_evaluation || (goes_by_losses && done_ > 0)) && evaluations_.due_at(done_, /*last=*/false) &&
        !evaluate(done_, /*loss_alone=*/!owes_evaluation))
      return How::kStopped;
    bool stopped = false, ended = is_last || evaluations_.is_out_of_patience();
    if (ended && !is_last && done_ > 0 && continues()) save();
    // Excludes loading, and the deferred model, which is counted in full but never had pages.
    memory_.reset_peak();
    for (std::int64_t step = done_ + 1; !stopped && !ended; ++step) {
      if (spans_) spans_->begin_step(step);
      std::optional<StepMetrics> metrics = steps_.run(step, boosted_, stops_.within_step());
      if (spans_) spans_->end_step(metrics);
      if (!metrics) {
        save_given_up();
        return How::kStopped;
      }
      last_step_ = step;
      if (elastic_.is_on()) metrics->replicas = mesh_.size(axis::kData);
      keep_fault(listeners_.publish(*metrics));
      warn_of_starving(*metrics);
      if (config_.train.max_minutes > 0 && steady_seconds() - start_ >= 60 * config_.train.max_minutes) stops_.end();
      const RunStops::StopRequest wish = agree();
      if (elastic_.is_on()) elastic_.published();
      // Save before reading the samples of the next step, which may fail or take long.
      if (boosted_.loader->reads_streams() && checkpoints_.saves_at(step)) save();
      ended = step == config_.train.steps || wish == RunStops::StopRequest::kEnd ||
              (wish != RunStops::StopRequest::kStop && is_out_of_samples());
      const bool asked = wish == RunStops::StopRequest::kStop, evaluates = evaluations_.due_at(step, ended);
      // Save before the following work, which may fail or take long.
      if (ended || asked || checkpoints_.saves_at(step) || (evaluates && config_.checkpoint.keep_best)) save();
      if (ended || asked) checkpoints_.finish();
      stopped = asked && (!ended || evaluates);
      if (!stopped && evaluates) {
        stopped = !evaluate(step);
        const auto next = stopped ? RunStops::StopRequest::kStop : stops_.agreed();
        ended |= !stopped && (next == RunStops::StopRequest::kEnd || evaluations_.is_out_of_patience());
        stopped |= !ended && next == RunStops::StopRequest::kStop;
        if (stopped || ended) save();
      }
      profile_.step();
      if (options_.status && !ended && redraws_at(step)) redraw(step);
      if (wish == RunStops::StopRequest::kGrow && !ended && !stopped) elastic_.grow();
    }
    if (stopped) return How::kStopped;
    return last_step_ < config_.train.steps ? How::kEnded : How::kDone;
  }

  bool is_out_of_samples() {
    if (!stops_.out_of_samples(*boosted_.loader)) return false;
    if (world_.is_main()) {
      listeners_.clear_progress();
      fmt::print("the streams have no more samples after step {}: the run ends\n", last_step_);
    }
    return true;
  }

  void warn_of_starving(const StepMetrics& metrics) {
    if (!world_.is_main()) return;
    const std::string warning = experts_.add(metrics);
    if (warning.empty()) return;
    listeners_.clear_progress();
    print_warning(warning);
  }

  RunStops::StopRequest agree() {
    checkpoints_.check();
    return stops_.agreed();
  }

  // After a full disk of the output, the run saves a checkpoint and ends with the error of this rank.
  void keep_fault(const std::exception_ptr& fault) {
    if (!fault) return;
    if (!unwritten_) unwritten_ = fault;
    stops_.stop();
  }

  void redraw(std::int64_t step) {
    try {
      report(step);
    } catch (const ResourceError&) {
      keep_fault(std::current_exception());
    }
  }

  void save() {
    const double start = steady_seconds();
    if (!checkpoints_.save(last_step_, boosted_)) return;
    if (spans_) spans_->saved(last_step_, start, steady_seconds());
    keep_fault(listeners_.tell_of_save(last_step_));
  }

  void save_given_up() {
    if (last_step_ > done_)
      save();
    else if (world_.is_main())
      fmt::print("stopped before the first step of this run was complete, so there is nothing new to save\n");
  }

  // Returns false, and publishes nothing, if a stop was requested during the evaluation. `loss_alone`: the
  // result is not published either.
  bool evaluate(std::int64_t step, bool loss_alone = false) {
    const auto metrics = evaluations_.run(step, loss_alone, boosted_);
    if (metrics && !loss_alone) keep_fault(listeners_.publish(*metrics));
    return metrics.has_value();
  }

  void finish(RunEnd& end) {
    end.checkpoint = checkpoints_.finish();
    mesh_.world_group().barrier().wait();  // every rank has told its callbacks of the checkpoint
    if (unwritten_) std::rethrow_exception(unwritten_);
    profile_.finish();
    listeners_.end_progress();
    if (options_.sample && end.how != How::kStopped && !stops_.asked_to_stop()) show_sample();
    draw_last_step();
    const std::string gap = report(last_step_);
    if (spans_) spans_->end("");
    if (world_.is_main()) print_ending(world_, config_, end, steps_.peaks(), gap, checkpoints_.held_out());
    listeners_.tell_of_end(end);
  }

  void show_sample() {
    const std::string text =
        options_.sample->make(boosted_, booster_.plugin(), [this] { return stops_.stage_asked_to_stop(); });
    if (world_.is_main()) fmt::print("sample (greedy):\n{}\n", text);
  }

  void draw_last_step() {
    if (config_.output.empty()) return;
    const auto pictures = steps_.pictures(boosted_);
    if (!pictures || !world_.is_main()) return;
    write_pictures(*pictures, config_.output);
    if (mesh_.size(axis::kPipeline) == 1) return;
    fmt::print("bubble of the last step: {:.1f}%, simulated with its action times {:.1f}%: {}/timeline.svg\n",
               100 * pictures->measured.bubble_rate, 100 * pictures->simulated.bubble_rate, config_.output);
  }

  // Writes report.json after this step. Returns the result of write_run_report(); "" without an output.
  // Collective over the world.
  std::string report(std::int64_t step) {
    if (config_.output.empty()) return "";
    RunFacts facts = steps_.facts(boosted_);
    facts.step = step;
    facts.operators = profile_.operators();
    facts.cluster = options_.cluster;
    return write_run_report(world_, booster_.plugin(), boosted_, facts);
  }

  MemoryMeter memory_;  // first, so that it counts the allocations of all other members
  const std::shared_ptr<CommunicationMeter> meter_ = std::make_shared<CommunicationMeter>();
  ObservedBackend metered_;
  const std::shared_ptr<RunSpans> spans_;           // null without train.otlp
  const std::unique_ptr<ObservedBackend> spanned_;  // over metered_; null without spans_
  World world_;                                     // uses spanned_, or metered_ if spanned_ is null
  Config config_;
  RunOptions options_;
  TrainerParts given_;  // parts of the program; empty once they are boosted
  Booster booster_;
  ProcessGroupMesh& mesh_;
  RunListeners listeners_;  // before the members that clear its progress line
  RunStops stops_;
  RunCheckpoints checkpoints_;
  Boosted boosted_;
  TrainingSteps steps_;
  RunEvaluations evaluations_;
  ExpertWatch experts_;
  RunProfile profile_;
  ElasticRun elastic_;
  std::exception_ptr unwritten_;  // the first error of this rank's files of the output
  bool has_run_ = false;
  double start_ = steady_seconds();
  std::int64_t done_ = 0;       // steps before this run's first one
  std::int64_t last_step_ = 0;  // the last completed step
};

Trainer::Trainer(World& world, const Config& config, const RunOptions& options)
    : run_(std::make_unique<Run>(world, config, options)) {}
Trainer::~Trainer() = default;

void Trainer::use(TrainerParts parts) { run_->use(std::move(parts)); }
void Trainer::add(TrainerCallbacks callbacks) { run_->listeners().add(std::move(callbacks)); }
void Trainer::add(std::unique_ptr<MetricSink> sink) { run_->listeners().add(std::move(sink)); }
RunEnd Trainer::run() { return run_->run(); }
void Trainer::end() { run_->end(); }
World& Trainer::world() { return run_->world(); }
Booster& Trainer::booster() { return run_->booster(); }
Boosted& Trainer::boosted() { return run_->boosted(); }
const Config& Trainer::config() const { return run_->config(); }
bool Trainer::has_run() const { return run_->has_run(); }

}  // namespace gantry
