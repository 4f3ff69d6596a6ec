#include "gantry/launch/torchrun.h"

#include <chrono>
#include <cstdlib>
#include <fmt/format.h>
#include <string>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>

#include "gantry/comm/control/asio.h"
// Included after the others, because the header of Boost 1.74 lacks includes.
#include <boost/asio/local/stream_protocol.hpp>

#include "gantry/core/error.h"
#include "gantry/launch/foreign_launcher.h"
#include "gantry/launch/job_start.h"

namespace gantry {
namespace {

namespace asio = boost::asio;
using Local = asio::local::stream_protocol;
using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kMeeting{60};
constexpr std::chrono::milliseconds kPause{20};

std::string text_in(const char* variable) {
  const char* value = std::getenv(variable);
  return value ? value : "";
}

// An address in the abstract namespace: it leaves no file, and the kernel frees it when the first copy ends.
// Each launch of the program has its own, in the same order in all copies.
Local::endpoint meeting_place() {
  static int launches = 0;
  return {std::string(1, '\0') + fmt::format("gantry-{}-{}-{}-{}-{}", ::getuid(), text_in("MASTER_PORT"),
                                             text_in("TORCHELASTIC_RUN_ID"), text_in("TORCHELASTIC_RESTART_COUNT"),
                                             launches++)};
}

// Any user of the host can connect to an abstract address.
bool is_own(Local::socket& socket) {
  ucred peer{};
  socklen_t size = sizeof(peer);
  return ::getsockopt(socket.native_handle(), SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.uid == ::getuid();
}

Local::acceptor open_meeting(asio::io_context& context, const Local::endpoint& place) {
  try {
    Local::acceptor acceptor(context, place);
    acceptor.non_blocking(true);
    return acceptor;
  } catch (const boost::system::system_error& error) {
    throw UsageError({"launch", "the copies that torchrun started cannot connect: " + error.code().message(),
                      "a MASTER_PORT that no other job on this host uses", "give torchrun another --master-port"});
  }
}

// Waits for late copies too, because a copy that does not find the first one fails.
void tell_others(Local::acceptor& acceptor, int others, int exit_code) {
  const auto end = Clock::now() + kMeeting;
  const auto code = static_cast<unsigned char>(exit_code);
  while (others > 0 && Clock::now() < end) {
    boost::system::error_code failure;
    Local::socket socket = acceptor.accept(failure);
    if (failure) {
      std::this_thread::sleep_for(kPause);
    } else if (is_own(socket)) {
      asio::write(socket, asio::buffer(&code, 1), failure);
      --others;
    }
  }
}

int wait_for_first(asio::io_context& context, const Local::endpoint& place) {
  const auto end = Clock::now() + kMeeting;
  Local::socket socket(context);
  boost::system::error_code failure;
  while (socket.connect(place, failure)) {
    socket.close();
    if (Clock::now() > end)
      throw PeerError({"launch", fmt::format("the copy with RANK 0 did not connect within {} s", kMeeting.count()),
                       "every copy of this program to call gantry::launch", "see that copy's own error"});
    std::this_thread::sleep_for(kPause);
  }
  // Checked before any wait, because a process of another user could stay silent for ever. The first copy may
  // work for days.
  if (!is_own(socket))
    throw PeerError({"launch", "a process of another user listens at the address of the copy with RANK 0",
                     "a process of this user", "give torchrun another --master-port"});
  unsigned char code = 0;
  do {
    asio::read(socket, asio::buffer(&code, 1), failure);
  } while (failure == asio::error::interrupted);
  if (failure)
    throw PeerError({"launch", "the copy with RANK 0, which runs the ranks, ended without a message", "",
                     "see that copy's own error"});
  return code;
}

}  // namespace

std::optional<TorchrunCopies> torchrun_copies() {
  const int copies = launcher_number("WORLD_SIZE"), rank = launcher_number("RANK");
  if (copies < 2 || rank < 0 || launcher_number(JobStart::kRankVariable) >= 0 ||
      launcher_number("LOCAL_WORLD_SIZE") != copies)
    return std::nullopt;
  return TorchrunCopies{copies, rank == 0};
}

int run_in_first_copy(const TorchrunCopies& copies, const std::function<int()>& job) {
  asio::io_context context;
  const Local::endpoint place = meeting_place();
  if (!copies.is_first) return wait_for_first(context, place);
  Local::acceptor acceptor = open_meeting(context, place);
  const int code = job();
  tell_others(acceptor, copies.count - 1, code);
  return code;
}

}  // namespace gantry
