// The number of cores that this process may use. It is smaller than the machine's with taskset, cpusets of Slurm or
// Kubernetes, `mpirun --bind-to core`, and CPU quotas of containers.
#pragma once

#include <bitset>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace gantry {

// The minimum of the cores that it is bound to and the quotas of its cgroups (rounded up); at least 1.
int usable_cores();

// Indices as in the system. As many as any x86 or Arm kernel supports.
using CpuSet = std::bitset<8192>;
CpuSet bound_cpus();  // cores of the calling thread

// The cores of a process on a host, for the other processes of the host.
struct CpuClaim {
  CpuSet cpus;
  double quota = 0;          // quota of its cgroups in cores; 0: none
  std::uint64_t cgroup = 0;  // identifier of its cgroups: processes with the same one share the quota
};
CpuClaim own_cpu_claim();
// The number of cores for `mine` if all claims on the host, including `mine`, are treated equally: each core that
// several processes are bound to is divided among them, and so is a shared quota.
double share_of_cores(const CpuClaim& mine, const std::vector<CpuClaim>& all);

// The smallest CPU quota, in cores, of the cgroup that `cgroups` (/proc/self/cgroup) names and of its parents, version
// 1 or 2, mounted according to `mounts` (/proc/self/mountinfo); none if there is no quota. `read` returns the text of a
// file, or "" if it does not exist.
std::optional<double> cpu_quota(const std::string& cgroups, const std::string& mounts,
                                const std::function<std::string(const std::string& path)>& read);

}  // namespace gantry
