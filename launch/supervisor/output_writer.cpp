#include "gantry/launch/supervisor/output_writer.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <fmt/format.h>
#include <poll.h>
#include <pthread.h>
#include <string_view>
#include <unistd.h>

namespace gantry::launcher {
namespace {

constexpr std::size_t kBehindBytes = 1 << 20, kCaughtUpBytes = 1 << 18;
constexpr std::size_t kPieceBytes = 4096;  // minimum that a pipe accepts if poll() reports it writable
constexpr std::chrono::milliseconds kAsk{50};

int descriptor_of(Stream stream) { return stream == Stream::kOut ? STDOUT_FILENO : STDERR_FILENO; }

// Returns 0, or the number of the error. Another process may have made the file description nonblocking.
int write_all(Stream stream, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(descriptor_of(stream), text.data(), text.size());
    if (written >= 0) {
      text.remove_prefix(static_cast<std::size_t>(written));
    } else if (errno == EAGAIN) {
      pollfd ready{descriptor_of(stream), POLLOUT, 0};
      ::poll(&ready, 1, -1);
    } else if (errno != EINTR) {
      return errno;
    }
  }
  return 0;
}

pollfd question_of(Stream stream) { return {descriptor_of(stream), POLLOUT, 0}; }

bool is_writable(Stream stream) {
  pollfd ready = question_of(stream);
  return ::poll(&ready, 1, 0) != 0;
}

// Writes to both streams, and warns once for each that cannot be written.
class Streams {
 public:
  void write(Stream stream, std::string_view text) {
    const int error = write_all(stream, text);
    bool& warned = warned_[stream == Stream::kOut ? 0 : 1];
    if (error == 0 || error == EPIPE || warned) return;
    warned = true;
    write_all(
        stream == Stream::kOut ? Stream::kErr : Stream::kOut,
        fmt::format("launch: {} cannot be written: {}; the job continues, and lines are lost until there is room\n",
                    stream == Stream::kOut ? "stdout" : "stderr", std::strerror(error)));
  }

 private:
  std::array<bool, 2> warned_{};
};

}  // namespace

OutputWriter::OutputWriter() {
  sigset_t all, before;
  sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);  // a closed pipe is an error of the write, not a signal
  thread_ = std::thread([state = state_] { run(*state); });
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

OutputWriter::~OutputWriter() {
  std::unique_lock lock(state_->mutex);
  state_->stopping = true;
  state_->waiting.clear();
  state_->changed.notify_all();
  const bool ended = state_->changed.wait_for(lock, kAsk, [this] { return state_->ended; });
  lock.unlock();
  if (ended)
    thread_.join();
  else
    thread_.detach();
}

// Returns the first item, or the first item of the other stream if the stream of the first item is blocked.
std::deque<OutputWriter::Item>::iterator OutputWriter::next_writable(std::deque<Item>& waiting) {
  const Stream first = waiting.front().stream;
  if (is_writable(first)) return waiting.begin();
  const auto other =
      std::find_if(waiting.begin(), waiting.end(), [first](const Item& item) { return item.stream != first; });
  return other == waiting.end() || is_writable(other->stream) ? other : waiting.end();
}

void OutputWriter::run(State& state) {
  Streams streams;
  std::unique_lock lock(state.mutex);
  for (;;) {
    state.changed.wait(lock, [&] { return state.stopping || !state.waiting.empty(); });
    if (state.waiting.empty()) break;
    const auto item = next_writable(state.waiting);
    if (item == state.waiting.end()) {
      pollfd ready = question_of(state.waiting.front().stream);
      lock.unlock();
      ::poll(&ready, 1, static_cast<int>(kAsk.count()));
      lock.lock();
      continue;
    }
    const Stream stream = item->stream;
    const std::string piece = item->text.substr(item->written, kPieceBytes);
    item->written += piece.size();
    if (item->written == item->text.size()) state.waiting.erase(item);
    lock.unlock();
    streams.write(stream, piece);
    lock.lock();
    state.bytes -= piece.size();
    state.changed.notify_all();
  }
  state.ended = true;
  state.changed.notify_all();
}

void OutputWriter::write(Stream stream, std::string text) {
  if (text.empty()) return;
  const std::lock_guard lock(state_->mutex);
  state_->bytes += text.size();
  state_->waiting.push_back({stream, std::move(text)});
  state_->changed.notify_all();
}

bool OutputWriter::is_behind() const {
  const std::lock_guard lock(state_->mutex);
  return state_->bytes > kBehindBytes;
}

bool OutputWriter::has_caught_up() const {
  const std::lock_guard lock(state_->mutex);
  return state_->bytes < kCaughtUpBytes;
}

void OutputWriter::finish(const std::function<bool()>& give_up) {
  std::unique_lock lock(state_->mutex);
  while (!state_->changed.wait_for(lock, kAsk, [this] { return state_->bytes == 0; }))
    if (give_up()) return;
}

}  // namespace gantry::launcher
