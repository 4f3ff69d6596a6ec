#include "gantry/launch/supervisor/job.h"

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include "gantry/comm/control/timers.h"
#include "gantry/core/error.h"
#include "gantry/core/host/usable_cores.h"
#include "gantry/launch/supervisor/launch_address.h"
#include "gantry/launch/supervisor/rank_starter.h"
#include "gantry/launch/supervisor/supervisor.h"

namespace gantry::launcher {

using namespace control;
using asio::posix::stream_descriptor;

Job::Job(const LaunchOptions& options, int start, LaunchSignals& signals, JobOutput& output)
    : options_(options),
      signals_(signals),
      output_(output),
      several_hosts_(may_have_several_hosts(options)),
      hub_(context_, {.ranks = options.ranks, .describe_rank = [](int rank) { return fmt::format("rank {}", rank); }},
           {.on_begun = [] {},
            .on_lost = [this](const JobFailure& failure) { spawn(context_, watch_closed(failure)); },
            .on_grown = [this](const std::set<int>& joined) { take_in(joined); },
            .on_over = [this](const std::set<int>&) { end_spares(); }}),
      shims_(context_, {.heartbeat = kShimBeatSeconds,
                        .lost_after = std::max(options.stopped_seconds, kLeastShimSilence),
                        .beat = [] {},
                        .lost = [this](int rank, double) { lose_silent(rank); }}),
      reception_(context_, {.ranks = options.ranks,
                            .several_hosts = several_hosts_,
                            .refusal = [this](const Hello& hello) { return refusal(hello); },
                            .welcome = [this](const Hello& hello, const auto& peer) { welcome(hello, peer); },
                            .warn = [this](const std::string& line) { output_.note(line); }}),
      escalation_(context_,
                  {{{kKillRanksAfter, [this] { send_to_all(encode_frame(FrameKind::kill)); }},
                    {kTellMpirunAfter, [this] { for_each_starter([](const Mpirun& one) { one.signal(SIGTERM); }); }},
                    {kKillMpirunAfter, [this] { for_each_starter([](const Mpirun& one) { one.kill_group(); }); }},
                    {kGiveUpAfter,
                     [this] {
                       gave_up_ = true;
                       look_at_mpirun();
                     }}}}),
      signal_events_(context_, ::dup(signals.descriptor())),
      mpirun_events_(context_),
      start_timer_(context_),
      output_timer_(context_),
      start_(start) {
  for (int rank = 0; rank < options.ranks; ++rank) seats_.push_back(std::make_unique<RankSlot>(context_));
  open();
  start_mpirun();
}

void Job::open() {
  const std::string address = launch_address(several_hosts_, options_.interface);
  try {
    meeting_ = reception_.open(address, options_.port);
  } catch (const boost::system::system_error& error) {
    throw ResourceError({"launch",
                         fmt::format("listening on port {} failed: {}", options_.port, error.code().message()), "",
                         options_.port == 0 ? "" : "choose another --port"});
  }
}

// `more`: variables in addition to the launch's own.
std::unique_ptr<Mpirun> Job::start_ranks(std::map<std::string, std::string> more) {
  std::map<std::string, std::string> variables = std::move(more);
  variables.insert({{Rendezvous::kVariable, encode_meeting(meeting_)},
                    {"GANTRY_RESTART", std::to_string(start_)},
                    {"GANTRY_RESTARTS", std::to_string(options_.restarts)}});
  std::vector<std::string> exported = options_.environment;
  for (const auto& [name, value] : variables) exported.push_back(name);
  for (const char* name : {"OMP_NUM_THREADS", "LD_LIBRARY_PATH"})
    if (std::getenv(name)) exported.emplace_back(name);
  const std::string self = std::filesystem::read_symlink("/proc/self/exe").string();
  return std::make_unique<Mpirun>(
      options_.tcp ? starter_command(options_, self, exported)
                   : mpirun_command(options_, find_mpirun(), self, usable_cores(), ::geteuid() == 0, exported),
      variables);
}

void Job::start_mpirun() {
  keep_from_children(signal_events_.native_handle());
  if (options_.tcp) end_.starter = "gantry launch-ranks";
  mpirun_ = start_ranks({});
  mpirun_events_.assign(::dup(mpirun_->output()));
}

JobEnd Job::run() {
  hub_.start();
  shims_.start();
  spawn(context_, hear_signals());
  spawn(context_, hear_mpirun());
  spawn(context_, watch_start());
  context_.run();
  finish();
  return end_;
}

asio::awaitable<void> Job::hear_signals() {
  error_code error;
  while (!error) {
    for (int number; (number = signals_.take()) != 0;) take_signal(number);
    if (closed_) break;
    co_await signal_events_.async_wait(stream_descriptor::wait_read, asio::redirect_error(asio::use_awaitable, error));
  }
}

void Job::take_signal(int number) {
  if (number == SIGCHLD) {
    look_at_mpirun();
  } else if (number == SIGUSR2) {
    send_to_all(encode_number(FrameKind::signal, SIGUSR2));
  } else if (end_.asked_by == 0) {
    end_.asked_by = number;
    output_.note(fmt::format("{}: asking the ranks to stop; send it again to end them at once", signal_name(number)));
    output_.hurry(kReaderSeconds);
    send_to_all(encode_number(FrameKind::signal, SIGUSR1));
  } else {
    end_.forced = true;
    output_.hurry(0);
    escalation_.skip_wait();
  }
}

asio::awaitable<void> Job::hear_mpirun() {
  error_code error;
  while (!error) {
    output_.mpirun_bytes(mpirun_->read_output());
    if (closed_ || mpirun_->output() < 0) break;  // mpirun has closed its output
    co_await mpirun_events_.async_wait(stream_descriptor::wait_read, asio::redirect_error(asio::use_awaitable, error));
  }
}

void Job::look_at_mpirun() {
  look_at_restarts();
  const auto code = mpirun_->poll_end();
  if (!code || !again_.empty()) return;
  end_.mpirun_first = end_.mpirun_first || (*code < 0 && !escalation_.has_begun());
  escalation_.begin();
  const bool ranks_left = std::ranges::any_of(seats_, [](const auto& here) { return here->is_running(); });
  if (!ranks_left || gave_up_) close();
}

asio::awaitable<void> Job::watch_start() {
  start_timer_.expires_after(seconds(options_.start_seconds));
  error_code cancelled;
  co_await start_timer_.async_wait(asio::redirect_error(asio::use_awaitable, cancelled));
  if (cancelled || escalation_.has_begun()) co_return;
  std::vector<std::size_t> missing;
  for (std::size_t i = 0; i < seats_.size(); ++i)
    if (!seats_[i]->shim) missing.push_back(i);
  if (missing.empty()) co_return;
  output_.note(
      fmt::format("after {} s these ranks have not started: {}", options_.start_seconds, fmt::join(missing, ", ")));
  escalation_.skip_wait();
}

// After this no work is left, and the context's run() returns.
void Job::close() {
  if (std::exchange(closed_, true)) return;
  reception_.close();
  hub_.close();
  shims_.stop();
  escalation_.stop();
  start_timer_.cancel();
  output_timer_.cancel();
  for (const auto& here : seats_) {
    here->patience.cancel();
    here->report.cancel();
    if (here->shim) here->shim->close();
  }
  error_code ignored;
  signal_events_.close(ignored);
  mpirun_events_.close(ignored);
}

void Job::finish() {
  for (std::size_t i = 0; i < seats_.size(); ++i) {
    const int rank = static_cast<int>(i);
    if (spare_.contains(rank)) continue;
    if (!seats_[i]->shim)
      end_.ranks.push_back({.rank = rank, .kind = RankEnd::Kind::kNever});
    else if (!seats_[i]->ended)
      lose(rank, false);
  }
  output_.mpirun_bytes(mpirun_->read_output());
  end_.mpirun_code = mpirun_->poll_end().value_or(0);
  if (continued_) end_.mpirun_code = 0;  // may be a lost rank's; the shims have reported the other ranks
  end_.aborted_by = output_.aborted_by();
}

JobEnd run_job(const LaunchOptions& options, int start, LaunchSignals& signals, JobOutput& output) {
  output.begin_start(start, options.ranks);
  JobEnd end = Job(options, start, signals, output).run();
  output.write_ends(end);
  return end;
}

}  // namespace gantry::launcher
