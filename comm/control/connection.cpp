#include "gantry/comm/control/connection.h"

#include <array>

namespace gantry::control {

Connection::Connection(tcp::socket socket) : socket_(std::move(socket)) {
  error_code ignored;
  socket_.set_option(tcp::no_delay(true), ignored);
  const tcp::endpoint remote = socket_.remote_endpoint(ignored);
  peer_ = endpoint_text(remote.address().to_string(), remote.port());
}

asio::awaitable<Frame> Connection::read() {
  std::array<char, kFrameHeadBytes> head{};
  co_await asio::async_read(socket_, asio::buffer(head), asio::use_awaitable);
  const FrameHead decoded = decode_head(head);
  Frame frame{decoded.kind, std::string(decoded.payload_bytes, '\0')};
  if (!frame.payload.empty()) co_await asio::async_read(socket_, asio::buffer(frame.payload), asio::use_awaitable);
  co_return frame;
}

void Connection::send(std::string frame) {
  if (closing_ || !socket_.is_open()) return;
  outbox_.push_back(std::move(frame));
  if (outbox_.size() == 1) write_next();
}

void Connection::write_next() {
  asio::async_write(socket_, asio::buffer(outbox_.front()),
                    [self = shared_from_this()](const error_code& error, std::size_t) {
                      if (error) return self->outbox_.clear();
                      self->outbox_.pop_front();
                      if (!self->outbox_.empty()) return self->write_next();
                      if (self->closing_) self->close();
                    });
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

}  // namespace gantry::control
