#include "gantry/trainer/metrics_file.h"

#include <cerrno>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>

#include "gantry/core/base/utf8.h"
#include "gantry/core/error.h"

namespace gantry {
namespace {

nlohmann::ordered_json experts_json(const StepMetrics& metrics) {
  nlohmann::ordered_json layers = nlohmann::ordered_json::array();
  for (const auto& load : metrics.experts.layers)
    layers.push_back(
        {{"router", load.router}, {"largest_over_mean", load.largest_over_mean()}, {"tokens", load.tokens}});
  return {{"layers", std::move(layers)},
          {"dropped", metrics.experts.dropped},
          {"all_to_all_bytes", metrics.all_to_all_bytes},
          {"all_to_all_seconds", metrics.all_to_all_seconds}};
}

}  // namespace

MetricsFile::MetricsFile(const std::string& output)
    : path_(output + "/metrics.jsonl"), file_(std::fopen(path_.c_str(), "a")) {
  if (!file_) throw ResourceError({path_, std::strerror(errno), "a writable file", "choose another `output`"});
}

MetricsFile::~MetricsFile() { std::fclose(file_); }

void MetricsFile::write(const StepMetrics& metrics) {
  nlohmann::ordered_json line = {{"step", metrics.step},
                                 {"loss", metrics.loss},
                                 {"grad_norm", metrics.grad_norm},
                                 {"lr", metrics.lr},
                                 {"tokens", metrics.tokens},
                                 {"tokens_per_second", static_cast<double>(metrics.tokens) / metrics.step_seconds},
                                 {"step_seconds", metrics.step_seconds},
                                 {"peak_memory_bytes", metrics.peak_memory_bytes},
                                 {"bubble", metrics.bubble},
                                 {"predicted_bubble", metrics.predicted_bubble}};
  if (metrics.images > 0) line["images"] = metrics.images;
  if (metrics.replicas > 0) line["replicas"] = metrics.replicas;
  if (!metrics.added_losses.empty()) line["added_losses"] = metrics.added_losses;
  if (metrics.rewards)
    for (const auto& [name, value] : named_values(*metrics.rewards)) line[name] = value;
  if (!metrics.experts.layers.empty()) line["experts"] = experts_json(metrics);
  write_line(line.dump());
}

void MetricsFile::write(const EvaluationMetrics& metrics) {
  nlohmann::ordered_json line = {{"step", metrics.step}, {"eval_loss", metrics.loss}, {"eval_tokens", metrics.tokens}};
  if (!metrics.rewards) line["perplexity"] = std::exp(metrics.loss);
  if (metrics.rewards)
    for (const auto& [name, value] : named_values(*metrics.rewards)) line["eval_" + name] = value;
  if (metrics.accuracy) line["accuracy"] = *metrics.accuracy;
  if (metrics.f1) line["f1"] = *metrics.f1;
  if (metrics.pearson) line["pearson"] = *metrics.pearson;
  if (metrics.choices)
    line.update({{"choices", metrics.choices->questions},
                 {"accuracy", metrics.choices->accuracy},
                 {"normalised_accuracy", metrics.choices->normalised_accuracy}});
  for (const auto& [prompt, text] : metrics.samples)
    line["samples"].push_back({{"prompt", valid_utf8(prompt)}, {"text", text}});
  write_line(line.dump());
}

void MetricsFile::write_line(const std::string& line) {
  const std::string text = line + "\n";
  if (std::fputs(text.c_str(), file_) < 0 || std::fflush(file_) != 0)
    throw ResourceError({path_, std::strerror(errno), "disk space for another line", "free some space"});
}

}  // namespace gantry
