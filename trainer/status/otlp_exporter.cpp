#include "gantry/trainer/status/otlp_exporter.h"

#include <algorithm>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http.hpp>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <deque>
#include <fmt/format.h>
#include <iterator>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gantry/comm/control/event_thread.h"
#include "gantry/core/version.h"
#include "gantry/trainer/status/host_lookup.h"

namespace gantry {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using asio::ip::tcp;
using boost::system::error_code;

constexpr std::size_t kBatch = 1000;  // spans in a request
constexpr std::uint64_t kMostReplyBytes = 65536;
constexpr std::chrono::seconds kRequestDeadline{10};
constexpr std::chrono::milliseconds kPoll{20}, kCollect{1000}, kFirstPause{1000}, kLongestPause{30'000};

struct Delivery {
  std::string failure;        // empty: the collector took the request
  bool may_repeat = false;    // after a failure
  std::int64_t rejected = 0;  // spans of a request that it took otherwise
};

bool is_repeatable(unsigned status) { return status == 429 || status == 502 || status == 503 || status == 504; }

// A collector may reject some spans of a request: {"partialSuccess": {"rejectedSpans": "3"}}.
std::int64_t rejected_spans(const std::string& reply) {
  const auto json = nlohmann::json::parse(reply, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || !json.contains("partialSuccess")) return 0;
  const auto& partial = json["partialSuccess"];
  if (!partial.is_object() || !partial.contains("rejectedSpans")) return 0;
  const auto& rejected = partial["rejectedSpans"];
  if (rejected.is_number_integer()) return rejected.get<std::int64_t>();
  return rejected.is_string() ? std::strtoll(rejected.get<std::string>().c_str(), nullptr, 10) : 0;
}

}  // namespace

// The coroutines run on the exporter's thread; `mutex` guards the members after it.
struct OtlpExporter::Impl {
  Impl(OtlpEndpoint endpoint, OtlpSource source);

  asio::awaitable<void> run();
  asio::awaitable<void> send_all();
  asio::awaitable<Delivery> post(std::string body);
  asio::awaitable<void> connect();
  asio::awaitable<Delivery> exchange(std::string body);
  asio::awaitable<void> pause(std::chrono::milliseconds time);
  std::vector<OtlpSpan> take();
  bool settle(const Delivery& delivery, std::vector<OtlpSpan> spans);
  void drop_rest();
  bool ends() const {
    const std::lock_guard lock(mutex);
    return is_ending;
  }
  bool cancelled() const {
    const std::lock_guard lock(mutex);
    return is_cancelled;
  }

  const OtlpEndpoint endpoint;
  const OtlpSource source;
  control::EventThread thread;
  asio::steady_timer timer{thread.context()};
  std::optional<beast::tcp_stream> stream;  // open between requests

