#include "gantry/launch/supervisor/supervisor.h"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <memory>
#include <poll.h>
#include <random>
#include <sys/signalfd.h>
#include <sys/socket.h>

#include "gantry/core/error.h"
#include "gantry/core/this_host.h"
#include "gantry/core/usable_cores.h"
#include "gantry/launch/supervisor/connection.h"
#include "gantry/launch/supervisor/mpirun.h"

namespace gantry::launcher {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kTickMilliseconds = 100;
constexpr double kJustWoken = 3;
constexpr double kIntroduceSeconds = 10;  // for a connection to say who it is
constexpr std::size_t kMostGuests = 64;   // beyond the ranks
constexpr double kLeastSilence = 5;       // of a shim, which sends a sign of life every second
// After the first failure: mpirun ends the others; who is left then is killed, then mpirun is told, then killed.
constexpr double kKillRanksAfter = 3, kTellMpirunAfter = 6, kKillMpirunAfter = 9, kGiveUpAfter = 12;

double seconds_since(Clock::time_point then) { return std::chrono::duration<double>(Clock::now() - then).count(); }

std::string random_token() {
  std::random_device source;
  return fmt::format("{:08x}{:08x}{:08x}{:08x}", source(), source(), source(), source());
}

// A rank as the launch sees it.
struct Seat {
  std::unique_ptr<Connection> connection;  // null until it has joined
  std::string host;
  bool told = false, ended = false;
  int stop_signal = 0;  // the last one that made its program stand still
  bool stands_still = false;
  Clock::time_point stopped_or_woken;
  pid_t shim = 0;  // on this host; 0: on another one
  Clock::time_point heard = Clock::now();

  bool is_running() const { return connection && !ended; }
};

// A connection that has not said who it is.
struct Guest {
  Connection connection;
  Clock::time_point since = Clock::now();
};

class Job {
 public:
  Job(const LaunchOptions& options, int start, LaunchSignals& signals, JobOutput& output)
      : options_(options), signals_(signals), output_(output), seats_(static_cast<std::size_t>(options.ranks)) {
    several_hosts_ = may_have_several_hosts(options);
    listener_ = listen_for_ranks(several_hosts_, options.interface, options.port);
    token_ = random_token();
    std::map<std::string, std::string> variables;
    variables[Rendezvous::kVariable] = encode_rendezvous({listener_.address, listener_.port, token_});
    variables["GANTRY_RESTART"] = std::to_string(start);
    variables["GANTRY_RESTARTS"] = std::to_string(options.restarts);
    mpirun_.emplace(mpirun_command(options, find_mpirun(), std::filesystem::read_symlink("/proc/self/exe").string(),
                                   usable_cores(), ::geteuid() == 0, exported(variables)),
                    variables);
  }

  JobEnd run() {
    while (!is_over()) {
      wait_for_events();
      take_signals();
      output_.mpirun_bytes(mpirun_->read_output());
      accept_guests();
      hear_guests();
      hear_ranks();
      watch_clock();
    }
    finish();
    return end_;
  }

 private:
  std::vector<std::string> exported(const std::map<std::string, std::string>& variables) const {
    std::vector<std::string> names = options_.environment;
    for (const auto& [name, value] : variables) names.push_back(name);
    for (const char* name : {"OMP_NUM_THREADS", "LD_LIBRARY_PATH"})
      if (std::getenv(name)) names.push_back(name);
    return names;
  }

  bool is_over() {
    if (!mpirun_->poll_end()) return false;
    const bool ranks_left =
        std::any_of(seats_.begin(), seats_.end(), [](const Seat& seat) { return seat.is_running(); });
    return !ranks_left || (trouble_ && seconds_since(*trouble_) > kGiveUpAfter);
  }

  void wait_for_events() {
    std::vector<pollfd> ready{{signals_.descriptor(), POLLIN, 0}, {listener_.socket.get(), POLLIN, 0}};
    ready.push_back({mpirun_->output(), POLLIN, 0});
    for (const auto& guest : guests_) ready.push_back({guest.connection.get(), POLLIN, 0});
    for (const auto& seat : seats_)
      if (seat.is_running()) ready.push_back({seat.connection->get(), POLLIN, 0});
    ::poll(ready.data(), ready.size(), kTickMilliseconds);
  }

  void take_signals() {
    for (int number; (number = signals_.take()) != 0;) {
      if (number == SIGUSR2) {
        send_to_all({FrameKind::kSignal, std::to_string(SIGUSR2)});
      } else if (end_.asked_by == 0) {
        end_.asked_by = number;
        output_.note(fmt::format("{}: asking the ranks to stop; once more to end at once", signal_name(number)));
        send_to_all({FrameKind::kSignal, std::to_string(SIGUSR1)});
      } else {
        force();
      }
    }
  }

