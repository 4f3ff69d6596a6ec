// One TCP connection that carries frames.
//
// Belongs to the thread that runs its io_context: nothing here is locked.
#pragma once

#include <deque>
#include <memory>
#include <string>

#include "gantry/comm/control/asio.h"
#include "gantry/comm/control/frames.h"

namespace gantry::control {

// Error texts for the unexpected end of a connection, and for bytes that are not a frame.
inline constexpr const char* kClosedText =
    "its connection closed before its work was done, because its process has ended or was killed; expected an open "
    "connection until the rank's work is done; look for the reason in its own output";
inline std::string unreadable_text(const FrameError& error) {
  return std::string("it sent an invalid control-plane frame: ") + error.what();
}

class Connection : public std::enable_shared_from_this<Connection> {
 public:
  explicit Connection(tcp::socket socket);

  // The next frame. FrameError for bytes that are none; boost::system::system_error when the connection ends.
  asio::awaitable<Frame> read();
  // The first frame of a peer that may be anyone: FrameError for any other than a hello, by its head alone.
  asio::awaitable<Hello> read_hello();
  // Queues a frame and returns at once. What can't be sent is dropped: reading finds out why.
  void send(std::string frame);
  bool sending() const { return !outbox_.empty(); }
  // Until all that was queued is sent, or the connection has ended: whoever waits for it before it queues more keeps
  // no more in memory than one frame.
  asio::awaitable<void> sent();
  // Nothing more will be sent; what comes is still read.
  void finish_sending();
  // Closes it at once, or when all that was queued is sent.
  void close();
  void close_when_sent();

  // A peer on another host that is out of reach is given up by the kernel, by its silence and by what it does not
  // confirm.
  void watch_network();

  std::string peer() const { return peer_; }  // "127.0.0.1:4242"

 private:
  asio::awaitable<FrameHead> read_head();
  asio::awaitable<std::string> read_payload(std::size_t bytes);
  void write_next();
  void drop_outbox();

  tcp::socket socket_;
  std::string peer_;
  std::deque<std::string> outbox_;
  asio::steady_timer sent_;  // never expires: cancelled when the outbox is empty
  bool closing_ = false;     // nothing more is queued
};

// Whether a connection ended because the other side's host is out of reach, and not because its process has ended.
bool is_out_of_reach(const error_code& error);

// Not passed on to programs that this process starts.
void keep_from_children(int descriptor);

}  // namespace gantry::control
