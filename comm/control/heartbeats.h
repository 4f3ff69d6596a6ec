// Timing of a hub, a rank and a launch: an action at every heartbeat, and peers whose silence is monitored.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>

#include "gantry/comm/control/asio.h"

namespace gantry {

// Detects a peer that has been silent for too long. It only computes with times that the caller passes, and
// has no clock of its own.
//
// Silence counts only while this process was awake. After a suspension (SIGSTOP, a paused machine) a rank has
// heard from no peer, although their heartbeats wait in its sockets. A late check therefore counts at most
// the planned interval and reports no peer. The sockets can then be read for a full heartbeat before the next
// check.
class SilenceWatch {
 public:
  // All times are in seconds. `now` is the time of any clock that never goes back.
  SilenceWatch(double heartbeat, double lost_after, double now);

  void heard(int peer, double now);  // monitors the peer from now on
  void forget(int peer);

  struct Silent {
    int peer = 0;
    double seconds = 0;
  };
  // Call it at next_look(). Returns the peer with the longest silence, if that is at least lost_after.
  std::optional<Silent> look(double now);
  double next_look() const { return planned_; }

 private:
  double awake(double now) const;
  void plan(double now, bool late);

  const double heartbeat_, lost_after_;
  double awake_ = 0;             // seconds that this process was awake, until the last check
  double last_look_ = 0;         // time of the last check, by the caller's clock
  double planned_ = 0;           // time of the next check, by the caller's clock
  std::map<int, double> heard_;  // per peer: awake time of its last sign of life
};

// Returns the error text for a peer that was silent for `seconds`.
std::string silence_text(double seconds, double lost_after);

}  // namespace gantry

namespace gantry::control {

// Belongs to the thread that runs its io_context.
class Heartbeats {
 public:
  // Times are in seconds. `beat` is called at every heartbeat. `lost` is called for a peer from which nothing
  // arrived for `lost_after`; the peer is then forgotten. With lost_after 0, `lost` is never called.
  struct Rules {
    double heartbeat = 1;
    double lost_after = 0;
    std::function<void()> beat;
    std::function<void(int peer, double silent)> lost;
  };
  Heartbeats(asio::io_context& context, Rules rules);

  void start();
  void stop();
  void heard(int peer);  // monitors the peer from now on
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
