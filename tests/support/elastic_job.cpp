#include "elastic_job.h"

#include <filesystem>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <iterator>
#include <nlohmann/json.hpp>
#include <sstream>

namespace gantry::testing {
namespace {

constexpr int kJobSeconds = 300;  // only a job that hangs takes longer, also on a busy machine

void replace_all(std::string& text, const std::string& from, const std::string& to) {
  for (std::size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size())
    text.replace(at, from.size(), to);
}

std::vector<nlohmann::json> metrics_lines(const std::string& file) {
  std::vector<nlohmann::json> lines;
  std::istringstream text(read_file(file));
  for (std::string line; std::getline(text, line);) lines.push_back(nlohmann::json::parse(line));
  return lines;
}

}  // namespace

ElasticJob::ElasticJob(const ElasticCase& one) : ranks_(one.ranks), sets_(one.sets) {
  const std::string text_file = scratch_.write("text.txt", some_letters(3000, 23));
  replace_all(sets_, "TEXT", text_file);
  config_ = fmt::format(
      "model: {{policy: gpt2, config: {{n_embd: 16, n_layer: 2, n_head: 2, vocab_size: 256, n_positions: 16, "
      "resid_pdrop: 0.1}}}}\nschedule: {{microbatch_size: 2}}\ndata: {{format: text, path: \"{}\", "
      "sequence_length: 16, batch_size: 7}}\ncomm: {{threads_per_rank: 1, timeout_seconds: 60}}\n"
      "optimizer: {{name: adamw, clip_grad_norm: 0.5}}\ncheckpoint: {{path: {}, resume: auto}}\noutput: {}\n"
      "train: {{steps: {}, log_every: 100}}\n",
      text_file, scratch_ / "c", scratch_ / "o", kElasticSteps);
  // On a busy machine, a rank that is not lost can be silent for several seconds.
  const bool has_heartbeat = one.elastic.find("heartbeat") != std::string::npos;
  const std::string file = scratch_.write("elastic.yaml", fmt::format("{}elastic: {{{}{}}}\n", config_, one.elastic,
                                                                      has_heartbeat ? "" : ", heartbeat: 20"));
  std::string keys = sets_;  // the program takes them without --set
  replace_all(keys, "--set ", "");
  std::string variables = fmt::format("GANTRY_FAULTS='{}'", one.faults);
  if (!one.hosts.empty()) variables += " GANTRY_PRETEND_HOSTS=" + one.hosts;
  if (one.each_fault_once) {
    std::filesystem::create_directory(scratch_ / "marks");
    variables += " GANTRY_FAULT_MARKS=" + scratch_ / "marks";
  }
  outcome_ = run_program(fmt::format("{} {} launch --backend tcp -n {} -- {}/tests/elastic_trainer {} {}", variables,
                                     gantry_program(), ranks_, GANTRY_BUILD_DIR, file, keys),
                         kJobSeconds);
}

std::vector<int> ElasticJob::replicas() const {
  std::vector<int> replicas;
  for (const auto& metrics : metrics_lines(scratch_ / "o/metrics.jsonl")) {
    if (!metrics.contains("loss")) continue;
    replicas.push_back(metrics.value("replicas", 0));
    EXPECT_EQ(metrics["step"], static_cast<int>(replicas.size())) << "each step once, in order\n" << all_output();
  }
  return replicas;
}

int ElasticJob::happened() const {
  const std::filesystem::path marks = scratch_ / "marks";
  if (!std::filesystem::exists(marks)) return 0;
  return static_cast<int>(std::distance(std::filesystem::directory_iterator(marks), {}));
}

std::vector<int> ElasticJob::evaluations() const {
  std::vector<int> steps;
  for (const auto& metrics : metrics_lines(scratch_ / "o/metrics.jsonl"))
    if (metrics.contains("eval_loss")) steps.push_back(metrics["step"]);
  return steps;
}

void ElasticJob::expect_bits_of_a_run_without_faults() {
  const std::vector<int> steps = replicas();
  ASSERT_EQ(steps.size(), static_cast<std::size_t>(kElasticSteps)) << all_output();
  const std::string plain = scratch_.write("plain.yaml", config_);
  for (std::size_t end = 1; end <= steps.size(); ++end) {
    if (end < steps.size() && steps[end] == steps[end - 1]) continue;
    const Outcome part =
        run_program(fmt::format("{} train {} --set train.steps={} --set parallel.data={} --set output={} --set "
                                "checkpoint.path={} {}",
                                gantry_program(), plain, end, steps[end - 1], scratch_ / "po", scratch_ / "pc", sets_),
                    kJobSeconds);
    ASSERT_EQ(part.exit_code, 0) << part.err;
  }
  EXPECT_EQ(losses("o"), losses("po")) << all_output();
  int files = 0;
  for (int rank = 0; rank < ranks_; ++rank) {
    const std::string file = fmt::format("/step-{:06}/rank-{:05}.safetensors", kElasticSteps, rank);
    const std::string bytes = read_file(scratch_ / ("pc" + file));
    EXPECT_TRUE(bytes == read_file(scratch_ / ("c" + file))) << file << "\n" << all_output();
    files += bytes.empty() ? 0 : 1;
  }
  EXPECT_GT(files, 0);
}

std::vector<double> ElasticJob::losses_of_steps(const std::string& folder) const {
  std::vector<double> losses;
  for (const auto& metrics : metrics_lines(scratch_ / (folder + "/metrics.jsonl")))
    if (metrics.contains("loss")) losses.push_back(metrics["loss"]);
  return losses;
}

std::vector<double> ElasticJob::losses_of_one_rank() const {
  const Outcome alone =
      run_program(fmt::format("{} train {} --set output={} --set checkpoint.path={}/c {}", gantry_program(),
                              scratch_.write("plain.yaml", config_), scratch_ / "one", scratch_ / "one", sets_));
  EXPECT_EQ(alone.exit_code, 0) << alone.err;
  return losses_of_steps("one");
}

Outcome ElasticJob::run_without_launch() const {
  return run_program(fmt::format("{} train {}", gantry_program(), scratch_ / "elastic.yaml"));
}

std::string ElasticJob::losses(const std::string& folder) const {
  std::string losses;
  std::istringstream lines(read_file(scratch_ / (folder + "/metrics.jsonl")));
  for (std::string line; std::getline(lines, line);)
    if (line.find("eval_loss") == std::string::npos) losses += line.substr(0, line.find(",\"lr\"")) + "\n";
  return losses;
}

int expect_exact(const ElasticCase& one, const std::vector<int>& replicas) {
  SCOPED_TRACE(one.faults + "\n" + one.sets + "\n" + one.elastic + " hosts " + one.hosts);
  ElasticJob job(one);
  EXPECT_EQ(job.outcome().exit_code, 0) << job.all_output();
  if (job.outcome().exit_code != 0) return job.happened();
  if (!replicas.empty()) EXPECT_EQ(job.replicas(), replicas) << job.all_output();
  job.expect_bits_of_a_run_without_faults();
  return job.happened();
}

}  // namespace gantry::testing