  void force() {
    end_.forced = true;
    begin_trouble();
    *trouble_ = std::min(*trouble_, Clock::now() - std::chrono::seconds(static_cast<int>(kKillRanksAfter)));
  }

  // Where there are too many, those go who have been silent for longest; each is heard at least once.
  void accept_guests() {
    const std::size_t most = kMostGuests + seats_.size();
    for (std::size_t accepted = 0; accepted < most; ++accepted) {
      const int number = ::accept4(listener_.socket.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
      if (number < 0) break;
      watch_peer(number, several_hosts_);
      guests_.push_back({Connection(Descriptor(number), FrameReader::kLargestHello)});
    }
    if (guests_.size() > most) guests_.erase(guests_.begin(), guests_.end() - static_cast<std::ptrdiff_t>(most));
  }

  // A guest is heard only if its first words are a hello of this launch.
  void hear_guests() {
    for (auto& guest : guests_) {
      const auto frames = guest.connection.receive();
      if (!frames.empty()) introduce(guest, frames);
    }
    std::erase_if(guests_, [](const Guest& guest) {
      return !guest.connection.is_open() || seconds_since(guest.since) > kIntroduceSeconds;
    });
  }

  void introduce(Guest& guest, const std::vector<Frame>& frames) {
    const auto hello = frames[0].kind == FrameKind::kHello ? decode_hello(frames[0].bytes) : std::nullopt;
    const bool known = hello && hello->token == token_ && hello->rank >= 0 && hello->rank < options_.ranks &&
                       !seats_[static_cast<std::size_t>(hello->rank)].connection;
    if (!known) return guest.connection.close();
    Seat& seat = seats_[static_cast<std::size_t>(hello->rank)];
    seat.host = hello->host;
    seat.shim = hello->host == host_name() ? hello->process : 0;
    seat.heard = Clock::now();
    seat.connection = std::make_unique<Connection>(std::move(guest.connection));
    seat.connection->trust();
    guest.connection.close();
    seat.connection->send({FrameKind::kCommand, encode_words(options_.program)});
    if (end_.asked_by != 0) seat.connection->send({FrameKind::kSignal, std::to_string(SIGUSR1)});
  }

  void hear_ranks() {
    for (std::size_t i = 0; i < seats_.size(); ++i) {
      Seat& seat = seats_[i];
      if (!seat.is_running()) continue;
      for (const Frame& frame : seat.connection->receive()) {
        seat.heard = Clock::now();
        hear(static_cast<int>(i), seat, frame);
      }
      if (!seat.ended && !seat.connection->is_open()) lose(static_cast<int>(i), seat);
    }
  }

  void hear(int rank, Seat& seat, const Frame& frame) {
    if (frame.kind == FrameKind::kOutput) return output_.rank_bytes(rank, Stream::kOut, frame.bytes);
    if (frame.kind == FrameKind::kErrors) return output_.rank_bytes(rank, Stream::kErr, frame.bytes);
    if (frame.kind == FrameKind::kBegun) output_.rank_began(rank, seat.host, frame.bytes);
    if (frame.kind == FrameKind::kTold) seat.told = true;
    if (frame.kind == FrameKind::kStopped) {
      const int signal = std::atoi(frame.bytes.c_str());
      seat.stands_still = signal != 0;
      if (signal != 0) seat.stop_signal = signal;
      seat.stopped_or_woken = Clock::now();
    }
    if (frame.kind != FrameKind::kEnd) return;
    if (auto end = decode_end(frame.bytes)) end_rank(rank, seat, *end);
  }

  // A connection that ends without a report: its host is gone, or its shim was killed, and the program with it.
  void lose(int rank, Seat& seat) {
    RankEnd end{.kind = RankEnd::Kind::kSignal, .number = SIGKILL, .told = seat.told || trouble_.has_value()};
    if (seat.connection->out_of_reach()) end.kind = RankEnd::Kind::kLost;
    end_rank(rank, seat, end);
  }

  void end_rank(int rank, Seat& seat, RankEnd end) {
    end.rank = rank;
    if (several_hosts_) end.host = seat.host;
    // mpirun wakes what it is about to end.
    const bool just_woken = seat.stop_signal != 0 && seconds_since(seat.stopped_or_woken) < kJustWoken;
    if (end.failed() && end.told && (seat.stands_still || just_woken)) {
      end.kind = RankEnd::Kind::kHeld;
      end.number = seat.stop_signal;
    }
    end_.ranks.push_back(end);
    seat.ended = true;
    seat.connection->close();
    output_.rank_ended(rank);
    if (end.failed() && !end.told) begin_trouble();
  }

  void begin_trouble() {
    if (!trouble_) trouble_ = Clock::now();
  }

  void watch_clock() {
    watch_stopped();
    watch_silent();
    if (const auto code = mpirun_->poll_end()) {
      end_.mpirun_first = end_.mpirun_first || (*code < 0 && !trouble_);
      begin_trouble();
    }
    if (!trouble_ && seconds_since(begun_) > options_.start_seconds) watch_start();
    if (!trouble_) return;
    const double seconds = seconds_since(*trouble_);
    const int level = seconds > kKillMpirunAfter   ? 3
                      : seconds > kTellMpirunAfter ? 2
                      : seconds >= kKillRanksAfter ? 1
                                                   : 0;
    if (level > level_) escalate(level);
  }

  void escalate(int level) {
    level_ = level;
    if (level == 1) send_to_all({FrameKind::kKill, ""});
    if (level == 2) mpirun_->signal(SIGTERM);
    if (level == 3) mpirun_->kill_group();
  }

  void watch_stopped() {
    for (std::size_t i = 0; i < seats_.size(); ++i) {
      Seat& seat = seats_[i];
      if (!seat.is_running() || !seat.stands_still || trouble_) continue;
      if (seconds_since(seat.stopped_or_woken) < options_.stopped_seconds) continue;
      seat.connection->send({FrameKind::kKill, ""});
      end_rank(static_cast<int>(i), seat, {.kind = RankEnd::Kind::kHeld, .number = seat.stop_signal});
    }
  }

  // A shim sends a sign of life every second; only time in which the launch itself was awake counts.
  void watch_silent() {
    const auto now = Clock::now(), before = std::exchange(looked_, now);
    const bool slept = now - before > std::chrono::milliseconds(10 * kTickMilliseconds);
    for (std::size_t i = 0; i < seats_.size(); ++i) {
      Seat& seat = seats_[i];
      if (slept) seat.heard += now - before;
      if (!seat.is_running() || trouble_ ||
          seconds_since(seat.heard) < std::max(options_.stopped_seconds, kLeastSilence))
        continue;
      end_rank(static_cast<int>(i), seat, {.kind = RankEnd::Kind::kSilent});
      if (seat.shim > 0) ::kill(seat.shim, SIGKILL);  // and the program with it
    }
  }

  void watch_start() {
    std::vector<std::size_t> missing;
    for (std::size_t i = 0; i < seats_.size(); ++i)
      if (!seats_[i].connection) missing.push_back(i);
    if (missing.empty()) return;
    output_.note(
        fmt::format("after {} s these ranks have not begun: {}", options_.start_seconds, fmt::join(missing, ", ")));
    force();
    end_.forced = false;
  }

  void send_to_all(const Frame& frame) {
    for (auto& seat : seats_)
      if (seat.is_running()) seat.connection->send(frame);
  }

  void finish() {
    for (std::size_t i = 0; i < seats_.size(); ++i) {
      Seat& seat = seats_[i];
      if (!seat.connection)
        end_.ranks.push_back({.rank = static_cast<int>(i), .kind = RankEnd::Kind::kNever});
      else if (!seat.ended)
        lose(static_cast<int>(i), seat);
    }
    output_.mpirun_bytes(mpirun_->read_output());
    end_.mpirun_code = mpirun_->poll_end().value_or(0);
    end_.aborted_by = output_.aborted_by();
  }

  const LaunchOptions& options_;
  LaunchSignals& signals_;
  JobOutput& output_;
  bool several_hosts_ = false;
  Listener listener_;
  std::string token_;
  std::optional<Mpirun> mpirun_;
  std::vector<Guest> guests_;
  std::vector<Seat> seats_;  // by rank
  JobEnd end_;
  Clock::time_point begun_ = Clock::now();
  std::optional<Clock::time_point> trouble_;  // the first failure
  Clock::time_point looked_ = Clock::now();
  int level_ = 0;
};

sigset_t launch_signals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2}) sigaddset(&set, number);
  return set;
}

}  // namespace

LaunchSignals::LaunchSignals() {
  const sigset_t set = launch_signals();
  ::sigprocmask(SIG_BLOCK, &set, nullptr);
  descriptor_ = Descriptor(::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
}

int LaunchSignals::take() {
  signalfd_siginfo info{};
  return ::read(descriptor_.get(), &info, sizeof(info)) == sizeof(info) ? static_cast<int>(info.ssi_signo) : 0;
}

int LaunchSignals::wait(double seconds) {
  const auto begun = Clock::now();
  while (seconds_since(begun) < seconds) {
    pollfd ready{descriptor_.get(), POLLIN, 0};
    ::poll(&ready, 1, kTickMilliseconds);
    if (const int number = take(); number != 0 && number != SIGUSR2) return number;
  }
  return 0;
}

JobEnd run_job(const LaunchOptions& options, int start, LaunchSignals& signals, JobOutput& output) {
  output.begin_start(start, options.ranks);
  JobEnd end = Job(options, start, signals, output).run();
  output.write_ends(end);
  return end;
}

}  // namespace gantry::launcher
