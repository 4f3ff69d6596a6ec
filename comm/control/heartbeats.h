// One rank's part of the star: what it does with connections, frames and time.
//
// Everything but the constructor, open() and join(), which run before the thread does, belongs to the control thread.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>

#include "gantry/comm/control/asio.h"
#include "gantry/comm/control/connection.h"
#include "gantry/comm/control/control_plane.h"
#include "gantry/comm/control/milestones.h"
#include "gantry/comm/control/silence_watch.h"

namespace gantry::control {

class Heartbeats {
 public:
  Heartbeats(asio::io_context& context, ControlOptions options, ControlEvents events, Milestones& milestones);

  Meeting open(const std::string& address);  // rank 0
  void join(const Meeting& meeting);         // the others

  void tell(const JobFailure& failure);  // this rank failed
  void finish();                         // this rank's work is done
  void ask();                            // another rank than 0: whose work is not? The answer goes to the milestones
  void close();

 private:
  bool is_hub() const { return options_.rank == 0; }
  bool over() const { return closing_ || ended_ || failed_; }

  asio::awaitable<void> accept_all();
  asio::awaitable<void> greet(std::shared_ptr<Connection> connection);
  asio::awaitable<void> connect(tcp::endpoint hub);
  // True if rank 0 closed the connection before its first frame: it had no room for one more pending connection.
  asio::awaitable<bool> converse(int rank, std::shared_ptr<Connection> connection);
  asio::awaitable<void> pulse();

  std::string refusal(const Hello& hello) const;
  void meet(int rank, const std::shared_ptr<Connection>& connection);
  void adopt(int rank, const std::shared_ptr<Connection>& connection);
  void take(int rank, const Frame& frame);
  void done(int rank);
  void tell_left();
  void tell_stop();
  void hear_stop();
  void answer(int rank);
  void end();
  void keep_failure(const JobFailure& failure, const std::function<void(const JobFailure&)>& event);
  void lose(int rank, const std::string& how);
  void warn(const std::string& line);
  void send_all(const std::string& frame);

  asio::io_context& context_;
  const ControlOptions options_;
  const ControlEvents events_;
  Milestones& milestones_;
  JobToken token_{};
  tcp::acceptor acceptor_;
  asio::steady_timer timer_;
  std::map<int, std::shared_ptr<Connection>> peers_;  // by rank; on others than rank 0 only rank 0
  SilenceWatch silence_;
  double next_beat_ = 0;
  std::set<std::shared_ptr<Connection>> pending_;  // that have not said who they are
  std::set<int> left_;                             // rank 0: whose work is done, and the others don't know
  int warnings_ = 0;
  bool answered_ = false;  // on others than rank 0: its first frame has come
  bool closing_ = false, ended_ = false, failed_ = false;
  bool stops_ = false;  // the job is to stop, and this rank has told or heard it
};

}  // namespace gantry::control
