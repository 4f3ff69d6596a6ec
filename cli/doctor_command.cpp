#include "gantry/cli/doctor_command.h"

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <memory>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "gantry/cli/engine_exec.h"
#include "gantry/cli/number_checks.h"
#include "gantry/cli/torch_library.h"
#include "gantry/core/host/usable_cores.h"
#include "gantry/core/io/output.h"
#include "gantry/core/version.h"
#include "gantry/diagnosis/diagnosis.h"

namespace gantry::cli {
namespace {

using Json = nlohmann::ordered_json;
using recorder::JobRecords;
using recorder::Operation;
using recorder::RankRecord;

constexpr std::size_t kMostRanksShown = 32;  // printed as text; JSON has all ranks
constexpr std::size_t kLastOperations = 5;   // printed for each rank

struct Arguments {
  std::string folder;
  double stuck_after = 5;
  bool json = false;
};

double seconds(std::int64_t nanoseconds) { return static_cast<double>(nanoseconds) * 1e-9; }

std::string describe_fully(const Operation& operation, const RankRecord& record) {
  std::string text = recorder::describe(operation, record.groups[operation.group]);
  if (is_message(operation.kind))
    text = fmt::format("{} {} {} rank {}", name_of(operation.kind), text,
                       operation.kind == recorder::Kind::kSend ? "to" : "from", operation.peer);
  return operation.dtype.empty() ? text : fmt::format("{} ({})", text, recorder::describe_tensor(operation));
}

// The duration up to the writing of the record if the operation has not finished.
double duration(const Operation& operation, const RankRecord& record) {
  return seconds((operation.finished_ns > 0 ? operation.finished_ns : record.written_ns) - operation.posted_ns);
}

std::string rank_text(const RankRecord& record) {
  const auto& who = record.identity;
  std::string text =
      fmt::format("\n{}: {}, process {} on {} ({}), {} operations{}\n", who.name, recorder::name_of(record.state),
                  who.process, who.host, who.backend, record.forgotten + record.operations.size(),
                  record.error.empty() ? "" : "; " + record.error);
  const std::size_t all = record.operations.size();
  for (std::size_t i = all - std::min(all, kLastOperations); i < all; ++i) {
    const Operation& operation = record.operations[i];
    text += fmt::format("  {:>10.3f} s ago  {:<8} {:>10.6f} s  {}\n", seconds(record.written_ns - operation.posted_ns),
                        name_of(operation.state), duration(operation, record), describe_fully(operation, record));
  }
  return text;
}

std::string report_text(const JobRecords& job, const recorder::Diagnosis& diagnosis) {
  std::string text = diagnosis.sentence + "\n";
  for (const auto& note : diagnosis.notes) text += fmt::format("note: {}\n", note);
  std::size_t shown = 0;
  for (const auto& [rank, record] : job.records)
    if (shown++ < kMostRanksShown) text += rank_text(record);
  if (shown > kMostRanksShown) text += fmt::format("\n{} more ranks; --json prints all\n", shown - kMostRanksShown);
  return text;
}

Json rank_json(const RankRecord& record) {
  Json operations = Json::array();
  for (const auto& operation : record.operations)
    operations.push_back({{"number", operation.number},
                          {"operation", describe_fully(operation, record)},
                          {"state", name_of(operation.state)},
                          {"seconds_ago", seconds(record.written_ns - operation.posted_ns)},
                          {"seconds", duration(operation, record)}});
  return {{"rank", record.identity.rank},
          {"name", record.identity.name},
          {"host", record.identity.host},
          {"process", record.identity.process},
          {"state", recorder::name_of(record.state)},
          {"error", record.error},
          {"reason", record.reason},
          {"operations", std::move(operations)}};
}

std::string report_json(const JobRecords& job, const recorder::Diagnosis& diagnosis) {
  Json waits = Json::array(), ranks = Json::array();
  for (const auto& wait : diagnosis.waits)
    waits.push_back(
        {{"rank", wait.rank}, {"operation", wait.operation}, {"seconds", wait.seconds}, {"waits_for", wait.ranks}});
  for (const auto& [rank, record] : job.records) ranks.push_back(rank_json(record));
  return Json{{"finding", recorder::name_of(diagnosis.finding)},
              {"sentence", diagnosis.sentence},
              {"waits", std::move(waits)},
              {"notes", diagnosis.notes},
              {"ranks", std::move(ranks)}}
             .dump(2, ' ', false, Json::error_handler_t::replace) +
         "\n";
}

// The properties of this build and machine.
void show_build(bool as_json) {
  const double gigabytes =
      static_cast<double>(sysconf(_SC_PHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGE_SIZE)) / 1e9;
  if (as_json)
    return print_output(Json{{"version", GANTRY_VERSION},
                             {"cores", usable_cores()},
                             {"memory_gb", gigabytes},
                             {"engine", engine_path()},
                             {"libtorch", describe(find_torch_library())},
                             {"backends", GANTRY_BACKENDS}}
                            .dump(2) +
                        "\n");
  print_output(fmt::format("gantry {}\ncores: {}\nmemory: {:.1f} GB\nengine: {}\nLibTorch: {}\nbackends: {}\n",
                           GANTRY_VERSION, usable_cores(), gigabytes, engine_path(), describe(find_torch_library()),
                           GANTRY_BACKENDS));
}

void run(const Arguments& arguments) {
  if (arguments.folder.empty()) return show_build(arguments.json);
  const JobRecords job = recorder::read_folder(arguments.folder);
  const auto diagnosis = recorder::diagnose(job, arguments.stuck_after);
  print_output(arguments.json ? report_json(job, diagnosis) : report_text(job, diagnosis));
}

}  // namespace

CLI::App* add_doctor_command(CLI::App& app) {
  auto arguments = std::make_shared<Arguments>();
  auto* doctor = app.add_subcommand(
      "doctor",
      "Show this build and machine; with DIR: diagnose from flight records which rank of a job waited for which");
  auto* folder = doctor
                     ->add_option("dir", arguments->folder,
                                  "The directory of the flight records, or the `output` directory of the run")
                     ->type_name("DIR");
  doctor->add_flag("--json", arguments->json, "Print JSON; with DIR, it has every operation of the records");
  doctor
      ->add_option("--stuck-after", arguments->stuck_after,
                   "For a running job: seconds that a rank may wait for a rank that is making progress")
      ->type_name("SECONDS")
      ->check(at_least_zero())
      ->capture_default_str()
      ->needs(folder);
  doctor->callback([arguments] { run(*arguments); });
  return doctor;
}

}  // namespace gantry::cli
