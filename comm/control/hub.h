// The hub of a job's control plane. Every rank has a connection to it, and it forwards the reports of one
// rank to all.
//
// The hub is in rank 0's process, or in the launch if `gantry launch` has started the ranks. Belongs to the
// thread that runs its io_context.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "gantry/comm/control/connection.h"
#include "gantry/comm/control/heartbeats.h"
#include "gantry/comm/control/membership.h"

namespace gantry::control {

struct HubOptions {
  int ranks = 1;
  double heartbeat_seconds = 1;
  double lost_after_seconds = 0;  // 0: the hub sends no heartbeats and does not monitor silence
  std::function<std::string(int)> describe_rank;
};

struct HubEvents {
  std::function<void()> on_begun;  // all ranks have connected
  // A rank is silent, sends invalid frames, or its connection closed before its work was done. The owner
  // decides whether the job fails because of it, by a call of fail().
  std::function<void(const JobFailure&)> on_lost;
  std::function<void(const std::set<int>& joined)> on_grown = [](const std::set<int>&) {};  // if elastic
  std::function<void(const std::set<int>& members)> on_over = [](const std::set<int>&) {};  // work is done
};

class Hub {
 public:
  Hub(asio::io_context& context, HubOptions options, HubEvents events);

  void start() { pulse_.start(); }
  // Returns why a rank is not admitted, or "" if it is.
  std::string refusal(const Hello& hello) const;
  void welcome(int rank, const std::shared_ptr<Connection>& connection);
  // The first failure is final. All ranks are notified, also those that connect later.
  void fail(const JobFailure& failure);
  // Null if the job is not elastic, or if it cannot continue without a rank any more because some ranks are
  // done.
  const Membership* membership() const;
  // Continues the job without the replica of `rank`. Returns false, without a change, if it cannot.
  bool lose_replica(int rank);
  bool is_connected(int rank) const { return peers_.contains(rank); }
  bool is_member(int rank) const { return !membership_ || membership_->ranks().contains(rank); }
  void close();

 private:
  using Peers = std::map<int, std::shared_ptr<Connection>>;  // by rank

  asio::awaitable<void> converse(int rank, std::shared_ptr<Connection> connection);
  void take(int rank, const Frame& frame);
  void lose(int rank, const std::string& how);
  void beat();
  void done(int rank);
  void answer(int rank);
  void share(int rank, std::string_view payload);
  void become_elastic(const ElasticPolicy& policy);
  void admit(int rank);
  void grow();
  void lose_unreachable(int from, std::string_view payload);
  void regroup();
  std::set<int> late() const;
  void tell_left();
  void tell_stop();
  void request_records(int from);
  void start_again();
  bool watches() const { return options_.lost_after_seconds > 0; }
  void send_all(const std::string& frame);

  asio::io_context& context_;
  const HubOptions options_;
  const HubEvents events_;
  Heartbeats pulse_;
  Peers peers_;
  std::set<int> absent_, working_;                    // ranks not connected, and ranks not done
  std::set<int> left_;                                // ranks that are done, and not reported yet
  std::map<int, std::string> shared_;                 // the `share` frames that have arrived, until all have
  std::optional<Membership> membership_;              // in an elastic job
  std::vector<std::unique_ptr<Heartbeats>> watches_;  // one per elastic job, in order
  Heartbeats* ranks_ = nullptr;  // the current one of `watches_`, which monitors the silence of the ranks
  std::optional<JobFailure> failure_;
  int reported_ = -1;   // the last generation in which a rank reported another one as unreachable
  bool stops_ = false;  // all ranks were notified that the job stops
  bool closing_ = false;
};

}  // namespace gantry::control
