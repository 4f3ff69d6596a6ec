// mpirun as a child process: its command line and its end.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <sys/types.h>
#include <vector>

#include "gantry/launch/supervisor/descriptor.h"
#include "gantry/launch/supervisor/launch_options.h"

namespace gantry::launcher {

// Returns the path of mpirun, found on PATH. Throws UsageError if there is none; the error names the package
// to install and the ways to run without mpirun.
std::string find_mpirun();

// True in a job of Slurm, PBS or LSF, whose hosts mpirun finds by itself.
bool has_batch_system();

// False if the given hosts, or those of a Slurm job, are only this one. The hosts of other batch systems are
// unknown.
bool may_have_several_hosts(const LaunchOptions& options);

// `cores`: cores of this host. `exported`: variables that ranks on other hosts get too.
std::vector<std::string> mpirun_command(const LaunchOptions& options, const std::string& mpirun,
                                        const std::string& shim, int cores, bool as_root,
                                        const std::vector<std::string>& exported);

// mpirun runs in its own process group, so that Ctrl-C in a terminal reaches only the launch. It gets SIGTERM
// when this process ends for any reason. The destructor kills it with its group, and removes its temporary
// files.
class Mpirun {
 public:
  // `variables` are added to its environment.
  Mpirun(const std::vector<std::string>& command, const std::map<std::string, std::string>& variables);
  ~Mpirun();
  Mpirun(const Mpirun&) = delete;
  Mpirun& operator=(const Mpirun&) = delete;

  int output() const { return output_.get(); }  // both its streams, for polling
  std::string read_output();                    // the output that is available now
  void signal(int number) const;                // sent to mpirun only
  void kill_group() const;
  // Returns its exit code, or the negative number of the signal that ended it; nullopt while it runs.
  std::optional<int> poll_end();

 private:
  pid_t process_ = -1;
  Descriptor output_;
  std::optional<int> end_;
};

}  // namespace gantry::launcher
