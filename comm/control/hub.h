// The middle of a job's control plane: every rank has a connection to it, and what one tells it hands on to all.
//
// It stands in rank 0's process, or in the launch where `gantry launch` has started the ranks. Belongs to the thread
// that runs its io_context.
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
  double lost_after_seconds = 0;  // 0: it sends no beats and watches nobody's silence
  std::function<std::string(int)> describe_rank;
};

struct HubEvents {
  std::function<void()> on_begun;  // all ranks have come
  // A rank is silent, sends no frames, or its connection closed before its work was done. Whether the job fails by it
  // is the owner's to say: fail().
  std::function<void(const JobFailure&)> on_lost;
  std::function<void(const std::set<int>& joined)> on_grown = [](const std::set<int>&) {};  // in an elastic job
  std::function<void(const std::set<int>& members)> on_over = [](const std::set<int>&) {};  // its work is done
};

class Hub {
 public:
  Hub(asio::io_context& context, HubOptions options, HubEvents events);

  void start() { pulse_.start(); }
  // Why a rank may not come in: "" if it may.
  std::string refusal(const Hello& hello) const;
  void welcome(int rank, const std::shared_ptr<Connection>& connection);
  // The first failure is final. All ranks are notified, also those that connect later.
  void fail(const JobFailure& failure);
  // Null if the job is not elastic, or if it does not continue without a rank any more: some ranks are done.
  const Membership* membership() const;
  // The job continues without the replica of `rank`. Returns false if it cannot: then nothing changes.
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
  void start_again();
  bool watches() const { return options_.lost_after_seconds > 0; }
  void send_all(const std::string& frame);

  asio::io_context& context_;
  const HubOptions options_;
  const HubEvents events_;
  Heartbeats pulse_;
  Peers peers_;
  std::set<int> absent_, working_;                    // ranks that have not connected, and ranks that are not done
  std::set<int> left_;                                // ranks that are done, which the others do not know yet
  std::map<int, std::string> shared_;                 // share frames that have arrived, until all have
  std::optional<Membership> membership_;              // in an elastic job
  std::vector<std::unique_ptr<Heartbeats>> watches_;  // for elastic jobs, one after the other
  Heartbeats* ranks_ = nullptr;                       // the present one, which watches their silence
  std::optional<JobFailure> failure_;
  int reported_ = -1;   // the last generation in which a rank has reported another one as unreachable
  bool stops_ = false;  // all ranks were notified that the job stops
  bool closing_ = false;
};

}  // namespace gantry::control
