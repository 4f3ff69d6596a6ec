// Boost.Asio as this folder uses it. Only .cpp files and headers beside them include this: it costs seconds to compile.
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

// g++ 12 takes the frames of inlined coroutines for memory that one allocator made and another one frees.
#pragma GCC diagnostic ignored "-Wmismatched-new-delete"

namespace gantry::control {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

inline std::chrono::nanoseconds seconds(double value) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::duration<double>(value));
}

// Starts a coroutine. Its exceptions leave the context's run(), so that none is lost.
inline void spawn(asio::io_context& context, asio::awaitable<void> coroutine) {
  asio::co_spawn(context, std::move(coroutine), [](const std::exception_ptr& thrown) {
    if (thrown) std::rethrow_exception(thrown);
  });
}

// "10.0.0.1:4242", "[::1]:4242"
inline std::string endpoint_text(const std::string& address, int port) {
  return (address.find(':') == std::string::npos ? address : "[" + address + "]") + ":" + std::to_string(port);
}

}  // namespace gantry::control
