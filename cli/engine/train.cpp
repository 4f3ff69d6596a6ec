#include <algorithm>
#include <atomic>
#include <cmath>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <future>
#include <nlohmann/json.hpp>
#include <optional>

#include "gantry/booster/recipe.h"
#include "gantry/checkpoint/disk_work.h"
#include "gantry/checkpoint/format/files.h"
#include "gantry/cli/engine/commands.h"
#include "gantry/comm/backends.h"
#include "gantry/core/error.h"
#include "gantry/core/steady_seconds.h"
#include "gantry/data/encoded_text.h"
#include "gantry/data/tokenizers/utf8.h"
#include "gantry/generation/generate.h"
#include "gantry/generation/prompt_text.h"
#include "gantry/launch/launch.h"
#include "gantry/models/model_family.h"
#include "gantry/optimizers/gradient_norm.h"
#include "gantry/profiling/memory_meter.h"
#include "gantry/profiling/metered_backend.h"
#include "gantry/profiling/run_profile.h"
#include "gantry/trainer/live_status.h"
#include "gantry/trainer/metrics.h"
#include "gantry/trainer/report/earlier_run.h"
#include "gantry/trainer/run_checkpoints.h"
#include "gantry/trainer/run_report.h"
#include "gantry/trainer/stop_signals.h"
#include "gantry/trainer/timeline.h"

namespace gantry::cli {
namespace {

constexpr int kStoppedOnRequest = 75;
constexpr std::int64_t kSampleTokens = 240;  // prompt included

// What an earlier run has left there is put aside first. Rank 0's part.
struct OutputFolder {
  std::string put_aside;         // the path of earlier metrics, or ""
  bool owes_evaluation = false;  // of the last step that was done
};

OutputFolder make_output(const Config& config, std::int64_t done) {
  if (config.output.empty()) return {};
  make_folders(config.output);
  OutputFolder output;
  if (done == 0) {
    output.put_aside = keep_earlier_run(config.output);
  } else {
    const KeptMetrics kept = keep_metrics_until(config.output, done);
    output = {kept.put_aside, kept.owes_evaluation};
  }
  write_text_durably(config.output + "/config.yaml", config.to_yaml());
  return output;
}

// What `--sample` continues at the end, and the tokenizer for it; without one nothing is asked for.
struct SampleText {
  std::string prompt;
  std::unique_ptr<PromptText> text;
};

// Read before the run begins: it would be late to hear at its end what is missing.
SampleText sample_text(const std::string& prompt, const Config& config) {
  if (prompt.empty()) return {};
  const auto vocabulary =
      models::families().at(config.model.policy).vocabulary_size(nlohmann::json::parse(config.model.config_json));
  try {
    return {prompt,
            std::make_unique<PromptText>(choose_text_tokenizer(config.data.tokenizer, config.model.path, vocabulary))};
  } catch (const ConfigError& error) {
    throw UsageError({"--sample", error.what(), "", "or leave --sample out: gantry generate has --tokenizer"});
  }
}

// One training run on one rank.
class TrainingRun {
 public:
  // Rank 0 serves live status at `status`, if there is one.
  TrainingRun(World& world, const Config& config, const std::optional<StatusPlace>& status)
      : metered_(world.backend()),
        world_(metered_, world.config(), world.mesh()),
        config_(config),
        plugin_(new HybridParallelPlugin(world_, config)),
        booster_(std::unique_ptr<Plugin>(plugin_)),
        checkpoints_(world_, config, *plugin_, [this] { clear_progress(); }),
        timeline_(*plugin_),
        profile_(config, plugin_->mesh(), [this] { clear_progress(); }),
        is_followed_(status.has_value()) {
    if (status && world_.is_main()) live_.emplace(*status, world_);
    if (config.profile.active > 0)
      timeline_.set_listener(
          [this](const schedule::Action& action, double start, double end) { profile_.saw(action, start, end); });
  }

