#include "gantry/launch/supervisor/rank_shim.h"

#include <array>
#include <csignal>
#include <cstdlib>
#include <fmt/format.h>
#include <memory>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "gantry/comm/control/connection.h"
#include "gantry/comm/control/heartbeats.h"
#include "gantry/comm/control/timers.h"
// Included after the others, because the headers of Boost 1.74 lack includes.
#include <boost/asio/posix/stream_descriptor.hpp>

#include "gantry/core/base/steady_seconds.h"
#include "gantry/core/error.h"
#include "gantry/core/host/this_host.h"
#include "gantry/launch/job_start.h"
#include "gantry/launch/supervisor/rank_program.h"

namespace gantry::launcher {
namespace {

using namespace control;
using asio::posix::stream_descriptor;

sigset_t watched_signals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int number : {SIGCHLD, SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2, SIGPIPE}) sigaddset(&set, number);
  return set;
}

// The connection between the launch and the program. Output is never lost and never accumulates: while the
// launch does not take the output that was read, no more is read, and the program waits at its full pipe.
class Shim {
 public:
  Shim(asio::io_context& context, std::shared_ptr<Connection> launch, const std::vector<std::string>& words);

  asio::awaitable<RankEnd> run();

 private:
  asio::awaitable<void> forward(int stream);
  asio::awaitable<void> forward_rest(int stream);
  asio::awaitable<void> resumed();
  asio::awaitable<void> hear_signals();
  asio::awaitable<void> hear_launch();
  asio::awaitable<void> send_exit_report(const RankEnd& end);
  void take_signal(int number);
  void send_output(int stream, std::size_t bytes);
  void forward_stop_signal();
  void end_now();
  void resume();
  void close();

  asio::io_context& context_;
  const std::shared_ptr<Connection> launch_;
  RankProgram program_;
  Descriptor signals_;
  stream_descriptor signal_events_;
  std::array<stream_descriptor, 2> streams_;
  std::array<std::array<char, kMostOutput>, 2> blocks_{};
  Heartbeats pulse_;
  asio::steady_timer changed_;  // never expires: cancelled when an awaited condition becomes true
  int forwarding_ = 0;          // streams that are forwarded while the program runs
  bool launch_gone_ = false, notified_ = false;
  bool paused_ = false;  // the launch takes no output at present
};

