#include "gantry/trainer/report/earlier_run.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>

#include "gantry/core/error.h"
#include "gantry/core/io/paths.h"

namespace gantry {
namespace {

// The metrics are renamed last: if a run is killed in between, the next one finds metrics.jsonl and repeats
// the renaming. TensorBoard shows the renamed directory as a separate run.
constexpr std::array<const char*, 8> kRunFiles = {"config.yaml", "report.json", "report.html", "timeline.svg",
                                                  "trace.json",  "tensorboard", "events",      "metrics.jsonl"};

// "OUTPUT/metrics.2.jsonl".
std::string numbered(const std::string& output, const std::string& name, int number) {
  const std::filesystem::path path(name);
  return fmt::format("{}/{}.{}{}", output, path.stem().string(), number, path.extension().string());
}

int free_number(const std::string& output) {
  const auto is_taken = [&](int number) {
    return std::any_of(kRunFiles.begin(), kRunFiles.end(),
                       [&](const char* name) { return path_exists(numbered(output, name, number)); });
  };
  int number = 1;
  while (is_taken(number)) ++number;
  return number;
}

bool has_bytes(const std::string& path) {
  return path_exists(path) && is_file(path) && std::ifstream(path, std::ios::binary).peek() != EOF;
}

// The lines of metrics.jsonl, each with the decision whether to keep it.
class MetricsLines {
 public:
  MetricsLines(const std::string& path, std::int64_t last_step) : path_(path), last_step_(last_step) {}

  struct Line {
    std::string text;  // with its line end
    bool is_kept = false, is_torn = false, is_evaluation = false;
    std::int64_t step = 0;
  };

  template <class Use>
  void each(Use use) const {
    std::ifstream file(path_, std::ios::binary);
    for (Line line; std::getline(file, line.text); line = {}) {
      line.is_torn = file.eof();
      const auto parsed = nlohmann::json::parse(line.text, nullptr, /*allow_exceptions=*/false);
      const auto step = parsed.is_object() ? parsed.find("step") : parsed.end();
      const bool has_step = parsed.is_object() && step != parsed.end() && step->is_number_integer();
      if (has_step) line.step = step->get<std::int64_t>();
      line.is_kept = has_step && !line.is_torn && line.step <= last_step_;
      line.is_evaluation = has_step && parsed.contains("eval_loss");
      line.text += '\n';
      use(line);
    }
    if (file.bad())
      throw ResourceError({path_, "the file cannot be read", "the metrics of the resumed run", "check the disk"});
  }

 private:
  std::string path_;
  std::int64_t last_step_;
};

}  // namespace

std::string keep_earlier_run(const std::string& output, FileSystem& files) {
  const bool has_metrics = has_bytes(output + "/metrics.jsonl");
  if (!has_metrics && !path_exists(output + "/events")) return "";  // events precede the first step
  const int number = free_number(output);
  for (const char* name : kRunFiles)
    if (path_exists(output + "/" + name)) rename_durably(output + "/" + name, numbered(output, name, number), files);
  return has_metrics ? numbered(output, "metrics.jsonl", number) : "";
}

KeptMetrics keep_metrics_until(const std::string& output, std::int64_t last_step, FileSystem& files) {
  const std::string path = output + "/metrics.jsonl";
  KeptMetrics kept;
  if (!has_bytes(path)) return kept;
  const MetricsLines lines(path, last_step);
  bool all_kept = true, any_aside = false, trained = false, evaluated = false;
  lines.each([&](const MetricsLines::Line& line) {
    all_kept = all_kept && line.is_kept;
    any_aside = any_aside || (!line.is_kept && !line.is_torn);
    if (line.is_kept && line.step == last_step) (line.is_evaluation ? evaluated : trained) = true;
  });
  kept.owes_evaluation = trained && !evaluated;
  if (all_kept) return kept;
  if (any_aside) {
    kept.kept_as = numbered(output, "metrics.jsonl", free_number(output));
    DurableFile aside(kept.kept_as, files);
    lines.each([&](const MetricsLines::Line& line) {
      if (!line.is_kept && !line.is_torn) aside.write(line.text.data(), line.text.size());
    });
    aside.commit();
  }
  DurableFile rest(path, files);
  lines.each([&](const MetricsLines::Line& line) {
    if (line.is_kept) rest.write(line.text.data(), line.text.size());
  });
  rest.commit();
  return kept;
}

bool has_metrics_of(const std::string& output, std::int64_t step) {
  const std::string path = output + "/metrics.jsonl";
  bool found = false;
  if (has_bytes(path))
    MetricsLines(path, step).each([&](const MetricsLines::Line& line) {
      found = found || (line.is_kept && line.step == step && !line.is_evaluation);
    });
  return found;
}

}  // namespace gantry
