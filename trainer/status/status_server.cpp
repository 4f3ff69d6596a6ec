#include "gantry/trainer/status/status_server.h"

#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http.hpp>
#include <fmt/format.h>
#include <set>

#include "gantry/comm/control/event_thread.h"
#include "gantry/core/error.h"
#include "gantry/trainer/status/status_access.h"

namespace gantry {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using asio::ip::tcp;
using boost::system::error_code;

constexpr std::uint32_t kMostRequestBytes = 8192;
constexpr std::chrono::seconds kDeadline{10};
constexpr std::size_t kMostConnections = 32;
constexpr std::chrono::milliseconds kRetry{100};

using Request = http::request_parser<http::empty_body>;
using Response = http::response<http::string_body>;

StatusReply plain(int status, const std::string& text) { return {.status = status, .body = text + "\n"}; }

// Returns the reply to a request that could not be read. Status 0: close the connection without a reply.
StatusReply refusal(const error_code& error) {
  if (error == http::error::header_limit || error == http::error::buffer_overflow)
    return plain(431, "the request is longer than 8 KiB");
  const bool malformed = error.category() == make_error_code(http::error::bad_method).category() &&
                         error != http::error::end_of_stream && error != http::error::partial_message;
  return malformed ? plain(400, "the request is not valid HTTP") : plain(0, "");
}

std::string path_of(const std::string& target) { return target.substr(0, target.find_first_of("?#")); }

StatusReply answer(const Request::value_type& request, bool has_body, const std::string& token,
                   const StatusServer::Handler& handler) {
  if (request.method() != http::verb::get && request.method() != http::verb::head)
    return plain(405, "only GET and HEAD are served");
  if (has_body) return plain(413, "requests with a body are not supported");
  const std::string target(request.target());
  if (target.empty() || target.front() != '/') return plain(400, "the path does not begin with /");
  const std::string host(request[http::field::host]);
  if (!is_own_host(host))
    return plain(403, "the Host header names another server; use the server's IP address, localhost, or its host name");
  if (!token.empty() && !carries_token(std::string(request[http::field::authorization]), token))
    return plain(401, "the token is missing: Authorization: Bearer TOKEN");
  try {
    return handler(path_of(target));
  } catch (const std::exception& error) {
    return plain(500, error.what());
  }
}

Response as_response(StatusReply reply, bool head) {
  Response response{static_cast<http::status>(reply.status), 11};
  response.set(http::field::content_type, reply.content_type);
  response.set(http::field::cache_control, "no-store");
  response.set("X-Content-Type-Options", "nosniff");
  if (reply.status == 405) response.set(http::field::allow, "GET, HEAD");
  if (reply.status == 401) {
    response.insert(http::field::www_authenticate, "Bearer realm=\"gantry\"");
    response.insert(http::field::www_authenticate, "Basic realm=\"gantry\"");
  }
  response.keep_alive(false);
  response.content_length(reply.body.size());
  if (!head) response.body() = std::move(reply.body);
  return response;
}

}  // namespace

StatusReply not_found() { return plain(404, "no such page"); }

// Used on the server's thread only, except for the constructor and members that are constant after it.
struct StatusServer::Impl {
  Impl(int port, const std::string& address, Handler handler, const std::string& token);

  asio::awaitable<void> accept_all();
  asio::awaitable<void> serve(std::shared_ptr<beast::tcp_stream> stream);
  asio::awaitable<void> exchange(beast::tcp_stream& stream);
  void close();

  control::EventThread thread;
  Handler handler;
  std::string address, token;
  tcp::acceptor acceptor;
  std::set<std::shared_ptr<beast::tcp_stream>> open;
  int port = 0;
};

StatusServer::Impl::Impl(int wanted, const std::string& where, Handler pages, const std::string& secret)
    : handler(std::move(pages)), address(where), token(secret), acceptor(thread.context()) {
  try {
    const tcp::endpoint endpoint(asio::ip::make_address(address), static_cast<std::uint16_t>(wanted));
    acceptor.open(endpoint.protocol());
    acceptor.set_option(tcp::acceptor::reuse_address(true));
    acceptor.bind(endpoint);
    acceptor.listen();
  } catch (const boost::system::system_error& error) {
    throw ResourceError({"status",
                         fmt::format("port {} of {} cannot be opened: {}", wanted, address, error.code().message()),
                         "a free port", "choose another one, or 0 for any"});
  }
  port = acceptor.local_endpoint().port();
  control::spawn(thread.context(), accept_all());
}

asio::awaitable<void> StatusServer::Impl::accept_all() {
  while (acceptor.is_open()) {
    error_code error;
    tcp::socket socket = co_await acceptor.async_accept(asio::redirect_error(asio::use_awaitable, error));
    if (!acceptor.is_open()) break;
    if (error) {  // for example, no file descriptors are left
      asio::steady_timer timer(thread.context(), kRetry);
      co_await timer.async_wait(asio::use_awaitable);
    } else if (open.size() < kMostConnections) {
      const auto stream = std::make_shared<beast::tcp_stream>(std::move(socket));
      open.insert(stream);
      control::spawn(thread.context(), serve(stream));
    }
  }
}

asio::awaitable<void> StatusServer::Impl::serve(std::shared_ptr<beast::tcp_stream> stream) {
  try {
    co_await exchange(*stream);
  } catch (const std::exception&) {
    // The client has disconnected or was too slow, or its reply failed. Other clients are still served.
  }
  stream->close();
  open.erase(stream);
}

asio::awaitable<void> StatusServer::Impl::exchange(beast::tcp_stream& stream) {
  stream.expires_after(kDeadline);
  beast::flat_buffer buffer(kMostRequestBytes);
  Request request;
  request.header_limit(kMostRequestBytes);
  error_code error;
  co_await http::async_read_header(stream, buffer, request, asio::redirect_error(asio::use_awaitable, error));
  const bool has_body = !error && (request.chunked() || request.content_length().value_or(0) > 0);
  StatusReply reply = error ? refusal(error) : answer(request.get(), has_body, token, handler);
  if (reply.status == 0) co_return;
  const bool head = !error && request.get().method() == http::verb::head;
  Response response = as_response(std::move(reply), head);
  http::response_serializer<http::string_body> serializer(response);
  serializer.split(head);
  stream.expires_after(kDeadline);
  if (head)
    co_await http::async_write_header(stream, serializer, asio::use_awaitable);
  else
    co_await http::async_write(stream, serializer, asio::use_awaitable);
  error_code ignored;
  stream.socket().shutdown(tcp::socket::shutdown_send, ignored);
}

void StatusServer::Impl::close() {
  error_code ignored;
  acceptor.close(ignored);
  for (const auto& stream : open) stream->close();
}

StatusServer::StatusServer(int port, const std::string& address, Handler handler, const std::string& token)
    : impl_(std::make_unique<Impl>(port, address, std::move(handler), token)) {
  impl_->thread.start();
}

StatusServer::~StatusServer() {
  asio::post(impl_->thread.context(), [impl = impl_.get()] { impl->close(); });
  impl_->thread.stop();
}

int StatusServer::port() const { return impl_->port; }

std::string StatusServer::url() const { return "http://" + control::endpoint_text(impl_->address, impl_->port) + "/"; }

}  // namespace gantry
