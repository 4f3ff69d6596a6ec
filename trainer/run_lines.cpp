#include "gantry/trainer/run_lines.h"

#include <algorithm>
#include <cstdio>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "gantry/checkpoint/format/find.h"
#include "gantry/core/base/number_text.h"
#include "gantry/trainer/report/run_reader.h"

namespace gantry {
namespace {

std::string in_megabytes(const std::vector<std::int64_t>& bytes) {
  std::vector<std::string> texts;
  for (const auto each : bytes) texts.push_back(fmt::format("{:.1f}", static_cast<double>(each) / 1e6));
  return fmt::format("{}", fmt::join(texts, ", "));
}

void print_peaks(const World& world, const std::vector<std::int64_t>& peaks) {
  const auto largest = std::max_element(peaks.begin(), peaks.end());
  fmt::print("peak memory of tensors: {} MB per rank, most {:.1f} MB on {}\n", in_megabytes(peaks),
             static_cast<double>(*largest) / 1e6,
             world.mesh().describe_rank(static_cast<int>(largest - peaks.begin())));
}

// The configured number of microbatches can exceed the number of samples.
void print_lowered_microbatches(const Config& config, std::int64_t samples, int used) {
  if (!config.schedule.microbatches || *config.schedule.microbatches <= used) return;
  fmt::print("schedule.microbatches: {} instead of {}, because a replica has {} samples per step\n", used,
             *config.schedule.microbatches, samples);
}

}  // namespace

void print_beginning(World& world, const Config& config, Booster& booster, const Boosted& boosted,
                     const std::vector<std::string>& fresh, const std::string& example) {
  for (const auto& found : boosted.loader->summaries()) fmt::print("data: {}\n", found);
  if (!example.empty()) fmt::print("first sample: {}\n", example);
  if (!config.model.path.empty() && !config.used_keys->is_given("precision"))
    fmt::print("precision: {}, because the configuration does not set it\n", config.precision);
  if (!fresh.empty()) fmt::print("new in this model, with initial weights: {}\n", fmt::join(fresh, ", "));
  const std::int64_t samples = boosted.loader->global_batch() / booster.mesh().size(axis::kData);
  const int microbatches = booster.plugin().microbatches(samples);
  print_lowered_microbatches(config, samples, microbatches);
  fmt::print("{} ({}) over {}: {}, {} of {}\n", quantity(world.size(), "rank"), world.mesh().describe(),
             world.backend().name(), quantity(booster.plugin().stages().num_stages(), "stage"),
             quantity(microbatches, "microbatch"), config.schedule.name);
  std::fflush(stdout);
}

void print_ending(const World& world, const Config& config, const RunEnd& end, const std::vector<std::int64_t>& peaks,
                  const std::string& gap, const HeldOutRecord& record) {
  if (!peaks.empty()) print_peaks(world, peaks);
  if (!gap.empty()) fmt::print("largest gap from the plan: {}\n", gap);
  if (!config.output.empty())
    fmt::print("metrics: {}/metrics.jsonl\nreport: {}\n", config.output, write_report(config.output));
  if (!end.checkpoint.empty()) fmt::print("checkpoint: {}\n", end.checkpoint);
  if (end.how == RunEnd::How::kStopped && config.checkpoint.path.empty())
    fmt::print("stopped after step {} without a checkpoint, because checkpoint.path is not set\n", end.last_step);
  if (const auto best = record.best_step(); best && config.checkpoint.keep_best)
    fmt::print("best checkpoint: {}/{} (held-out loss {:.6g})\n", config.checkpoint.path, step_folder_name(*best),
               record.best_loss());
  std::fflush(stdout);
}

}  // namespace gantry
