#include "gantry/cli/launch_command.h"

#include <algorithm>
#include <cstdlib>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <memory>

#include "gantry/cli/launch_files.h"
#include "gantry/cli/number_checks.h"
#include "gantry/core/error.h"
#include "gantry/launch/job_start.h"
#include "gantry/launch/supervisor/job_output.h"
#include "gantry/launch/supervisor/mpirun.h"
#include "gantry/launch/supervisor/open_files.h"
#include "gantry/launch/supervisor/restart_policy.h"
#include "gantry/launch/supervisor/supervisor.h"

namespace gantry::cli {
namespace {

using namespace launcher;

// The flags as given. resolve() combines them.
struct LaunchArguments {
  int ranks = 0, ranks_per_host = 0;
  std::string hosts, hostfile, nodes;
  std::string backend = "mpi";
  LaunchOptions options;
};

// torchrun is started on every host, but `gantry launch` once for all hosts.
void refuse_torchrun_flags(const LaunchArguments& arguments) {
  if (arguments.nodes.empty()) return;
  const int slots = std::max({1, arguments.ranks_per_host, arguments.ranks / 2});
  throw UsageError(
      {"gantry launch",
       "--nnodes, --node_rank, --master_addr and --master_port belong to launchers that are started on every host",
       "one launch on a single host, with the names of all hosts",
       fmt::format("gantry launch --hosts HOST_A:{0},HOST_B:{0} -- {1}", slots,
                   fmt::join(arguments.options.program, " "))});
}

void refuse_inner_launch() {
  if (std::getenv("OMPI_COMM_WORLD_RANK") || std::getenv("PMIX_RANK"))
    throw UsageError({"gantry launch", "this process is already a rank of an MPI job",
                      "a single launch without mpirun or srun",
                      "leave out mpirun or srun, or start the program with it directly"});
  if (std::getenv(JobStart::kRankVariable))
    throw UsageError({"gantry launch", "this process is already a rank of another launch", "a single launch",
                      "leave out one of the two"});
}

int count_ranks(const LaunchArguments& arguments) {
  const auto& hosts = arguments.options.hosts;
  const int hosts_count = std::max<int>(1, static_cast<int>(hosts.size()));
  int ranks = arguments.ranks;
  if (ranks == 0 && arguments.ranks_per_host > 0) ranks = arguments.ranks_per_host * hosts_count;
  if (ranks == 0) ranks = total_slots(hosts);
  if (ranks == 0)
    throw UsageError({"gantry launch", "neither the number of ranks nor the hosts are given",
                      "-n RANKS or --hosts A:2,B:2",
                      fmt::format("run gantry launch -n 4 -- {}", fmt::join(arguments.options.program, " "))});
  return ranks;
}

LaunchOptions resolve(const LaunchArguments& arguments) {
  refuse_torchrun_flags(arguments);
  refuse_inner_launch();
  LaunchArguments all = arguments;
  LaunchOptions& options = all.options;
  if (!all.hosts.empty()) options.hosts = parse_hosts(all.hosts);
  if (!all.hostfile.empty()) options.hosts = read_hostfile(all.hostfile);
  if (all.ranks_per_host > 0)
    for (auto& host : options.hosts) host.slots = std::max(host.slots, all.ranks_per_host);
  options.tcp = all.backend == "tcp";
  options.ranks = count_ranks(all);
  if (const int slots = total_slots(options.hosts); !options.hosts.empty() && options.ranks > slots)
    throw UsageError({"gantry launch", fmt::format("{} ranks, but the hosts have slots for {}", options.ranks, slots),
                      fmt::format("at most {} ranks", slots), "add slots: --hosts NAME:RANKS"});
  return options;
}

[[noreturn]] void fail(const Verdict& verdict, const std::string& remedy = "") {
  throw Error(verdict.exit_code, "launch: " + verdict.line + (remedy.empty() ? "" : "; " + remedy));
}

// The advice after the loss of a rank in a job without --restarts.
std::string remedy_of(const LaunchOptions& options) {
  const std::string checkpoint = newest_checkpoint(run_files(options.program, options.checkpoints));
  if (checkpoint.empty()) return "check its log and the memory of its host, then start the job again";
  return fmt::format("resume the job from {} with checkpoint.resume=auto, or use --restarts N to do so automatically",
                     checkpoint);
}

// The job and its restarts.
int run_starts(const LaunchOptions& options, const RunFiles& files, LaunchSignals& signals, JobOutput& output) {
  std::optional<JobFailure> before;
  for (int starts = 1;; ++starts) {
    const JobEnd end = run_job(options, starts - 1, signals, output);
    const Verdict verdict = judge(end);
    if (verdict.line.empty()) return verdict.exit_code;
    if (verdict.mpirun_knows) output.show_mpirun();
    if (end.asked_by != 0) fail(verdict);
    const JobFailure failure{verdict, last_step(files)};
    const auto decision = decide_restart(options.restarts, starts, files.checkpoints, failure, before);
    if (!decision.line.empty()) output.note(fmt::format("{}; {}", verdict.line, decision.line));
    if (!decision.again || signals.wait(decision.seconds) != 0)
      fail(verdict, options.restarts == 0 && verdict.exit_code == PeerError::kExitCode && !verdict.mpirun_knows
                        ? remedy_of(options)
                        : "");
    before = failure;
  }
}

int run_launch(const LaunchOptions& options) {
  constexpr int kSockets = 2;  // a rank's shim and its program have one each
  if (!options.tcp) find_mpirun();
  RunFiles files;
  if (options.restarts > 0) files = find_run_files(options.program, options.checkpoints);
  allow_open_files(options.ranks, kSockets + (options.log_dir.empty() ? 0 : 1));
  LaunchSignals signals;
  JobOutput output(options.log_dir);
  int code = 0;
  try {
    code = run_starts(options, files, signals, output);
  } catch (const Error& error) {
    output.error(error.what());  // main() would wait for the reader of stderr
    code = error.exit_code();
  }
  output.finish([&] { return signals.wait(1e-3) != 0; });
  return code;
}

void add_flags(CLI::App& launch, LaunchArguments& arguments) {
  LaunchOptions& options = arguments.options;
  launch.add_option("-n,--ranks", arguments.ranks, "Total number of ranks; default: the slots of all hosts")
      ->check(CLI::Range(1, 1'000'000))
      ->type_name("N");
  launch
      .add_option("--backend", arguments.backend,
                  "mpi: mpirun starts the ranks; tcp: they are processes without MPI, on other hosts by ssh")
      ->check(CLI::IsMember({"mpi", "tcp"}))
      ->capture_default_str();
  auto* hosts =
      launch.add_option("--hosts", arguments.hosts, "Hosts with their slots (maximum number of ranks): a:2,b:2")
          ->type_name("LIST");
  launch.add_option("--hostfile", arguments.hostfile, "File with one line per host: NAME slots=N")
      ->excludes(hosts)
      ->type_name("FILE");
  launch
      .add_option("--nproc-per-node,--nproc_per_node,--num-gpus,--num_gpus", arguments.ranks_per_host,
                  "Number of ranks on each host; the spellings of other launchers are accepted")
      ->check(CLI::Range(1, 4096))
      ->type_name("N");
  launch
      .add_option("--restarts", options.restarts,
                  "Maximum number of restarts from the last checkpoint after failures that may be temporary")
      ->check(CLI::Range(0, 1000))
      ->capture_default_str();
  launch
      .add_option("--checkpoints", options.checkpoints,
                  "Checkpoint directory of a custom program; without it, a custom program is not restarted")
      ->type_name("DIR");
  launch.add_option("--log-dir", options.log_dir, "Directory for a log of each rank and its exit status")
      ->type_name("DIR");
  launch.add_option("--interface", options.interface, "The network interface between the hosts, or its address")
      ->type_name("NAME");
  launch.add_option("--port", options.port, "Port that the ranks connect to; default: any free port")
      ->check(CLI::Range(1, 65535));
  launch
      .add_option("-x,--env", options.environment,
                  "Environment variable to export to ranks on other hosts: NAME or NAME=VALUE")
      ->type_name("NAME")
      ->allow_extra_args(false);
  launch.add_option("--start-seconds", options.start_seconds, "Seconds within which every rank must start")
      ->check(above_zero())
      ->capture_default_str();
  launch
      .add_option("--stopped-seconds", options.stopped_seconds,
                  "Seconds that a rank may be suspended by a signal (SIGSTOP)")
      ->check(above_zero())
      ->capture_default_str();
  launch
      .add_option("--nnodes,--node_rank,--node-rank,--master_addr,--master-addr,--master_port,--master-port",
                  arguments.nodes)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeLast)
      ->group("");
  launch
      .add_option("program", options.program,
                  "After --: the program and its arguments; it is started once for each rank")
      ->required()
      ->type_name("PROGRAM ...");
}

}  // namespace

void add_launch_command(CLI::App& app, int& exit_code) {
  CLI::App* launch = app.add_subcommand("launch", "Run a program as the ranks of one job, and supervise the job");
  const auto arguments = std::make_shared<LaunchArguments>();
  add_flags(*launch, *arguments);
  launch->callback([arguments, &exit_code] { exit_code = run_launch(resolve(*arguments)); });
}

}  // namespace gantry::cli