  // True if it was asked to stop before its end.
  bool run(const SampleText& sample) {
    boost();
    const std::int64_t done = checkpoints_.resume(boosted_);
    const bool owes_evaluation = open_output(done);
    profile_.follow_earlier();
    MetricsFile metrics(world_.is_main() ? config_.output : "", done);
    if (world_.is_main()) progress_.emplace(done + 1, config_.train.steps, config_.train.log_every);
    report(done);
    has_begun_ = true;
    last_step_ = done;
    if (live_) live_->show_report();
    bool stopped = owes_evaluation && evaluates_at(done) && !evaluate(done, metrics);
    for (std::int64_t step = done + 1; step <= config_.train.steps && !stopped; ++step) {
      const std::optional<StepMetrics> finished = train_step(step);
      if (!finished) {
        stopped = true;
        if (last_step_ > done)
          checkpoints_.save(last_step_, last_lr_, boosted_);
        else if (world_.is_main())
          fmt::print("stopped before this run's first step was done: there is nothing new to save\n");
        break;
      }
      const StepMetrics& result = *finished;
      metrics.write(result);
      if (live_) live_->update(result);
      if (progress_) progress_->show(result);
      const bool last = step == config_.train.steps, asked = checkpoints_.asked_to_stop();
      // Saved before anything else is done with the step, which may fail or take long.
      if (last || asked || checkpoints_.saves_at(step)) checkpoints_.save(step, result.lr, boosted_);
      if (last || asked) last_checkpoint_ = checkpoints_.finish();
      stopped = asked && (!last || evaluates_at(step));
      if (!stopped && evaluates_at(step) && !evaluate(step, metrics)) {
        stopped = true;
        checkpoints_.save(step, result.lr, boosted_);
      }
      profile_.step();
      if (is_followed_ && !last && redraws_at(step)) report(step);
    }
    profile_.finish();
    last_checkpoint_ = checkpoints_.finish();
    progress_.reset();
    if (sample.text && !stopped && !checkpoints_.asked_to_stop()) show_sample(sample);
    draw_last_step();
    report(last_step_);
    report_end();
    return stopped;
  }

  // Whether the output folder has this run's files: a report can be made of them, also after a failure.
  bool has_begun() const { return has_begun_; }

 private:
  // Whether the last step that was done before has an evaluation to come. Collective over the world.
  bool open_output(std::int64_t done) {
    OutputFolder output;
    const DiskProgress progress;
    ProcessGroup& world = plugin_->mesh().world_group();
    work_on_disk(world, disk_limits(config_.comm.timeout_seconds), progress, [&] {
      if (world_.is_main()) output = make_output(config_, done);
    });
    if (!output.put_aside.empty())
      fmt::print("{}: kept as {}\n", done > 0 ? "metrics of steps that are trained again" : "metrics of an earlier run",
                 output.put_aside);
    return all_reduce_number(world, output.owes_evaluation ? 1 : 0) > 0;
  }

  void boost() {
    auto model = build_model(config_);
    auto optimizer = build_optimizer(config_, *model);
    auto loader = build_loader(config_);
    boosted_ = booster_.boost(model, optimizer, build_criterion(config_), loader, build_lr_schedule(config_));
    held_out_ = build_evaluation_loader(config_);
    if (held_out_) plugin_->distribute(*held_out_, boosted_);
    const auto fresh = load_weights(config_, boosted_, plugin_->mesh());
    if (!world_.is_main()) return;
    if (!fresh.empty()) fmt::print("new in this model, with first values: {}\n", fmt::join(fresh, ", "));
    fmt::print("{} ranks ({}) over {}: {} stages, {} microbatches of {}\n", world_.size(), world_.mesh().describe(),
               world_.backend().name(), plugin_->stages().num_stages(),
               plugin_->microbatches(config_.data.batch_size / plugin_->mesh().size("dp")), config_.schedule.name);
    std::fflush(stdout);
  }

