// Writes the output of a launch on a thread of its own: a terminal or a pipe without a reader blocks this
// thread only, and the launch continues to serve signals and ranks.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

namespace gantry::launcher {

enum class Stream { kOut, kErr };

class OutputWriter {
 public:
  OutputWriter();
  // Text that is still queued is lost, unless finish() was called before.
  ~OutputWriter();
  OutputWriter(const OutputWriter&) = delete;
  OutputWriter& operator=(const OutputWriter&) = delete;

  // Queues the text and returns at once. The order of all texts is kept, unless one of the streams is
  // blocked: the other one is written meanwhile. Text for a pipe whose reader has gone is dropped; so is text
  // for a full disk, with one warning on the other stream.
  void write(Stream stream, std::string text);

  // True if more than 1 MiB is queued; the caller should pause its sources until has_caught_up().
  bool is_behind() const;
  bool has_caught_up() const;

  // Waits until all is written, or until `give_up` returns true, which is polled every 50 ms.
  void finish(const std::function<bool()>& give_up);

 private:
  struct Item {
    Stream stream;
    std::string text;
    std::size_t written = 0;  // bytes of the text that are already written
  };
  // Shared with the thread, which may outlive this in a write that never returns.
  struct State {
    mutable std::mutex mutex;  // guards the rest
    std::condition_variable changed;
    std::deque<Item> waiting;
    std::size_t bytes = 0;  // queued, or being written
    bool stopping = false, ended = false;
  };
  static void run(State& state);
  static std::deque<Item>::iterator next_writable(std::deque<Item>& waiting);

  const std::shared_ptr<State> state_ = std::make_shared<State>();
  std::thread thread_;
};

}  // namespace gantry::launcher
