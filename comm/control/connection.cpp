#include "gantry/comm/control/connection.h"

#include <array>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include "gantry/comm/control/timers.h"

namespace gantry::control {

Connection::Connection(tcp::socket socket)
    : socket_(std::move(socket)), sent_(socket_.get_executor(), asio::steady_timer::time_point::max()) {
  error_code ignored;
  keep_from_children(socket_.native_handle());
  socket_.set_option(tcp::no_delay(true), ignored);
  const tcp::endpoint remote = socket_.remote_endpoint(ignored);
  peer_ = endpoint_text(remote.address().to_string(), remote.port());
}

asio::awaitable<FrameHead> Connection::read_head() {
  std::array<char, kFrameHeadBytes> head{};
  co_await asio::async_read(socket_, asio::buffer(head), asio::use_awaitable);
  co_return decode_head(head);
}

asio::awaitable<std::string> Connection::read_payload(std::size_t bytes) {
  std::string payload(bytes, '\0');
  if (bytes > 0) co_await asio::async_read(socket_, asio::buffer(payload), asio::use_awaitable);
  co_return payload;
}

asio::awaitable<Frame> Connection::read() {
  const FrameHead head = co_await read_head();
  std::string payload = co_await read_payload(head.payload_bytes);
  co_return Frame{head.kind, std::move(payload)};
}

asio::awaitable<Hello> Connection::read_hello() {
  const FrameHead head = co_await read_head();
  if (head.kind != FrameKind::hello) throw FrameError("the first frame is not a hello frame");
  co_return decode_hello(co_await read_payload(head.payload_bytes));
}

void Connection::send(std::string frame) {
  if (closing_ || !socket_.is_open()) return;
  outbox_.push_back(std::move(frame));
  if (outbox_.size() == 1) write_next();
}

void Connection::write_next() {
  asio::async_write(socket_, asio::buffer(outbox_.front()),
                    [self = shared_from_this()](const error_code& error, std::size_t) {
                      if (error) return self->drop_outbox();
                      self->outbox_.pop_front();
                      if (!self->outbox_.empty()) return self->write_next();
                      self->sent_.cancel();
                      if (self->closing_) self->close();
                    });
}

// Asio never completes a write that is started after a failed one, so the rest of the queue is dropped.
void Connection::drop_outbox() {
  closing_ = true;
  outbox_.clear();
  sent_.cancel();
}

asio::awaitable<void> Connection::sent() {
  error_code cancelled;
  while (!outbox_.empty()) co_await sent_.async_wait(asio::redirect_error(asio::use_awaitable, cancelled));
}

void Connection::finish_sending() {
  error_code ignored;
  socket_.shutdown(tcp::socket::shutdown_send, ignored);
}

void Connection::close() {
  closing_ = true;
  error_code ignored;
  socket_.shutdown(tcp::socket::shutdown_both, ignored);
  socket_.close(ignored);
}

void Connection::close_when_sent() {
  closing_ = true;
  if (outbox_.empty()) close();
}

void Connection::watch_network() {
  const auto set = [this](int level, int option, int value) {
    ::setsockopt(socket_.native_handle(), level, option, &value, sizeof(value));
  };
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, kNetworkSilentSeconds);
  set(IPPROTO_TCP, TCP_KEEPINTVL, kProbeSeconds);
  set(IPPROTO_TCP, TCP_KEEPCNT, kProbes);
  set(IPPROTO_TCP, TCP_USER_TIMEOUT, 1000 * kUnconfirmedSeconds);
}

bool is_out_of_reach(const error_code& error) {
  return error == asio::error::timed_out || error == asio::error::host_unreachable ||
         error == asio::error::network_unreachable || error == asio::error::network_down;
}

void keep_from_children(int descriptor) { ::fcntl(descriptor, F_SETFD, FD_CLOEXEC); }

}  // namespace gantry::control