Shim::Shim(asio::io_context& context, std::shared_ptr<Connection> launch, const std::vector<std::string>& words)
    : context_(context),
      launch_(std::move(launch)),
      program_(words),
      signal_events_(context),
      streams_{stream_descriptor(context), stream_descriptor(context)},
      pulse_(context, {.heartbeat = kShimBeatSeconds,
                       .lost_after = 0,
                       .beat =
                           [this] {
                             if (!launch_->sending()) launch_->send(encode_frame(FrameKind::beat));
                           },
                       .lost = [](int, double) {}}),
      changed_(context, asio::steady_timer::time_point::max()) {
  launch_->send(encode_number(FrameKind::begun, program_.process()));
  const sigset_t set = watched_signals();
  signals_ = Descriptor(::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
  signal_events_.assign(::dup(signals_.get()));
  for (const int i : {0, 1}) streams_[static_cast<std::size_t>(i)].assign(program_.take_stream(i).release());
}

asio::awaitable<RankEnd> Shim::run() {
  pulse_.start();
  spawn(context_, hear_signals());
  spawn(context_, hear_launch());
  for (const int i : {0, 1}) spawn(context_, forward(i));
  forwarding_ = 2;
  error_code cancelled;
  while (!program_.ended() || forwarding_ > 0)
    co_await changed_.async_wait(asio::redirect_error(asio::use_awaitable, cancelled));
  co_await forward_rest(0);
  co_await forward_rest(1);
  end_descendants();
  remove_shared_memory();
  const RankEnd end = program_.end(notified_);
  co_await send_exit_report(end);
  close();
  co_return end;
}

void Shim::send_output(int stream, std::size_t bytes) {
  launch_->send(encode_frame(stream == 0 ? FrameKind::output : FrameKind::errors,
                             {blocks_[static_cast<std::size_t>(stream)].data(), bytes}));
}

asio::awaitable<void> Shim::forward(int i) {
  auto& stream = streams_[static_cast<std::size_t>(i)];
  const auto buffer = asio::buffer(blocks_[static_cast<std::size_t>(i)]);
  error_code error;
  while (!program_.ended()) {
    const std::size_t got = co_await stream.async_read_some(buffer, asio::redirect_error(asio::use_awaitable, error));
    if (error) break;
    send_output(i, got);
    co_await launch_->sent();
    while (paused_ && !program_.ended()) co_await resumed();
  }
  --forwarding_;
  changed_.cancel();
}

// Waits for the next change of this object.
asio::awaitable<void> Shim::resumed() {
  error_code cancelled;
  co_await changed_.async_wait(asio::redirect_error(asio::use_awaitable, cancelled));
}

// Sends the rest of the pipe of a program that has ended. Its descendants may keep the pipe open and continue
// to write. While the launch takes no output, at most the capacity of a pipe is sent of that.
asio::awaitable<void> Shim::forward_rest(int i) {
  auto& stream = streams_[static_cast<std::size_t>(i)];
  const auto buffer = asio::buffer(blocks_[static_cast<std::size_t>(i)]);
  error_code error;
  stream.non_blocking(true, error);
  for (std::size_t all = 0; !error;) {
    const std::size_t got = stream.read_some(buffer, error);
    if (error) break;
    while (paused_ && all >= kMostOutput) co_await resumed();
    send_output(i, got);
    co_await launch_->sent();
    all += got;
  }
}

asio::awaitable<void> Shim::hear_signals() {
  error_code error;
  while (!error) {
    signalfd_siginfo info{};
    while (::read(signals_.get(), &info, sizeof(info)) == sizeof(info)) take_signal(static_cast<int>(info.ssi_signo));
    co_await signal_events_.async_wait(stream_descriptor::wait_read, asio::redirect_error(asio::use_awaitable, error));
  }
}

// mpirun signals the whole process group, so the program already has the signal. This process only reports
// it.
void Shim::take_signal(int number) {
  if (number == SIGTERM || number == SIGINT || number == SIGHUP) forward_stop_signal();
  if (number != SIGCHLD) return;
  program_.reap([this](int signal) { launch_->send(encode_number(FrameKind::stopped, signal)); });
  if (!program_.ended()) return;
  error_code ignored;
  for (auto& stream : streams_) stream.cancel(ignored);
  changed_.cancel();
}

// Sent at once: if the program does not end soon, mpirun kills this process too.
void Shim::forward_stop_signal() {
  if (!notified_) launch_->send(encode_frame(FrameKind::notified));
  notified_ = true;
}

// If the launch is gone, its ranks are ended.
asio::awaitable<void> Shim::hear_launch() {
  try {
    for (;;) {
      const Frame frame = co_await launch_->read();
      if (frame.kind == FrameKind::signal) program_.signal(decode_number(frame.payload));
      if (frame.kind == FrameKind::kill) end_now();
      if (frame.kind == FrameKind::pause) paused_ = true;
      if (frame.kind == FrameKind::resume) resume();
    }
  } catch (const std::exception&) {
    // The connection has closed, or sent an invalid frame.
  }
  end_now();
  launch_->close();
  launch_gone_ = true;
  changed_.cancel();
}

void Shim::resume() {
  paused_ = false;
  changed_.cancel();
}

void Shim::end_now() {
  resume();
  notified_ = notified_ || !program_.ended();
  program_.signal(SIGKILL);
}

// The report must arrive before mpirun learns of the end of this process. The launch closes the connection first: if
// this process did, and a frame arrived afterwards, the kernel would drop output and report.
asio::awaitable<void> Shim::send_exit_report(const RankEnd& end) {
  launch_->send(encode_frame(FrameKind::report, encode_end(end)));
  co_await launch_->sent();
  launch_->finish_sending();
  changed_.expires_after(seconds(kExitReportSeconds));
  for (error_code cancelled = asio::error::operation_aborted; cancelled && !launch_gone_;)
    co_await changed_.async_wait(asio::redirect_error(asio::use_awaitable, cancelled));
}

void Shim::close() {
  error_code ignored;
  pulse_.stop();
  launch_->close();
  signal_events_.close(ignored);
}

struct Begun {
  std::shared_ptr<Connection> launch;
  std::vector<std::string> words;
};

// Makes one attempt. The launch closes a connection before its hello if too many others arrive after it.
asio::awaitable<std::optional<Begun>> ask_for_command(asio::io_context& context, const Rendezvous& meeting,
                                                      const Hello& hello) {
  tcp::socket socket(context);
  asio::steady_timer deadline(context, seconds(kConnectSeconds));
  deadline.async_wait([&socket](const error_code& error) {
    if (!error) socket.close();
  });
  error_code error;
  co_await socket.async_connect({asio::ip::make_address(meeting.address), static_cast<std::uint16_t>(meeting.port)},
                                asio::redirect_error(asio::use_awaitable, error));
  deadline.cancel();
  if (error)
    throw PeerError({fmt::format("rank {} on {}", hello.rank, hello.host),
                     fmt::format("the launch cannot be reached at {} on port {}", meeting.address, meeting.port),
                     "a network connection between the hosts",
                     "choose its network with --interface and its port with --port"});
  const auto launch = std::make_shared<Connection>(std::move(socket));
  if (!meeting.address.starts_with("127.")) launch->watch_network();  // loopback cannot lose the network
  launch->send(encode_hello(hello));
  asio::steady_timer patience(context, seconds(kCommandSeconds));
  patience.async_wait([launch](const error_code& expired) {
    if (!expired) launch->close();
  });
  std::optional<Begun> begun;
  try {
    const Frame frame = co_await launch->read();
    if (frame.kind == FrameKind::command) begun = {launch, decode_command(frame.payload)};
  } catch (const std::exception&) {
    // The connection has closed, or sent an invalid frame.
  }
  patience.cancel();
  co_return begun;
}

// `shim` must outlive the context's run(), because coroutines that it has spawned end after this one.
asio::awaitable<RankEnd> live(asio::io_context& context, Rendezvous meeting, Hello hello, std::optional<Shim>& shim) {
  std::optional<Begun> begun;
  for (const double end = steady_seconds() + kCommandSeconds; !begun;) {
    begun = co_await ask_for_command(context, meeting, hello);
    if (begun) break;
    if (steady_seconds() > end)
      throw PeerError({"launch", "it did not send this rank a program", "", "look at the messages of gantry launch"});
    asio::steady_timer pause(context, seconds(kRetrySeconds));
    co_await pause.async_wait(asio::use_awaitable);
  }
  shim.emplace(context, begun->launch, begun->words);
  co_return co_await shim->run();
}

int number_of(const char* variable) {
  const char* text = std::getenv(variable);
  return text ? std::atoi(text) : -1;
}

}  // namespace

