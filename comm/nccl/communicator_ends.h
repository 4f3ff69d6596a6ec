// Ends communicators, each on a separate thread.
//
// ncclCommDestroy and ncclCommAbort wait, without a deadline, until the members on the same host end the
// communicator too. But members end their communicators in different orders, and a process that is stopped
// ends none. So neither call may block the calling thread: otherwise one member could wait in the end of a
// first communicator for another member, which waits in the end of a second one.
#pragma once

#include <condition_variable>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace gantry {

class CommunicatorEnds {
 public:
  CommunicatorEnds() = default;
  // Threads whose call has not returned continue without an owner.
  ~CommunicatorEnds();
  CommunicatorEnds(const CommunicatorEnds&) = delete;
  CommunicatorEnds& operator=(const CommunicatorEnds&) = delete;

  // `end` makes the call and must own the objects that it uses; its exceptions are dropped. `communicator`:
  // its name in errors.
  void start(std::string communicator, std::function<void()> end);
  // Waits until all that were started have ended, or until `give_up` returns true, which is polled every 20
  // ms. Returns the names of the communicators that have not ended. No other call may run meanwhile.
  std::vector<std::string> wait(const std::function<bool()>& give_up);

 private:
  struct Progress {
    std::mutex mutex;  // guards `ended`
    std::condition_variable changed;
    bool ended = false;
  };
  struct End {
    std::string communicator;
    std::shared_ptr<Progress> progress;
    std::thread thread;
  };

  void drop_ended();

  std::mutex mutex_;  // guards `ends_`
  std::list<End> ends_;
};

}  // namespace gantry