  mutable std::mutex mutex;
  std::condition_variable changed;
  std::deque<OtlpSpan> pending;
  bool is_ending = false, has_ended = false, is_cancelled = false;
  std::int64_t sent = 0, dropped = 0;
  std::string failure;
};

OtlpExporter::Impl::Impl(OtlpEndpoint where, OtlpSource whose) : endpoint(std::move(where)), source(std::move(whose)) {
  control::spawn(thread.context(), run());
  thread.start();
}

asio::awaitable<void> OtlpExporter::Impl::pause(std::chrono::milliseconds time) {
  if (ends()) co_return;
  timer.expires_after(time);
  error_code ignored;  // cancelled by add() or finish()
  co_await timer.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
}

// Nothing that goes wrong here may end the run.
asio::awaitable<void> OtlpExporter::Impl::run() {
  try {
    co_await send_all();
  } catch (const std::exception& error) {
    const std::lock_guard lock(mutex);
    if (failure.empty()) failure = error.what();
  }
  stream.reset();
  drop_rest();
}

asio::awaitable<void> OtlpExporter::Impl::send_all() {
  auto wait = kFirstPause;
  for (;;) {
    auto spans = take();
    if (spans.empty()) {
      if (ends()) co_return;
      co_await pause(kCollect);
      continue;
    }
    std::string body = otlp_request(source, spans);
    const Delivery delivery = co_await post(std::move(body));
    if (settle(delivery, std::move(spans))) {
      wait = kFirstPause;
      continue;
    }
    if (ends()) co_return;
    co_await pause(wait);
    wait = std::min(2 * wait, kLongestPause);
  }
}

std::vector<OtlpSpan> OtlpExporter::Impl::take() {
  const std::lock_guard lock(mutex);
  const auto end = pending.begin() + static_cast<std::ptrdiff_t>(std::min(pending.size(), kBatch));
  std::vector<OtlpSpan> spans(std::make_move_iterator(pending.begin()), std::make_move_iterator(end));
  pending.erase(pending.begin(), end);
  return spans;
}

// False if the exporter has to wait before the next request.
bool OtlpExporter::Impl::settle(const Delivery& delivery, std::vector<OtlpSpan> spans) {
  const std::lock_guard lock(mutex);
  const auto count = static_cast<std::int64_t>(spans.size());
  if (delivery.failure.empty()) {
    const std::int64_t rejected = std::clamp<std::int64_t>(delivery.rejected, 0, count);
    sent += count - rejected;
    dropped += rejected;
    if (rejected > 0 && failure.empty()) failure = fmt::format("the collector rejected {} spans", rejected);
    return true;
  }
  if (failure.empty()) failure = delivery.failure;
  if (delivery.may_repeat && !is_ending)
    pending.insert(pending.begin(), std::make_move_iterator(spans.begin()), std::make_move_iterator(spans.end()));
  else
    dropped += count;
  return false;
}

void OtlpExporter::Impl::drop_rest() {
  const std::lock_guard lock(mutex);
  dropped += static_cast<std::int64_t>(pending.size());
  pending.clear();
  has_ended = true;
  changed.notify_all();
}

asio::awaitable<void> OtlpExporter::Impl::connect() {
  const HostLookup lookup(endpoint.host, endpoint.port);
  const auto end = std::chrono::steady_clock::now() + kRequestDeadline;
  while (!lookup.is_done()) {
    if (cancelled()) throw boost::system::system_error(asio::error::operation_aborted);
    if (std::chrono::steady_clock::now() > end) throw boost::system::system_error(asio::error::timed_out);
    asio::steady_timer poll(thread.context(), kPoll);
    co_await poll.async_wait(asio::use_awaitable);
  }
  // From here on, finish() finds the stream and closes it.
  stream.emplace(thread.context());
  if (cancelled()) throw boost::system::system_error(asio::error::operation_aborted);
  stream->expires_after(kRequestDeadline);
  co_await stream->async_connect(lookup.endpoints(), asio::use_awaitable);
}

asio::awaitable<Delivery> OtlpExporter::Impl::exchange(std::string body) {
  http::request<http::string_body> request(http::verb::post, endpoint.path, 11);
  request.set(http::field::host, control::endpoint_text(endpoint.host, endpoint.port));
  request.set(http::field::user_agent, "gantry/" GANTRY_VERSION);
  request.set(http::field::content_type, "application/json");
  request.body() = std::move(body);
  request.prepare_payload();
  stream->expires_after(kRequestDeadline);
  co_await http::async_write(*stream, request, asio::use_awaitable);
  beast::flat_buffer buffer;
  http::response_parser<http::string_body> reply;
  reply.body_limit(kMostReplyBytes);
  co_await http::async_read(*stream, buffer, reply, asio::use_awaitable);
  const unsigned status = reply.get().result_int();
  if (!reply.get().keep_alive()) stream.reset();
  if (status / 100 == 2) co_return Delivery{.rejected = rejected_spans(reply.get().body())};
  co_return Delivery{.failure = fmt::format("the collector replied with status {}", status),
                     .may_repeat = is_repeatable(status)};
}

// A collector may close a connection that was idle, which shows only now: a connection that was open is tried once,
// and then a new one.
asio::awaitable<Delivery> OtlpExporter::Impl::post(std::string body) {
  for (bool was_open = stream.has_value();; was_open = false) {
    error_code error;
    try {
      if (!stream) co_await connect();
      if (cancelled()) throw boost::system::system_error(asio::error::operation_aborted);
      co_return co_await exchange(body);
    } catch (const boost::system::system_error& thrown) {
      error = thrown.code();
    } catch (const std::exception& thrown) {
      stream.reset();
      co_return Delivery{.failure = thrown.what()};
    }
    stream.reset();
    if (was_open && !cancelled() && error != beast::error::timeout) continue;
    const bool is_late = error == beast::error::timeout || error == asio::error::timed_out;
    co_return Delivery{
        .failure = is_late ? fmt::format("there was no reply within {} s", kRequestDeadline.count()) : error.message(),
        .may_repeat = true};
  }
}

OtlpExporter::OtlpExporter(OtlpEndpoint endpoint, OtlpSource source)
    : impl_(std::make_unique<Impl>(std::move(endpoint), std::move(source))) {}

OtlpExporter::~OtlpExporter() {
  finish(0);
  impl_->thread.stop();
}

void OtlpExporter::add(std::vector<OtlpSpan> spans) {
  bool is_batch = false;
  {
    const std::lock_guard lock(impl_->mutex);
    const std::size_t room = kMostPending - std::min(kMostPending, impl_->pending.size());
    const std::size_t kept = std::min(room, spans.size());
    impl_->dropped += static_cast<std::int64_t>(spans.size() - kept);
    if (kept < spans.size() && impl_->failure.empty()) impl_->failure = "the collector is slower than the run";
    std::move(spans.begin(), spans.begin() + static_cast<std::ptrdiff_t>(kept), std::back_inserter(impl_->pending));
    // While requests fail, the pauses between them stay.
    is_batch = impl_->failure.empty() && impl_->pending.size() >= kBatch;
  }
  if (is_batch) asio::post(impl_->thread.context(), [impl = impl_.get()] { impl->timer.cancel(); });
}

void OtlpExporter::finish(double seconds) {
  std::unique_lock lock(impl_->mutex);
  impl_->is_ending = true;
  if (impl_->has_ended) return;
  asio::post(impl_->thread.context(), [impl = impl_.get()] { impl->timer.cancel(); });
  const auto ended = [this] { return impl_->has_ended; };
  if (impl_->changed.wait_for(lock, control::seconds(seconds), ended)) return;
  impl_->is_cancelled = true;
  asio::post(impl_->thread.context(), [impl = impl_.get()] {
    if (impl->stream) impl->stream->close();
  });
  impl_->changed.wait(lock, ended);
}

std::int64_t OtlpExporter::sent() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->sent;
}

std::int64_t OtlpExporter::dropped() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->dropped;
}

std::string OtlpExporter::failure() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->failure;
}

}  // namespace gantry
