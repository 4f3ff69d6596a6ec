// The options of a launch.
#pragma once

#include <string>
#include <vector>

#include "gantry/launch/supervisor/hosts.h"

namespace gantry::launcher {

struct LaunchOptions {
  int ranks = 0;
  bool tcp = false;                      // the ranks are processes without MPI
  std::vector<Host> hosts;               // empty: this host, or the hosts of the batch system
  std::string interface;                 // network between hosts: interface or address; empty if one host
  int port = 0;                          // port for the connections of the ranks; 0: any free one
  int restarts = 0;                      // maximum number of restarts
  std::string checkpoints;               // checkpoint directory of a program that is not `gantry train`
  std::string log_dir;                   // empty: no logs
  std::vector<std::string> environment;  // names or NAME=VALUE for the ranks on other hosts
  double start_seconds = 120;            // time limit until every rank has begun
  double stopped_seconds = 15;           // time limit for a rank that is stopped by a signal
  std::vector<std::string> program;
};

}  // namespace gantry::launcher
