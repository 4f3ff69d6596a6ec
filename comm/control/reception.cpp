#include "gantry/comm/control/reception.h"

#include <algorithm>
#include <fmt/format.h>

namespace gantry::control {

Reception::Reception(asio::io_context& context, ReceptionRules rules)
    : context_(context), rules_(std::move(rules)), acceptor_(context) {}

Rendezvous Reception::open(const std::string& address, int port) {
  const tcp::endpoint endpoint(asio::ip::make_address(address), static_cast<std::uint16_t>(port));
  acceptor_.open(endpoint.protocol());
  keep_from_children(acceptor_.native_handle());
  acceptor_.set_option(tcp::acceptor::reuse_address(true));
  acceptor_.bind(endpoint);
  acceptor_.listen();
  token_ = random_job_token();
  spawn(context_, accept_all());
  return {address, acceptor_.local_endpoint().port(), token_};
}

asio::awaitable<void> Reception::accept_all() {
  while (acceptor_.is_open()) {
    error_code error;
    tcp::socket socket = co_await acceptor_.async_accept(asio::redirect_error(asio::use_awaitable, error));
    if (!acceptor_.is_open()) break;
    if (!error) {
      admit(std::move(socket));
    } else {  // for example, no descriptors are left
      asio::steady_timer timer(context_, seconds(kRetrySeconds));
      co_await timer.async_wait(asio::redirect_error(asio::use_awaitable, error));
    }
  }
}

void Reception::admit(tcp::socket socket) {
  const auto connection = std::make_shared<Connection>(std::move(socket));
  if (rules_.several_hosts) connection->watch_network();
  pending_.push_back(connection);
  spawn(context_, greet(connection));
  if (pending_.size() <= kMostPending + static_cast<std::size_t>(rules_.ranks)) return;
  pending_.front()->close();
  pending_.pop_front();
}

asio::awaitable<void> Reception::greet(std::shared_ptr<Connection> connection) {
  asio::steady_timer deadline(context_, seconds(rules_.handshake_seconds));
  deadline.async_wait([connection](const error_code& error) {
    if (!error) connection->close();
  });
  Hello hello;
  std::string why;
  try {
    hello = co_await connection->read_hello();
    why = refusal(hello);
  } catch (const FrameError& error) {
    why = error.what();
  } catch (const boost::system::system_error&) {
    why = fmt::format("the process did not identify itself within {} s", rules_.handshake_seconds);
  }
  deadline.cancel();
  const auto place = std::find(pending_.begin(), pending_.end(), connection);
  const bool had_room = place != pending_.end();
  if (had_room) pending_.erase(place);
  if (closing_) co_return;
  if (why.empty() && had_room) {
    rules_.welcome(hello, connection);
  } else {
    connection->close();
    warn(fmt::format("{}dropped a connection from {}: {}", rules_.prefix, connection->peer(),
                     had_room ? why : "too many connections arrived after it"));
  }
}

std::string Reception::refusal(const Hello& hello) const {
  // The token is checked first: a peer without it must not learn anything else.
  if (!same_job_token(hello.token, token_)) return "its token belongs to another job";
  if (hello.ranks != rules_.ranks) return fmt::format("its job has {} ranks, not {}", hello.ranks, rules_.ranks);
  return rules_.refusal(hello);
}

void Reception::warn(const std::string& line) {
  if (++warnings_ <= kMostWarnings) rules_.warn(line);
  if (warnings_ == kMostWarnings) rules_.warn(rules_.prefix + "further such connections are dropped silently");
}

void Reception::stop_listening() {
  error_code ignored;
  acceptor_.close(ignored);
}

void Reception::close() {
  closing_ = true;
  stop_listening();
  for (const auto& connection : pending_) connection->close();
}

}  // namespace gantry::control