  // Nothing where the run was asked to stop: the step is given up, and all is as after the last one.
  std::optional<StepMetrics> train_step(std::int64_t step) {
    const double start = steady_seconds();
    const std::int64_t first_sample = boosted_.loader->position();
    timeline_.begin();
    metered_.resume();
    const double lr = boosted_.lr_schedule->at(step);
    boosted_.optimizer->set_lr(lr);
    const Batch batch = boosted_.loader->next();
    const StepResult result = booster_.execute_pipeline(
        batch, boosted_, {.return_loss = true, .broadcast_loss = true, .stops = checkpoints_.stops()});
    if (result.given_up) {
      boosted_.loader->seek(first_sample);
      timeline_.give_up();
      metered_.pause();
      return std::nullopt;
    }
    timeline_.end(batch.samples);
    const double norm = boosted_.optimizer->grad_norm();
    if ((!std::isfinite(*result.loss) || !std::isfinite(norm)) && !boosted_.optimizer->skips_non_finite()) {
      const std::string where = first_non_finite(boosted_.optimizer->gradients(), plugin_->mesh());
      throw NumericalError(
          {fmt::format("step {}", step),
           fmt::format("loss {}, gradient norm {}{}", *result.loss, norm, where.empty() ? "" : ", first in " + where),
           "finite numbers", "lower the learning rate, or clip with optimizer.clip_grad_norm"});
    }
    if (const int every = config_.train.audit_every; every > 0 && step % every == 0) plugin_->audit(boosted_);
    const bool stepped = boosted_.optimizer->step();
    boosted_.optimizer->zero_grad();
    if (!stepped && world_.is_main()) {
      clear_progress();
      fmt::print(stderr, "warning: step {} is skipped: gradient norm {}, loss scale now {}\n", step, norm,
                 boosted_.optimizer->loss_scale());
    }
    metered_.pause();
    ++counted_steps_;
    last_step_ = step;
    last_lr_ = lr;
    peaks_ = all_gather_numbers(plugin_->mesh().world_group(), memory_.peak_bytes());
    return StepMetrics{step,   *result.loss,       norm,
                       lr,     result.tokens,      steady_seconds() - start,
                       peaks_, timeline_.bubble(), timeline_.predicted_bubble()};
  }

  void clear_progress() {
    if (progress_) progress_->clear();
  }

  bool evaluates_at(std::int64_t step) const {
    return held_out_ &&
           (step == config_.train.steps || (config_.evaluation.every > 0 && step % config_.evaluation.every == 0));
  }

  // The mean over every counted token of the held-out batches, without gradients or dropout. False, and nothing is
  // written, where the run was asked to stop meanwhile.
  bool evaluate(std::int64_t step, MetricsFile& metrics) {
    EvaluationMetrics all{.step = step};
    double sum = 0;
    for (std::int64_t i = 0; i < held_out_->steps(); ++i) {
      if (checkpoints_.asked_to_stop()) return false;
      const StepResult result = booster_.execute_pipeline(
          held_out_->batch(i), boosted_, {.broadcast_loss = true, .forward_only = true, .stops = checkpoints_.stops()});
      if (result.given_up) return false;
      sum += *result.loss * static_cast<double>(result.tokens);
      all.tokens += result.tokens;
    }
    all.loss = all.tokens > 0 ? sum / static_cast<double>(all.tokens) : 0;
    metrics.write(all);
    if (progress_) progress_->show(all);
    return true;
  }

  // As far as the model's positions go; of a long prompt its end.
  void show_sample(const SampleText& sample) {
    const auto& family = models::families().at(config_.model.policy);
    const auto room =
        std::min<std::int64_t>(kSampleTokens, family.context_length(nlohmann::json::parse(config_.model.config_json)));
    TokenIds tokens = sample.text->encode(sample.prompt);
    if (const auto most = room / 2; static_cast<std::int64_t>(tokens.size()) > most)
      tokens.erase(tokens.begin(), tokens.end() - most);
    const auto made =
        generate(boosted_, *plugin_, {tokens}, {.max_length = room, .vocabulary = sample.text->size(), .ends = [this] {
                                                  return checkpoints_.stage_asked_to_stop();
                                                }});
    if (!world_.is_main()) return;
    tokens.insert(tokens.end(), made.front().tokens.begin(), made.front().tokens.end());
    std::string text = valid_utf8(sample.text->decode(tokens));
    std::replace_if(
        text.begin(), text.end(), [](unsigned char c) { return c != '\n' && (c < 32 || c == 127); }, '.');
    fmt::print("sample (greedy):\n{}\n", text);
  }

