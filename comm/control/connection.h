// A TCP connection that carries frames.
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

  // Returns the next frame. Throws FrameError if the bytes are not a frame, and boost::system::system_error
  // when the connection ends.
  asio::awaitable<Frame> read();
  // Returns the first frame of a peer that is not identified yet. Throws FrameError for any frame other than
  // a hello, before the payload is read.
  asio::awaitable<Hello> read_hello();
  // Queues a frame and returns at once. If the connection fails, queued frames are dropped and read() throws.
  void send(std::string frame);
  bool sending() const { return !outbox_.empty(); }
  // Waits until all queued frames are sent or the connection has ended. A caller that waits before each
  // send() keeps at most one frame in memory.
  asio::awaitable<void> sent();
  // Ends the sending direction. Incoming frames can still be read.
  void finish_sending();
  // Closes the connection at once, or after all queued frames are sent.
  void close();
  void close_when_sent();

  // Lets the kernel close the connection if the peer's host is unreachable: it is silent, or does not
  // acknowledge sent data, for kUnconfirmedSeconds.
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
  bool closing_ = false;     // no more frames are queued
};

// Returns true if a connection ended because the peer's host is unreachable, and not because its process has
// ended.
bool is_out_of_reach(const error_code& error);

// Keeps the descriptor from being inherited by programs that this process starts.
void keep_from_children(int descriptor);

}  // namespace gantry::control
