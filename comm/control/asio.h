// The parts of Boost.Asio that this directory uses. Include it only in .cpp files and in the private headers
// next to them, because compiling it takes seconds.
#pragma once

// clang-format off: Boost 1.74's coroutine headers use std::exchange without including it
#include <utility>
// clang-format on

#include <boost/asio/awaitable.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <chrono>
#include <exception>
#include <string>

// False positive of g++ 12: it reports that the frame of an inlined coroutine is freed by another allocator
// than the one that allocated it.
#pragma GCC diagnostic ignored "-Wmismatched-new-delete"

namespace gantry::control {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

inline std::chrono::nanoseconds seconds(double value) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::duration<double>(value));
}

// Starts a coroutine. Its exceptions are thrown from the context's run(), so that none is lost.
inline void spawn(asio::io_context& context, asio::awaitable<void> coroutine) {
  asio::co_spawn(context, std::move(coroutine), [](const std::exception_ptr& thrown) {
    if (thrown) std::rethrow_exception(thrown);
  });
}

// Returns "10.0.0.1:4242", or "[::1]:4242" for IPv6.
inline std::string endpoint_text(const std::string& address, int port) {
  return (address.find(':') == std::string::npos ? address : "[" + address + "]") + ":" + std::to_string(port);
}

}  // namespace gantry::control