  void draw_last_step() {
    if (config_.output.empty()) return;
    const auto pictures = timeline_.pictures();
    if (!pictures || !world_.is_main()) return;
    write_pictures(*pictures, config_.output);
    if (plugin_->mesh().size("pp") == 1) return;
    fmt::print("bubble of the last step: {:.1f}%, by the times of its actions {:.1f}%: {}/timeline.svg\n",
               100 * pictures->measured.bubble_rate, 100 * pictures->simulated.bubble_rate, config_.output);
  }

  // A run that is followed shows its pipeline soon, and then from time to time.
  static bool redraws_at(std::int64_t step) { return step == 2 || step == 10 || step % 50 == 0; }

  // What the report shows beside the metrics, as of that step. Collective over the world.
  void report(std::int64_t step) {
    if (config_.output.empty()) return;
    write_run_report(world_, *plugin_, boosted_,
                     {.step = step,
                      .pictures = timeline_.pictures(),
                      .counts = metered_.counts(),
                      .counted_steps = std::max<std::int64_t>(counted_steps_, 1),
                      .operators = profile_.operators()});
  }

  void report_end() {
    if (!world_.is_main()) return;
    if (!peaks_.empty()) {
      const auto largest = std::max_element(peaks_.begin(), peaks_.end());
      fmt::print("peak memory of tensors: {} MB a rank, most {:.1f} MB on {}\n", fmt::join(in_megabytes(peaks_), ", "),
                 static_cast<double>(*largest) / 1e6,
                 world_.mesh().describe_rank(static_cast<int>(largest - peaks_.begin())));
    }
    if (!config_.output.empty())
      fmt::print("metrics: {}/metrics.jsonl\nreport: {}\n", config_.output, write_report(config_.output));
    if (!last_checkpoint_.empty()) fmt::print("checkpoint: {}\n", last_checkpoint_);
    std::fflush(stdout);
  }

  static std::vector<std::string> in_megabytes(const std::vector<std::int64_t>& bytes) {
    std::vector<std::string> texts;
    for (const auto each : bytes) texts.push_back(fmt::format("{:.1f}", static_cast<double>(each) / 1e6));
    return texts;
  }

  MemoryMeter memory_;  // first, so that it sees all that follows
  MeteredBackend metered_;
  World world_;  // over metered_
  const Config& config_;
  HybridParallelPlugin* plugin_;  // owned by booster_
  Booster booster_;
  std::optional<Progress> progress_;  // rank 0's
  RunCheckpoints checkpoints_;
  Boosted boosted_;
  StepTimeline timeline_;
  RunProfile profile_;
  bool is_followed_;  // by live status
  bool has_begun_ = false;
  std::int64_t last_step_ = 0, counted_steps_ = 0;  // done ones
  double last_lr_ = 0;                              // of the last one
  std::optional<LiveStatus> live_;                  // rank 0's
  std::shared_ptr<DataLoader> held_out_;            // null without evaluation
  std::string last_checkpoint_;
  std::vector<std::int64_t> peaks_;  // by rank
};

}  // namespace

int run_train(const TrainArguments& arguments) {
  Config config = Config::load(arguments.config, arguments.sets);
  config.require_training();
  load_libraries(config);
  config = resume_after_restart(resolve_model(std::move(config)));
  std::optional<StopSignals> signals;
  if (!config.checkpoint.path.empty()) signals.emplace();
  const SampleText sample = sample_text(arguments.sample, config);
  std::atomic<bool> stopped{false};
  std::future<void> last_report;  // waits for it
  const int code = launch(config, [&](World& world) {
    TrainingRun run(world, config, arguments.status);
    try {
      if (run.run(sample)) stopped = true;
    } catch (...) {
      if (world.is_main() && run.has_begun() && !config.output.empty()) last_report = write_last_report(config.output);
      throw;
    }
  });
  return code == 0 && stopped ? kStoppedOnRequest : code;
}

}  // namespace gantry::cli
