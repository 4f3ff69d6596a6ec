// Where processes of a job connect: it listens, hears who comes, and hands over the connections that belong to the job.
//
// Whoever does not say the right hello at once is dropped with a line, and changes nothing. At a time it hears so many
// of them beside the job's own; where more come, who has waited longest must go, and a peer of the job comes again.
// Belongs to the thread that runs its io_context, but for the constructor and open(), which may run before it does.
#pragma once

#include <functional>
#include <list>
#include <memory>
#include <string>

#include "gantry/comm/control/asio.h"
#include "gantry/comm/control/connection.h"
#include "gantry/comm/control/timers.h"

namespace gantry::control {

struct ReceptionRules {
  std::string prefix;  // of its lines: "control plane: "
  int ranks = 1;       // of the job
  bool several_hosts = false;
  double handshake_seconds = kHandshakeSeconds;
  // Why a peer that knows the job's token may not come in; "" if it may.
  std::function<std::string(const Hello&)> refusal;
  std::function<void(const Hello&, const std::shared_ptr<Connection>&)> welcome;
  std::function<void(const std::string&)> warn;  // gets the lines, at most kMostWarnings
};

class Reception {
 public:
  static constexpr std::size_t kMostPending = 64;  // at a time, beyond the job's own ranks
  static constexpr int kMostWarnings = 20;

  Reception(asio::io_context& context, ReceptionRules rules);

  // Listens on `port` (0: any free one) of `address`; the address to announce to peers. boost::system::system_error if
  // it can't.
  Rendezvous open(const std::string& address, int port);
  // No further connection finds an open port; those that have come are still heard.
  void stop_listening();
  // Drops those too.
  void close();

 private:
  asio::awaitable<void> accept_all();
  asio::awaitable<void> greet(std::shared_ptr<Connection> connection);
  void admit(tcp::socket socket);
  std::string refusal(const Hello& hello) const;
  void warn(const std::string& line);

  asio::io_context& context_;
  const ReceptionRules rules_;
  JobToken token_{};
  tcp::acceptor acceptor_;
  std::list<std::shared_ptr<Connection>> pending_;  // that have not said who they are, the oldest first
  int warnings_ = 0;
  bool closing_ = false;
};

}  // namespace gantry::control
