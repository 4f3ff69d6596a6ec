#include "gantry/cli/report/run_reader.h"

#include <algorithm>
#include <ctime>
#include <filesystem>
#include <fmt/chrono.h>
#include <fstream>

#include "gantry/core/config.h"
#include "gantry/core/error.h"

namespace gantry::cli {
namespace {

using Json = nlohmann::json;

constexpr std::size_t kMostSteps = 4000;  // that a page shows; of longer runs, stretches of steps are thinned
constexpr const char* kColumns[] = {"loss",   "grad_norm",       "lr", "tokens_per_second", "step_seconds",
                                    "bubble", "predicted_bubble"};

Json number_of(const Json& line, const char* key) {
  const auto found = line.find(key);
  return found != line.end() && found->is_number() ? *found : Json(nullptr);
}

double value_of(const Json& line, const char* key) {
  const Json found = number_of(line, key);
  return found.is_null() ? std::numeric_limits<double>::infinity() : found.get<double>();
}

// Of each stretch of steps the last one and those of the largest loss and gradient norm: spikes stay to be seen.
std::vector<const Json*> thinned(const std::vector<Json>& lines) {
  const std::size_t stretch = std::max<std::size_t>(1, 3 * lines.size() / kMostSteps);
  std::vector<const Json*> kept;
  for (std::size_t begin = 0; begin < lines.size(); begin += stretch) {
    const auto first = lines.begin() + static_cast<std::ptrdiff_t>(begin);
    const auto end = lines.begin() + static_cast<std::ptrdiff_t>(std::min(lines.size(), begin + stretch));
    std::vector<const Json*> chosen = {&*(end - 1)};
    for (const char* key : {"loss", "grad_norm"})
      chosen.push_back(&*std::max_element(
          first, end, [key](const Json& a, const Json& b) { return value_of(a, key) < value_of(b, key); }));
    std::sort(chosen.begin(), chosen.end());
    kept.insert(kept.end(), chosen.begin(), std::unique(chosen.begin(), chosen.end()));
  }
  return kept;
}

std::string text_of(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

int steps_of(const std::string& config) {
  try {
    return Config::parse(config).train.steps;
  } catch (const Error&) {
    return 0;  // of another version: the page shows it as it is
  }
}

// What only the engine knows; null without the file.
Json run_of(const std::filesystem::path& path) {
  if (!std::filesystem::exists(path)) return nullptr;
  Json run = Json::parse(text_of(path), nullptr, /*allow_exceptions=*/false);
  const bool whole =
      run.is_object() && run.value("format", Json()) == 1 &&
      std::ranges::all_of(std::initializer_list<const char*>{"mesh", "schedule", "stages", "environment"},
                          [&](const char* key) { return run.contains(key); });
  if (!whole)
    throw InputError({path.string(), "is no report.json of this version", "what `gantry train` writes",
                      "remove it to have a report of the metrics alone"});
  return run;
}

std::string now_in_words() { return fmt::format("{:%Y-%m-%d %H:%M} UTC", fmt::gmtime(std::time(nullptr))); }

}  // namespace

void RunReader::read_line(const std::string& line) {
  Json parsed = Json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!parsed.is_object() || number_of(parsed, "step").is_null())
    ++skipped_;
  else
    (parsed.contains("eval_loss") ? evaluations_ : steps_).push_back(std::move(parsed));
}

// Whether what was read is still there. A line has its step's time in all digits, so the last one tells runs apart,
// also where the file was written over in place and has grown longer than it was.
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
    throw InputError({path, "can't be read", "the `output` folder of a run", "name the folder that has metrics.jsonl"});
  if (!continues(file)) {
    *this = RunReader(folder_);
    file.clear();
  }
  file.seekg(static_cast<std::streamoff>(offset_));
  for (std::string line; std::getline(file, line);) {
    if (file.eof() && live) return;  // half a line: the rest is under way
    if (!line.empty()) read_line(line);
    last_line_ = std::move(line.append("\n"));
    offset_ += last_line_.size();
  }
}

Json RunReader::metrics() const {
  Json columns = {{"step", Json::array()}};
  for (const char* key : kColumns) columns[key] = Json::array();
  for (const Json* line : thinned(steps_)) {
    columns["step"].push_back(line->at("step"));
    for (const char* key : kColumns) columns[key].push_back(number_of(*line, key));
  }
  return columns;
}

Json RunReader::data(bool live) {
  read_metrics(live);
  Json evaluation = {{"step", Json::array()}, {"loss", Json::array()}, {"perplexity", Json::array()}};
  for (const Json& line : evaluations_) {
    evaluation["step"].push_back(line.at("step"));
    evaluation["loss"].push_back(number_of(line, "eval_loss"));
    evaluation["perplexity"].push_back(number_of(line, "perplexity"));
  }
  const std::string config = text_of(folder_ + "/config.yaml");
  Json peaks = steps_.empty() ? Json::array() : steps_.back().value("peak_memory_bytes", Json::array());
  const std::filesystem::path folder = std::filesystem::path(folder_).lexically_normal();
  return {{"name", (folder.has_filename() ? folder : folder.parent_path()).string()},
          {"live", live},
          {"steps", steps_of(config)},
          {"written", now_in_words()},
          {"skipped_lines", skipped_},
          {"config", config},
          {"metrics", metrics()},
          {"evaluation", std::move(evaluation)},
          {"peak_memory_bytes", peaks.is_array() ? std::move(peaks) : Json::array()},
          {"run", run_of(folder_ + "/report.json")}};
}

}  // namespace gantry::cli
