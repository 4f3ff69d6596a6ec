#include "gantry/trainer/mlflow_files.h"

#include <cctype>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <utility>
#include <vector>

#include "gantry/core/base/utf8.h"
#include "gantry/core/error.h"
#include "gantry/core/io/durable_file.h"
#include "gantry/core/io/paths.h"
#include "gantry/trainer/metric_scalars.h"

namespace gantry {
namespace {

constexpr std::size_t kLongestParameter = 6000;  // MLflow's limit

std::int64_t milliseconds_now() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::milliseconds>(now).count();
}

std::string random_run_id() {
  std::random_device source;
  std::string id;
  for (int part = 0; part < 4; ++part) id += fmt::format("{:08x}", source());
  return id;
}

// JSON strings are YAML too.
std::string quoted_yaml(const std::string& text) { return nlohmann::json(valid_utf8(text)).dump(); }

std::string absolute_path(const std::string& path) {
  return std::filesystem::weakly_canonical(std::filesystem::absolute(path)).string();
}

// A metric is a file, so that train/loss and train/loss/NAME can't both exist.
std::string file_of_metric(const std::string& name) {
  std::string file;
  for (const char one : name) {
    const bool is_known = std::isalnum(static_cast<unsigned char>(one)) || std::strchr("_-. /", one);
    file += one == '/' && file.find('/') != std::string::npos ? '.' : is_known ? one : '_';
  }
  return file;
}

std::optional<std::int64_t> number_of(std::string_view text) {
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size() ? std::optional(number) : std::nullopt;
}

// The start_time of a run's meta.yaml.
std::optional<std::int64_t> start_of_mlflow_run(const std::filesystem::path& folder) {
  constexpr std::string_view kKey = "start_time: ";
  std::ifstream file(folder / "meta.yaml");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with(kKey)) return number_of(std::string_view(line).substr(kKey.size()));
  return std::nullopt;
}

// One value for each key of the configuration. The keys of model.config are names of other programs: they are one
// value.
void flatten(const nlohmann::json& value, const std::string& key,
             std::vector<std::pair<std::string, std::string>>& all) {
  if (value.is_object() && !value.empty() && key != "model.config")
    for (const auto& [name, inner] : value.items()) flatten(inner, key.empty() ? name : key + "." + name, all);
  else
    all.emplace_back(key, value.is_string() ? value.get<std::string>() : value.dump());
}

}  // namespace

MlflowFiles::MlflowFiles(const Config& config, std::int64_t done)
    : store_(absolute_path(config.output) + "/mlruns"), name_(std::filesystem::path(store_).parent_path().filename()) {
  const std::string experiment = store_ + "/0";
  if (done > 0 && is_folder(experiment))
    for (const auto& path : entries_of(experiment)) {
      const auto start = start_of_mlflow_run(path);
      if (!start || *start < start_time_) continue;
      start_time_ = *start;
      run_id_ = path.filename().string();
    }
  const bool is_new = run_id_.empty();
  if (is_new) {
    run_id_ = random_run_id();
    start_time_ = milliseconds_now();
  }
  folder_ = experiment + "/" + run_id_;
  for (const char* part : {"metrics", "params", "tags", "artifacts"}) make_folders(folder_ + "/" + part);
  if (!is_new && !config.evaluation.only) drop_metrics_after(done);
  write_experiment();
  if (is_new || !config.evaluation.only) write_parameters(config);
  write_text_durably(folder_ + "/tags/mlflow.runName", name_);
  write_run(Status::kRunning, 0);
}

void MlflowFiles::write_experiment() const {
  const std::string path = store_ + "/0/meta.yaml";
  if (path_exists(path)) return;
  write_text_durably(path, fmt::format("artifact_location: {}\ncreation_time: {}\nexperiment_id: '0'\n"
                                       "last_update_time: {}\nlifecycle_stage: active\nname: Default\n",
                                       quoted_yaml("file://" + store_ + "/0"), start_time_, start_time_));
}

void MlflowFiles::write_run(Status status, std::int64_t end_time) const {
  const char* user = std::getenv("USER");
  write_text_durably(
      folder_ + "/meta.yaml",
      fmt::format("artifact_uri: {}\nend_time: {}\nentry_point_name: ''\nexperiment_id: '0'\nlifecycle_stage: active\n"
                  "run_id: '{}'\nrun_name: {}\nsource_name: ''\nsource_type: 4\nsource_version: ''\nstart_time: {}\n"
                  "status: {}\ntags: []\nuser_id: {}\n",
                  quoted_yaml("file://" + folder_ + "/artifacts"), end_time == 0 ? "null" : std::to_string(end_time),
                  run_id_, quoted_yaml(name_), start_time_, static_cast<int>(status),
                  quoted_yaml(user ? user : "unknown")));
}

void MlflowFiles::write_parameters(const Config& config) const {
  std::vector<std::pair<std::string, std::string>> all;
  flatten(nlohmann::json::parse(config.to_json()), "", all);
  for (const auto& [key, value] : all)
    write_text_durably(folder_ + "/params/" + file_of_metric(key), valid_utf8(value.substr(0, kLongestParameter)),
                       system_files(), {.is_synced = false});
}

void MlflowFiles::drop_metrics_after(std::int64_t step) const {
  for (const auto& path : files_below(folder_ + "/metrics")) {
    std::string kept;
    std::ifstream file(path, std::ios::binary);
    for (std::string line; std::getline(file, line) && !file.eof();) {
      const auto last = number_of(std::string_view(line).substr(line.rfind(' ') + 1));
      if (last && *last <= step) kept += line + "\n";
    }
    file.close();
    if (kept.empty())
      remove_tree(path, system_files());
    else
      write_text_durably(path, kept);
  }
}

void MlflowFiles::append(const std::string& name, double value, std::int64_t step) const {
  const std::string path = folder_ + "/metrics/" + file_of_metric(name);
  make_folders(std::filesystem::path(path).parent_path());
  std::FILE* file = std::fopen(path.c_str(), "a");
  const std::string line = fmt::format("{} {} {}\n", milliseconds_now(), value, step);
  const bool is_written = file && std::fputs(line.c_str(), file) >= 0;
  if (!file || std::fclose(file) != 0 || !is_written)
    throw ResourceError({path, std::strerror(errno), "a writable file", "free some space, or choose another `output`"});
}

void MlflowFiles::write(const StepMetrics& metrics) {
  for (const auto& [name, value] : scalars_of(metrics)) append(name, value, metrics.step);
}

void MlflowFiles::write(const EvaluationMetrics& metrics) {
  for (const auto& [name, value] : scalars_of(metrics)) append(name, value, metrics.step);
}

void MlflowFiles::finish(Status status) { write_run(status, milliseconds_now()); }

}  // namespace gantry
