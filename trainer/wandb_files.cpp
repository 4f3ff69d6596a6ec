#include "gantry/trainer/wandb_files.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <ctime>
#include <filesystem>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <string_view>
#include <utility>

#include "gantry/core/base/utf8.h"
#include "gantry/core/host/this_host.h"
#include "gantry/core/io/durable_file.h"
#include "gantry/core/io/paths.h"
#include "gantry/core/version.h"
#include "gantry/trainer/metric_scalars.h"
#include "gantry/trainer/report/protobuf.h"
#include "gantry/trainer/report/wandb_log.h"

namespace gantry {
namespace {

// Numbers of fields in wandb/proto/wandb_internal.proto.
enum RecordField { kNumber = 1, kHistory = 2, kSummary = 3, kConfigUpdate = 5, kRun = 17, kExit = 18, kHeader = 21 };
enum HistoryField { kHistoryItem = 1, kHistoryStep = 2 };
enum ItemField { kItemKey = 1, kItemNestedKey = 2, kItemValue = 16 };
enum RunField { kRunId = 1, kRunProject = 3, kRunConfig = 4, kRunName = 8, kRunHost = 13, kRunStart = 17 };

using RowItems = std::vector<std::pair<std::string, std::string>>;

double seconds_of_wall_clock() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// Eight letters and digits, as wandb's client makes them.
std::string random_wandb_id() {
  constexpr std::string_view kLetters = "abcdefghijklmnopqrstuvwxyz0123456789";
  std::random_device source;
  std::uniform_int_distribution<std::size_t> any(0, kLetters.size() - 1);
  std::string id;
  for (int i = 0; i < 8; ++i) id += kLetters[any(source)];
  return id;
}

// wandb's client reads dates of directories as local time.
std::string date_of_folder(double seconds) {
  const auto time = static_cast<std::time_t>(seconds);
  std::tm local{};
  localtime_r(&time, &local);
  char text[32];
  std::strftime(text, sizeof text, "%Y%m%d_%H%M%S", &local);
  return text;
}

// wandb reads NaN and Infinity too.
std::string json_of_number(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value < 0 ? "-Infinity" : "Infinity";
  return fmt::format("{}", value);
}

std::string named_item(std::string_view key, std::string_view json) {
  return bytes_field(kItemKey, key) + bytes_field(kItemValue, json);
}

std::string config_update(const Config& config) {
  std::string items;
  const nlohmann::json all = nlohmann::json::parse(config.to_json());
  for (const auto& [key, value] : all.items()) items += bytes_field(1, named_item(key, value.dump()));
  return items;
}

struct HistoryRow {
  std::optional<std::int64_t> step;  // empty for records of other kinds
  RowItems items;                    // without _step
};

HistoryRow history_of(std::string_view record) {
  const auto history = field_of(record, kHistory);
  if (history.number == 0) return {};
  HistoryRow row{.step = static_cast<std::int64_t>(field_of(field_of(history.bytes, kHistoryStep).bytes, 1).value),
                 .items = {}};
  for (const auto& field : fields_of(history.bytes)) {
    if (field.number != kHistoryItem) continue;
    const std::string name(field_of(field.bytes, kItemKey).bytes);
    if (name != "_step") row.items.emplace_back(name, field_of(field.bytes, kItemValue).bytes);
  }
  return row;
}

const std::string* value_named(const RowItems& items, std::string_view name) {
  const auto found = std::ranges::find(items, name, [](const auto& item) -> std::string_view { return item.first; });
  return found == items.end() ? nullptr : &found->second;
}

// A metric replaces an earlier one of the step; the time is that of the first.
void put_item(RowItems& items, const std::string& name, const std::string& value) {
  const auto found = std::ranges::find(items, name, [](const auto& item) { return item.first; });
  if (found == items.end())
    items.emplace_back(name, value);
  else if (!name.starts_with('_'))
    found->second = value;
}

double runtime_of(const RowItems& items) {
  const std::string* value = value_named(items, "_runtime");
  const auto number = nlohmann::json::parse(value ? *value : "0", nullptr, /*allow_exceptions=*/false);
  return number.is_number() ? number.get<double>() : 0;
}

// Where a run of Gantry is in OUTPUT/wandb.
struct StoredRun {
  std::string path, id;                           // empty if there is none
  std::pair<std::uint64_t, std::uint64_t> start;  // seconds since 1970, nanoseconds
};

StoredRun stored_run(const std::string& path) {
  StoredRun run;
  bool is_of_gantry = false;
  read_wandb_log(path, [&](const WandbLogRecord& record) {
    if (const auto header = field_of(record.bytes, kHeader); header.number != 0)
      is_of_gantry = field_of(field_of(header.bytes, 1).bytes, 1).bytes.starts_with("gantry ");
    const auto field = field_of(record.bytes, kRun);
    if (field.number == 0) return is_of_gantry;
    const auto start = field_of(field.bytes, kRunStart).bytes;
    run = {.path = path,
           .id = std::string(field_of(field.bytes, kRunId).bytes),
           .start = {field_of(start, 1).value, field_of(start, 2).value}};
    return false;
  });
  return is_of_gantry ? run : StoredRun{};
}

StoredRun newest_stored_run(const std::string& store) {
  StoredRun newest;
  if (!is_folder(store)) return newest;
  for (const auto& folder : entries_of(store)) {
    if (!is_folder(folder)) continue;
    for (const auto& file : entries_of(folder)) {
      if (file.extension() != ".wandb") continue;
      const StoredRun run = stored_run(file);
      if (!run.path.empty() && (newest.path.empty() || run.start > newest.start)) newest = run;
    }
  }
  return newest;
}

}  // namespace

WandbFiles::WandbFiles(const Config& config, std::int64_t done) : store_(config.output + "/wandb") {
  if (done == 0 || !continue_newest(config, done)) begin(config);
}

WandbFiles::~WandbFiles() {
  try {
    write_row();
  } catch (const std::exception&) {  // the run has an error that matters more, or has called finish()
  }
}

void WandbFiles::begin(const Config& config) {
  run_id_ = random_wandb_id();
  start_ = seconds_of_wall_clock();
  const std::string folder = fmt::format("{}/offline-run-{}-{}", store_, date_of_folder(start_), run_id_);
  make_folders(folder + "/files");
  path_ = fmt::format("{}/run-{}.wandb", folder, run_id_);
  log_ = std::make_unique<WandbLog>(path_, 0);
  const std::string version = bytes_field(1, "gantry " GANTRY_VERSION) + bytes_field(2, "0.0.0");
  log_->append(numbered(bytes_field(kHeader, bytes_field(1, version))));
  const auto whole = static_cast<std::uint64_t>(start_);
  const auto nanoseconds = static_cast<std::uint64_t>((start_ - static_cast<double>(whole)) * 1e9);
  const std::string name = std::filesystem::weakly_canonical(std::filesystem::absolute(config.output)).filename();
  log_->append(
      numbered(bytes_field(kRun, bytes_field(kRunId, run_id_) + bytes_field(kRunProject, "gantry") +
                                     bytes_field(kRunConfig, config_update(config)) +
                                     bytes_field(kRunName, valid_utf8(name)) + bytes_field(kRunHost, host_name()) +
                                     bytes_field(kRunStart, varint_field(1, whole) + varint_field(2, nanoseconds)))));
}

bool WandbFiles::continue_newest(const Config& config, std::int64_t done) {
  const StoredRun run = newest_stored_run(store_);
  if (run.path.empty()) return false;
  path_ = run.path;
  run_id_ = run.id;
  inserts_ = config.evaluation.only;
  double runtime = 0;
  std::int64_t kept = 0;
  read_wandb_log(path_, [&](const WandbLogRecord& record) {
    HistoryRow row = history_of(record.bytes);
    const bool is_end = field_of(record.bytes, kExit).number != 0;
    if (row.step) runtime = runtime_of(row.items);
    if (!inserts_ && row.step == done) row_ = Row{.step = done, .items = std::move(row.items)};
    if (!inserts_ && (is_end || row.step >= done)) return false;
    kept = record.end;
    last_record_ = field_of(record.bytes, kNumber).value;
    return true;
  });
  start_ = seconds_of_wall_clock() - runtime;
  remove_tree(path_ + ".synced", system_files());  // wandb's mark of a file that it has uploaded
  if (inserts_) return true;
  log_ = std::make_unique<WandbLog>(path_, kept);
  log_->append(numbered(bytes_field(kConfigUpdate, config_update(config))));
  return true;
}

std::string WandbFiles::numbered(const std::string& record) { return varint_field(kNumber, ++last_record_) + record; }

void WandbFiles::add(std::int64_t step, const std::vector<std::pair<std::string, double>>& scalars) {
  if (row_ && row_->step != step) write_row();
  const double now = seconds_of_wall_clock();
  if (!row_) row_ = Row{.step = step, .items = {}};
  for (const auto& [name, value] : scalars) put_item(row_->items, name, json_of_number(value));
  put_item(row_->items, "_timestamp", fmt::format("{:.6f}", now));
  put_item(row_->items, "_runtime", fmt::format("{:.6f}", now - start_));
}

std::vector<std::string> WandbFiles::records_of_row() const {
  RowItems items = row_->items;
  items.emplace_back("_step", std::to_string(row_->step));
  std::string history, summary;
  for (const auto& [name, value] : items) {
    history += bytes_field(kHistoryItem, named_item(name, value));
    summary += bytes_field(1, named_item(name, value));
  }
  history += bytes_field(kHistoryStep, varint_field(1, static_cast<std::uint64_t>(row_->step)));
  summary += bytes_field(1, bytes_field(kItemNestedKey, "_wandb") + bytes_field(kItemNestedKey, "runtime") +
                                bytes_field(kItemValue, std::to_string(std::llround(runtime_of(items)))));
  return {bytes_field(kHistory, history), bytes_field(kSummary, summary)};
}

void WandbFiles::write_row() {
  if (!row_) return;
  if (inserts_)
    insert_row();
  else
    for (const auto& record : records_of_row()) log_->append(numbered(record));
  row_.reset();
}

void WandbFiles::insert_row() {
  std::string file = wandb_log_header();
  last_record_ = 0;
  const auto put = [&](const std::string& record) {
    file += wandb_log_record(static_cast<std::int64_t>(file.size()), numbered(record));
  };
  bool is_placed = false;
  const auto place = [&] {
    if (!std::exchange(is_placed, true))
      for (const auto& record : records_of_row()) put(record);
  };
  read_wandb_log(path_, [&](const WandbLogRecord& record) {
    HistoryRow row = history_of(record.bytes);
    if (row.step == row_->step) {
      for (const auto& [name, value] : row_->items) put_item(row.items, name, value);
      row_->items = row.items;
      return true;
    }
    if (row.step > row_->step || field_of(record.bytes, kExit).number != 0) place();
    const auto number = field_of(record.bytes, kNumber).value;
    put(std::string(record.bytes.substr(number == 0 ? 0 : varint_field(kNumber, number).size())));
    return true;
  });
  place();
  write_text_durably(path_, file);
}

void WandbFiles::write(const StepMetrics& metrics) { add(metrics.step, scalars_of(metrics)); }

void WandbFiles::write(const EvaluationMetrics& metrics) { add(metrics.step, scalars_of(metrics)); }

void WandbFiles::finish(int exit_code) {
  write_row();
  if (inserts_) return;
  const auto runtime = static_cast<std::uint64_t>(std::max(0.0, seconds_of_wall_clock() - start_));
  log_->append(
      numbered(bytes_field(kExit, varint_field(1, static_cast<std::uint64_t>(exit_code)) + varint_field(2, runtime))));
}

}  // namespace gantry
