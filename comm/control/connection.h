// One TCP connection of the control plane that carries frames.
//
// Belongs to the control thread: nothing here is locked.
#pragma once

#include <deque>
#include <memory>
#include <string>

#include "gantry/comm/control/asio.h"
#include "gantry/comm/control/frames.h"

namespace gantry::control {

struct Frame {
  FrameKind kind = FrameKind::beat;
  std::string payload;
};

class Connection : public std::enable_shared_from_this<Connection> {
 public:
  explicit Connection(tcp::socket socket);

  // The next frame. FrameError for bytes that are none; boost::system::system_error when the connection ends.
  asio::awaitable<Frame> read();
  // Queues a frame and returns at once. What can't be sent is dropped: reading finds out why.
  void send(std::string frame);
  bool sending() const { return !outbox_.empty(); }
  // Closes it at once, or when all that was queued is sent.
  void close();
  void close_when_sent();

  std::string peer() const { return peer_; }  // "127.0.0.1:4242"

 private:
  void write_next();

  tcp::socket socket_;
  std::string peer_;
  std::deque<std::string> outbox_;
  bool closing_ = false;
};

}  // namespace gantry::control
