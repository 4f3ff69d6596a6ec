// mpirun as a child process: its command line, and its end.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <sys/types.h>
#include <vector>

#include "gantry/launch/supervisor/descriptor.h"
#include "gantry/launch/supervisor/launch_options.h"

namespace gantry::launcher {

// Of PATH. UsageError where there is none, naming what to install and what runs without it.
std::string find_mpirun();

// True in a job of Slurm, PBS or LSF, whose hosts mpirun knows by itself.
bool has_batch_system();

// False where the hosts named, or those of a Slurm job, are this one alone; of the other batch systems' nothing is
// known.
bool may_have_several_hosts(const LaunchOptions& options);

// `cores` of this host; `exported` are the variables that ranks on other hosts get too.
std::vector<std::string> mpirun_command(const LaunchOptions& options, const std::string& mpirun,
                                        const std::string& shim, int cores, bool as_root,
                                        const std::vector<std::string>& exported);

// Runs in a process group of its own, so that a terminal's Ctrl-C reaches the launch alone; is notified to end when
// this process ends in whatever way, and killed with its group by the destructor, which leaves none of its temporary
// files.
class Mpirun {
 public:
  // `variables` are added to its environment.
  Mpirun(const std::vector<std::string>& command, const std::map<std::string, std::string>& variables);
  ~Mpirun();
  Mpirun(const Mpirun&) = delete;
  Mpirun& operator=(const Mpirun&) = delete;

  int output() const { return output_.get(); }  // of both its streams, to be polled
  std::string read_output();                    // what is there now
  void signal(int number) const;                // to it alone
  void kill_group() const;
  // Its exit code, or the signal that ended it, negative; nothing while it runs.
  std::optional<int> poll_end();

 private:
  pid_t process_ = -1;
  Descriptor output_;
  std::optional<int> end_;
};

}  // namespace gantry::launcher
