// A connection whose other end reads slowly, or whose first frame is not a hello frame.
#include "gantry/comm/control/connection.h"

#include <gtest/gtest.h>
#include <optional>

#include "raw_socket.h"

namespace gantry::testing {
namespace {

using namespace control;

// A connection that runs in `context`, and the socket at its other end.
struct Line {
  Line() {
    tcp::socket socket(context);
    socket.connect({asio::ip::make_address("127.0.0.1"), static_cast<std::uint16_t>(listener.port())});
    other.emplace(listener.accept());
    connection = std::make_shared<Connection>(std::move(socket));
  }
  asio::io_context context;
  RawListener listener;
  std::optional<RawSocket> other;
  std::shared_ptr<Connection> connection;
};

// Sends frames as a shim sends the output of its program. `sent` counts the frames that were queued.
asio::awaitable<void> send_output(std::shared_ptr<Connection> connection, int frames, int& sent) {
  for (; sent < frames; ++sent) {
    connection->send(encode_frame(FrameKind::output, std::string(kMostOutput, static_cast<char>('a' + sent % 23))));
    co_await connection->sent();
  }
}

TEST(Connection, WhoWaitsUntilItIsSentQueuesNoMoreThanTheOtherEndTakes) {
  constexpr int kFrames = 1000;  // 64 MB: far more than sockets hold
  Line line;
  int sent = 0;
  spawn(line.context, send_output(line.connection, kFrames, sent));
  while (line.context.poll() > 0) {
  }
  EXPECT_TRUE(line.connection->sending());
  EXPECT_LT(sent, kFrames / 2);
  const std::size_t length = kFrameHeadBytes + kMostOutput;
  for (int frame = 0; frame < kFrames; ++frame) {
    std::string bytes;
    while (bytes.size() < length) {
      line.context.poll();
      bytes += line.other->receive(std::min<std::size_t>(length - bytes.size(), 1024));
    }
    ASSERT_EQ(bytes[kFrameHeadBytes], static_cast<char>('a' + frame % 23)) << frame;
    ASSERT_EQ(bytes.back(), bytes[kFrameHeadBytes]) << frame;
  }
  EXPECT_EQ(sent, kFrames);
  EXPECT_FALSE(line.connection->sending());
}

TEST(Connection, WhoWaitsUntilItIsSentIsWokenByItsEnd) {
  constexpr int kFrames = 1000;
  Line line;
  int sent = 0;
  spawn(line.context, send_output(line.connection, kFrames, sent));
  while (line.context.poll() > 0) {
  }
  ASSERT_LT(sent, kFrames);
  line.other.reset();
  line.context.restart();
  line.context.run();  // returns, because no coroutine waits any more
  EXPECT_FALSE(line.connection->sending());
}

asio::awaitable<void> read_first(std::shared_ptr<Connection> connection, std::string& why) {
  try {
    co_await connection->read_hello();
  } catch (const FrameError& error) {
    why = error.what();
  }
}

// The frame head alone decides: no memory is reserved for the announced payload, and the reader does not wait
// for it.
TEST(Connection, OtherFirstFramesThanAHelloAreRefusedByTheirHeads) {
  for (const FrameKind kind : {FrameKind::command, FrameKind::output, FrameKind::beat}) {
    Line line;
    std::string frame = encode_frame(kind, kind == FrameKind::beat ? "" : "x");
    line.other->send(frame.substr(0, kFrameHeadBytes));
    std::string why;
    spawn(line.context, read_first(line.connection, why));
    line.context.run();
    EXPECT_EQ(why, "the first frame is not a hello frame");
  }
}

}  // namespace
}  // namespace gantry::testing
