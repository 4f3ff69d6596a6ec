// Time as a hub, a rank and a launch see it: something to do at every heartbeat, and peers whose silence is watched.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>

#include "gantry/comm/control/asio.h"

namespace gantry {

// Which peer has been silent for too long: arithmetic on times that the caller brings, without a clock of its own.
//
// Silence counts only while this process was awake. A rank that was stopped (SIGSTOP, a paused machine) finds on waking
// that its peers have not been heard for as long, though their signs of life lie in its sockets. So a look that comes
// later than it should have counts no more than the time that was planned, gives no verdict, and leaves the sockets a
// whole heartbeat's time to be read before the next look.
class SilenceWatch {
 public:
  // Seconds. `now` below is any clock that never goes back.
  SilenceWatch(double heartbeat, double lost_after, double now);

  void heard(int peer, double now);  // watches it from now on if it was not watched
  void forget(int peer);

  struct Silent {
    int peer = 0;
    double seconds = 0;
  };
  // To be called at next_look(). The one that has been silent the longest, if that is lost_after or more.
  std::optional<Silent> look(double now);
  double next_look() const { return planned_; }

 private:
  double awake(double now) const;
  void plan(double now, bool late);

  const double heartbeat_, lost_after_;
  double awake_ = 0;             // seconds that this process was awake, as of the last look
  double last_look_ = 0;         // by the caller's clock
  double planned_ = 0;           // the next look, by the caller's clock
  std::map<int, double> heard_;  // in awake time
};

// Error text for a peer that was silent for that many seconds.
std::string silence_text(double seconds, double lost_after);

}  // namespace gantry

namespace gantry::control {

// Belongs to the thread that runs its io_context.
class Heartbeats {
 public:
  // Seconds. `beat` is called at every heartbeat, `lost` for a peer of which nothing was heard for `lost_after`, which
  // is forgotten then; with lost_after 0 never.
  struct Rules {
    double heartbeat = 1;
    double lost_after = 0;
    std::function<void()> beat;
    std::function<void(int peer, double silent)> lost;
  };
  Heartbeats(asio::io_context& context, Rules rules);

  void start();
  void stop();
  void heard(int peer);  // watches it from now on if it was not watched
  void forget(int peer) { silence_.forget(peer); }

 private:
  asio::awaitable<void> run();

  asio::io_context& context_;
  const Rules rules_;
  SilenceWatch silence_;
  asio::steady_timer timer_;
  bool stopped_ = false;
};

}  // namespace gantry::control