int run_rank_shim() {
  const char* variable = std::getenv(Rendezvous::kVariable);
  const auto meeting = variable ? decode_meeting(variable) : std::nullopt;
  const bool by_mpirun = std::getenv("OMPI_COMM_WORLD_RANK") != nullptr;
  const int rank = number_of(by_mpirun ? "OMPI_COMM_WORLD_RANK" : JobStart::kRankVariable);
  const int ranks = number_of(by_mpirun ? "OMPI_COMM_WORLD_SIZE" : JobStart::kRanksVariable);
  if (!meeting || rank < 0)
    throw UsageError(
        {"gantry launch-rank", "this command is only for `gantry launch`", "", "see gantry launch --help"});
  const sigset_t set = watched_signals();
  ::sigprocmask(SIG_BLOCK, &set, nullptr);
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  asio::io_context context(1);
  std::optional<Shim> shim;
  std::exception_ptr failure;
  RankEnd end;
  const Hello hello{.token = meeting->token,
                    .peer = Peer::shim,
                    .rank = rank,
                    .ranks = ranks,
                    .process = ::getpid(),
                    .host = host_name()};
  asio::co_spawn(context, live(context, *meeting, hello, shim), [&](std::exception_ptr thrown, RankEnd ended) {
    failure = std::move(thrown);
    end = std::move(ended);
  });
  context.run();
  if (failure) std::rethrow_exception(failure);
  if (end.kind == RankEnd::Kind::kSignal) return PeerError::kExitCode;
  return end.number == StopRequested::kExitCode ? 0 : end.number;
}

}  // namespace gantry::launcher
