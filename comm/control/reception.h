// The listening socket of a job: it accepts connections, reads their hello, and passes on those that belong
// to the job.
//
// A connection without a valid hello is dropped with a warning, and has no other effect. Besides one for each
// rank of the job, at most kMostPending connections may wait for their hello. If more arrive, the oldest is
// closed; a peer of the job connects again. Belongs to the thread that runs its io_context, except for the
// constructor and open(), which may run before the thread does.
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
  std::string prefix;  // prefix of its warnings: "control plane: "
  int ranks = 1;       // number of ranks of the job
  bool several_hosts = false;
  double handshake_seconds = kHandshakeSeconds;
  // Returns why a peer that has the job's token is not admitted, or "" if it is.
  std::function<std::string(const Hello&)> refusal;
  std::function<void(const Hello&, const std::shared_ptr<Connection>&)> welcome;
  std::function<void(const std::string&)> warn;  // gets at most kMostWarnings warnings, and a last line
};

class Reception {
 public:
  static constexpr std::size_t kMostPending = 64;  // in addition to the job's own ranks
  static constexpr int kMostWarnings = 20;

  Reception(asio::io_context& context, ReceptionRules rules);

  // Listens on `port` of `address` (0: any free port), and returns the address to announce to the peers.
  // Throws boost::system::system_error if it cannot listen.
  Rendezvous open(const std::string& address, int port);
  // Closes the port. Accepted connections can still send their hello.
  void stop_listening();
  // Closes the port and the pending connections.
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
  std::list<std::shared_ptr<Connection>> pending_;  // connections without a hello so far, the oldest first
  int warnings_ = 0;
  bool closing_ = false;
};

}  // namespace gantry::control
