#include "gantry/trainer/report/run_reader.h"

#include <algorithm>
#include <ctime>
#include <filesystem>
#include <fmt/chrono.h>
#include <fstream>
#include <nlohmann/json.hpp>

#include "gantry/core/config.h"
#include "gantry/core/error.h"
#include "gantry/core/io/paths.h"
#include "gantry/trainer/report/public_config.h"

namespace gantry {
namespace {

using Json = nlohmann::json;

constexpr std::size_t kMostLineBytes = std::size_t{1} << 24;        // per line of metrics.jsonl
constexpr std::uintmax_t kMostFileBytes = std::uintmax_t{1} << 28;  // for config.yaml and report.json

// One line without its end, and the number of bytes of the file that it takes. The text of a line that is too
// long is empty.
struct MetricsLine {
  std::string text;
  std::uint64_t bytes = 0;
  bool is_ended = false;
};

// Returns false at the end of the file.
bool next_line(std::istream& file, MetricsLine& line) {
  line = {};
  auto& bytes = *file.rdbuf();
  constexpr int kEnd = std::char_traits<char>::eof();
  for (int c = bytes.sbumpc(); c != kEnd && !line.is_ended; c = line.is_ended ? kEnd : bytes.sbumpc()) {
    ++line.bytes;
    line.is_ended = c == '\n';
    if (!line.is_ended && line.text.size() < kMostLineBytes) line.text.push_back(static_cast<char>(c));
  }
  if (line.text.size() == kMostLineBytes) line.text = "";
  return line.bytes > 0;
}

std::string text_of(const std::filesystem::path& path) {
  std::error_code none;
  if (const auto bytes = std::filesystem::file_size(path, none); !none && bytes > kMostFileBytes)
    throw InputError({path.string(), fmt::format("the file has {} bytes", bytes),
                      fmt::format("at most {}", kMostFileBytes), "pass the `output` directory of a run"});
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

int steps_of(const std::string& config) {
  try {
    return Config::parse_written(config, "config.yaml").train.steps;
  } catch (const Error&) {
    return 0;  // a config.yaml of another version: the page shows its text unchanged
  }
}

// Reads report.json, the data that only the engine can write. Returns null without the file.
Json run_of(const std::filesystem::path& path) {
  if (!path_exists(path)) return nullptr;
  Json run = Json::parse(text_of(path), nullptr, /*allow_exceptions=*/false);
  const bool is_complete =
      run.is_object() && run.value("format", Json()) == 1 &&
      std::ranges::all_of(std::initializer_list<const char*>{"mesh", "schedule", "stages", "environment"},
                          [&](const char* key) { return run.contains(key); });
  if (!is_complete)
    throw InputError({path.string(), "the file is not a report.json of this version",
                      "a file that `gantry train` wrote", "remove it to create a report from the metrics only"});
  return run;
}

// Returns the results of an evaluation other than its loss; null if there are none.
Json answers_of(const Json& line) {
  Json answers = nullptr;
  for (const char* key : {"choices", "accuracy", "f1", "normalised_accuracy"})
    if (line.contains(key) && line[key].is_number()) answers[key] = line[key];
  for (const Json& sample : line.value("samples", Json::array()))
    if (sample.is_object() && sample.value("prompt", Json()).is_string() && sample.value("text", Json()).is_string())
      answers["samples"].push_back({{"prompt", sample["prompt"]}, {"text", sample["text"]}});
  if (!answers.is_null()) answers["step"] = line["step"];
  return answers;
}

std::string now_in_words() { return fmt::format("{:%Y-%m-%d %H:%M} UTC", fmt::gmtime(std::time(nullptr))); }

}  // namespace

RunReader::RunReader(std::string folder)
    : folder_(std::move(folder)),
      steps_({"step", "loss", "grad_norm", "lr", "tokens_per_second", "step_seconds", "bubble", "predicted_bubble"},
             {"loss", "grad_norm"}),
      rewards_({"step", "rewards/chosen", "rewards/rejected", "rewards/margins", "rewards/accuracies"},
               {"rewards/margins"}),
      images_({"step", "images"}, {"images"}),
      evaluations_({"step", "eval_loss", "perplexity"}, {"eval_loss"}) {}

void RunReader::read_line(const std::string& line) {
  const Json parsed = Json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!parsed.is_object() || !parsed.contains("step") || !parsed["step"].is_number()) {
    ++skipped_;
  } else if (parsed.contains("eval_loss")) {
    evaluations_.add(parsed);
    answers_ = answers_of(parsed);
  } else {
    steps_.add(parsed);
    if (parsed.contains("rewards/margins")) rewards_.add(parsed);
    if (parsed.contains("images")) images_.add(parsed);
    experts_.add(parsed);
    peaks_ = parsed.value("peak_memory_bytes", Json::array());
  }
}

// Returns whether the file still contains the lines that were read. The last line identifies the run, because
// it has the duration of its step in all digits. It does so even if the file was overwritten in place and is
// longer now.
bool RunReader::continues(std::istream& file) const {
  if (offset_ == 0) return true;
  std::string there(last_line_.size(), '\0');
  file.seekg(static_cast<std::streamoff>(offset_ - last_line_.size()));
  file.read(there.data(), static_cast<std::streamsize>(there.size()));
  return file.good() && there == last_line_;
}

void RunReader::read_metrics(bool live) {
  const std::string path = folder_ + "/metrics.jsonl";
  std::ifstream file(path, std::ios::binary);
  if (!file && live) return;
  if (!file)
    throw InputError({path, "the file cannot be read", "the `output` directory of a run",
                      "pass the directory that contains metrics.jsonl"});
  if (!continues(file)) {
    *this = RunReader(folder_);
    file.clear();
  }
  file.seekg(static_cast<std::streamoff>(offset_));
  for (MetricsLine line; next_line(file, line);) {
    if (!line.is_ended && live) return;  // an incomplete line: the run is still writing it
    if (line.bytes > 1) read_line(line.text);
    last_line_ = std::move(line.text);
    if (line.is_ended) last_line_ += '\n';
    offset_ += line.bytes;
  }
}

Json RunReader::data(bool live) {
  read_metrics(live);
  Json evaluation = evaluations_.columns();
  evaluation["loss"] = std::move(evaluation["eval_loss"]);
  evaluation.erase("eval_loss");
  const std::string config = text_of(folder_ + "/config.yaml");
  const std::filesystem::path folder = std::filesystem::path(folder_).lexically_normal();
  const std::filesystem::path named = folder.has_filename() ? folder : folder.parent_path();
  return {{"name", (live ? named.filename() : named).string()},
          {"live", live},
          {"steps", steps_of(config)},
          {"written", now_in_words()},
          {"skipped_lines", skipped_},
          {"config", live ? public_config(config) : config},
          {"metrics", steps_.columns()},
          {"rewards", rewards_.columns()},
          {"images", images_.columns()},
          {"evaluation", std::move(evaluation)},
          {"answers", answers_},
          {"experts", experts_.data()},
          {"peak_memory_bytes", peaks_.is_array() ? peaks_ : Json::array()},
          {"run", run_of(folder_ + "/report.json")}};
}

}  // namespace gantry
