// What a launch was asked to do.
#pragma once

#include <string>
#include <vector>

#include "gantry/launch/supervisor/hosts.h"

namespace gantry::launcher {

struct LaunchOptions {
  int ranks = 0;
  bool tcp = false;                      // the ranks are processes without MPI
  std::vector<Host> hosts;               // empty: this host, or those of the batch system
  std::string interface;                 // the network interface or address between hosts; may be empty on one host
  int port = 0;                          // that ranks connect to; 0: any free one
  int restarts = 0;                      // at most
  std::string checkpoints;               // where a program that is not `gantry train` saves
  std::string log_dir;                   // empty: no logs
  std::vector<std::string> environment;  // names or NAME=VALUE for the ranks on other hosts
  double start_seconds = 120;            // until every rank must have begun
  double stopped_seconds = 15;           // that a rank may stand still, stopped by a signal
  std::vector<std::string> program;
};

}  // namespace gantry::launcher
