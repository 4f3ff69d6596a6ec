// The launch's part of one start of a job: it receives events of the ranks, of mpirun and of its own signals,
// and acts on them.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <sys/types.h>
#include <vector>

#include "gantry/comm/control/hub.h"
#include "gantry/comm/control/reception.h"
// Included after the others, because the header of Boost 1.74 lacks includes.
#include <boost/asio/posix/stream_descriptor.hpp>

#include "gantry/launch/supervisor/escalation.h"
#include "gantry/launch/supervisor/job_output.h"
#include "gantry/launch/supervisor/launch_options.h"
#include "gantry/launch/supervisor/launch_signals.h"
#include "gantry/launch/supervisor/mpirun.h"
#include "gantry/launch/supervisor/rank_end.h"

namespace gantry::launcher {

// The state of a rank in the launch.
struct RankSlot {
  explicit RankSlot(control::asio::io_context& context) : patience(context), report(context) {}
  bool is_running() const { return shim && !ended; }

  std::shared_ptr<control::Connection> shim;  // null until the shim has connected
  std::string host;
  pid_t shim_process = 0;  // 0 if it is on another host
  bool notified = false, ended = false;
  int stop_signal = 0;  // the last signal that stopped its program
  bool stands_still = false;
  double stopped_or_woken = 0;           // steady_seconds()
  control::asio::steady_timer patience;  // time limit for a stopped program
  control::asio::steady_timer report;    // time limit for the report on a program that left the hub
};

class Job {
 public:
  Job(const LaunchOptions& options, int start, LaunchSignals& signals, JobOutput& output);

  JobEnd run();

 private:
  template <class Value>
  using awaitable = control::asio::awaitable<Value>;
  using ShimConnection = std::shared_ptr<control::Connection>;

  void open();
  void start_mpirun();
  std::unique_ptr<Mpirun> start_ranks(std::map<std::string, std::string> more);
  awaitable<void> hear_signals();
  awaitable<void> hear_mpirun();
  awaitable<void> watch_start();
  void take_signal(int number);
  void look_at_mpirun();
  void close();
  void finish();

  std::string refusal(const Hello& hello) const;
  void welcome(const Hello& hello, const ShimConnection& connection);
  awaitable<void> hear_shim(int rank);
  awaitable<void> watch_stopped(int rank);
  awaitable<void> watch_closed(JobFailure failure);
  void take(int rank, const Frame& frame);
  void take_stop(int rank, int signal);
  void lose(int rank, bool out_of_reach);
  void lose_silent(int rank);
  void end_rank(int rank, RankEnd end);
  bool continues_without(int rank, const RankEnd& end);
  bool comes_too_late(int rank) const;
  void rejoin(int rank);
  void look_at_restarts();
  awaitable<void> start_again(std::set<int> replica);
  void take_in(const std::set<int>& joined);
  void end_starters();
  void end_spares();
  void send_to_all(const std::string& frame);
  void pause_if_behind();
  awaitable<void> resume_later();
  template <class Act>
  void for_each_starter(const Act& act) {
    act(*mpirun_);
    for (const Restart& restart : again_) act(*restart.starter);
  }
  RankSlot& seat(int rank) { return *seats_[static_cast<std::size_t>(rank)]; }

  const LaunchOptions& options_;
  LaunchSignals& signals_;
  JobOutput& output_;
  const bool several_hosts_;
  control::asio::io_context context_{1};
  control::Hub hub_;           // the hub of the ranks, if they are programs that use Gantry
  control::Heartbeats shims_;  // monitors the heartbeats of the shims
  control::Reception reception_;
  Rendezvous meeting_;
  Escalation escalation_;
  std::vector<std::unique_ptr<RankSlot>> seats_;  // by rank
  std::unique_ptr<Mpirun> mpirun_;
  // In an elastic job:
  std::set<int> spare_;       // ranks that were lost and have not joined again
  std::map<int, int> tries_;  // attempts to start a replica again, by its first rank
  struct Restart {
    std::set<int> replica;
    std::unique_ptr<Mpirun> starter;
  };
  std::vector<Restart> again_;
  bool continued_ = false;  // the job continued after a loss
  bool over_ = false;       // the work of the members is done
  control::asio::posix::stream_descriptor signal_events_, mpirun_events_;
  control::asio::steady_timer start_timer_, output_timer_;
  JobEnd end_;
  const int start_;
  bool gave_up_ = false, closed_ = false;
  bool paused_ = false;  // the ranks' output is paused, because its reader is behind
};

}  // namespace gantry::launcher
