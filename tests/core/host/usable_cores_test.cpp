// The number of cores that a process may use: from made-up files, under taskset, and in a real cgroup if the
// test can create one.
#include "gantry/core/host/usable_cores.h"

#include <cmath>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <map>
#include <nlohmann/json.hpp>

#include "program.h"

namespace gantry::testing {
namespace {

using Files = std::map<std::string, std::string>;

std::optional<double> quota_of(const std::string& cgroups, const std::string& mounts, const Files& files) {
  return cpu_quota(cgroups, mounts, [&](const std::string& path) {
    const auto file = files.find(path);
    return file == files.end() ? std::string() : file->second;
  });
}

constexpr const char* kUnified =
    "22 1 0:21 / /proc rw - proc proc rw\n35 24 0:30 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw\n";
constexpr const char* kSplit =
    "35 24 0:30 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n"
    "36 24 0:31 / /sys/fs/cgroup/cpu,cpuacct rw,nosuid - cgroup cgroup rw,cpu,cpuacct\n";

TEST(UsableCores, AQuotaOfTheSecondVersionIsTheLeastOnTheWayUp) {
  const std::string group = "0::/pods/one/main\n";
  EXPECT_EQ(quota_of(group, kUnified, {}), std::nullopt);
  EXPECT_EQ(quota_of(group, kUnified, {{"/sys/fs/cgroup/pods/one/main/cpu.max", "max 100000\n"}}), std::nullopt);
  EXPECT_EQ(quota_of(group, kUnified, {{"/sys/fs/cgroup/pods/one/main/cpu.max", "250000 100000\n"}}), 2.5);
  EXPECT_EQ(quota_of(group, kUnified,
                     {{"/sys/fs/cgroup/pods/one/main/cpu.max", "max 100000\n"},
                      {"/sys/fs/cgroup/pods/one/cpu.max", "300000 100000\n"},
                      {"/sys/fs/cgroup/pods/cpu.max", "80000 20000\n"}}),
            3.0);
  // A container sees its own group as the root.
  EXPECT_EQ(quota_of("0::/\n", kUnified, {{"/sys/fs/cgroup/cpu.max", "150000 100000\n"}}), 1.5);
}

TEST(UsableCores, AQuotaOfTheFirstVersionIsTheCpuControllers) {
  const std::string group = "5:cpuset:/slurm/a\n4:cpu,cpuacct:/slurm/b\n0::/\n";
  const std::string folder = "/sys/fs/cgroup/cpu,cpuacct/slurm/b/cpu.cfs_";
  EXPECT_EQ(quota_of(group, kSplit, {{folder + "quota_us", "-1\n"}, {folder + "period_us", "100000\n"}}), std::nullopt);
  EXPECT_EQ(quota_of(group, kSplit, {{folder + "quota_us", "400000\n"}, {folder + "period_us", "100000\n"}}), 4.0);
  EXPECT_EQ(quota_of(group, kSplit,
                     {{folder + "quota_us", "-1\n"},
                      {folder + "period_us", "100000\n"},
                      {"/sys/fs/cgroup/cpu,cpuacct/slurm/cpu.cfs_quota_us", "50000\n"},
                      {"/sys/fs/cgroup/cpu,cpuacct/slurm/cpu.cfs_period_us", "100000\n"}}),
            0.5);
}

TEST(UsableCores, APartOfAHierarchyMayBeMounted) {
  const std::string mounts = "36 24 0:31 /docker/0abc /sys/fs/cgroup/cpu ro master:17 - cgroup cgroup rw,cpu\n";
  const Files files{{"/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "200000\n"},
                    {"/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n"},
                    {"/sys/fs/cgroup/cpu/in/cpu.cfs_quota_us", "100000\n"},
                    {"/sys/fs/cgroup/cpu/in/cpu.cfs_period_us", "100000\n"}};
  EXPECT_EQ(quota_of("4:cpu:/docker/0abc\n", mounts, files), 2.0);
  EXPECT_EQ(quota_of("4:cpu:/docker/0abc/in\n", mounts, files), 1.0);
  EXPECT_EQ(quota_of("4:cpu:/docker/0abcdef\n", mounts, files), 2.0) << "another group than the mount's";
  EXPECT_EQ(quota_of("4:cpu:/../other\n", mounts, files), 2.0);
}

TEST(UsableCores, DamagedFilesAreNoQuota) {
  const Files files{{"/sys/fs/cgroup/cpu.max", "none\n"}};
  for (const char* group : {"", "\n", "0\n", "0:\n", "0::\n", "0::/\n", ":::\n"})
    for (const char* mounts : {"", "\n", "1 2 3\n", "1 2 3 4 5 - cgroup2\n", kUnified})
      EXPECT_EQ(quota_of(group, mounts, files), std::nullopt) << group << mounts;
}

CpuClaim claim(std::initializer_list<int> cpus, double quota = 0, std::uint64_t cgroup = 0) {
  CpuClaim made;
  for (const int cpu : cpus) made.cpus.set(static_cast<std::size_t>(cpu));
  made.quota = quota;
  made.cgroup = cgroup;
  return made;
}

TEST(UsableCores, ProcessesOfAHostShareWhatSeveralMayUse) {
  const auto share = [](const std::vector<CpuClaim>& all) { return share_of_cores(all.front(), all); };
  EXPECT_EQ(share({claim({0, 1, 2, 3})}), 4);
  EXPECT_EQ(share({claim({0, 1, 2, 3}), claim({0, 1, 2, 3})}), 2);
  EXPECT_EQ(share({claim({0, 1}), claim({2, 3})}), 2) << "each bound to its own";
  EXPECT_EQ(share({claim({0}), claim({0}), claim({0}), claim({0})}), 0.25);
  EXPECT_EQ(share({claim({0, 1, 2, 3}), claim({2, 3})}), 3);
  EXPECT_EQ(share({claim({0, 1, 2, 3}, 1.5)}), 2) << "a quota is rounded up";
  EXPECT_EQ(share({claim({0, 1, 2, 3, 4, 5}, 2, 7), claim({0, 1, 2, 3, 4, 5}, 2, 7)}), 1) << "one quota for both";
  EXPECT_EQ(share({claim({0, 1, 2, 3, 4, 5}, 2, 7), claim({0, 1, 2, 3, 4, 5}, 2, 8)}), 2) << "one each";
}

int cores_of_doctor(const std::string& around) {
  const Outcome run = run_program(around + gantry_program() + " doctor --json");
  EXPECT_EQ(run.exit_code, 0) << run.err;
  return run.exit_code == 0 ? nlohmann::json::parse(run.out).at("cores").get<int>() : -1;
}

TEST(UsableCores, AreThoseThatTasksetLeaves) {
  const CpuSet mine = bound_cpus();
  std::size_t first = 0;
  while (!mine[first]) ++first;
  EXPECT_EQ(cores_of_doctor(fmt::format("taskset -c {} ", first)), 1);
  EXPECT_LE(cores_of_doctor(""), static_cast<int>(mine.count()));
}

TEST(UsableCores, AreWhatARealCgroupsQuotaIsWorth) {
  if (usable_cores() < 2) GTEST_SKIP() << "one core, so a quota of one changes nothing";
  const ScratchFolder scratch;
  const std::string name = "gantry_test_" + scratch.path().substr(scratch.path().rfind('/') + 1);
  const Outcome run = run_program("name=" + name + "\n" +
                                  "if [ -e /sys/fs/cgroup/cgroup.controllers ]; then group=/sys/fs/cgroup/$name; else "
                                  "group=/sys/fs/cgroup/cpu/$name; fi\n"
                                  "mkdir $group || exit 99\n"
                                  "if [ -e $group/cpu.max ]; then echo '100000 100000' >$group/cpu.max; else echo "
                                  "100000 >$group/cpu.cfs_quota_us; fi ||"
                                  " { rmdir $group; exit 99; }\n"
                                  "sh -c \"echo \\$\\$ >$group/cgroup.procs && exec " +
                                  gantry_program() + " doctor --json\" || echo '{}'\nrmdir $group\n");
  if (run.exit_code == 99) GTEST_SKIP() << "no cgroup with a CPU quota can be made here: " << run.err;
  ASSERT_EQ(run.exit_code, 0) << run.err;
  EXPECT_EQ(nlohmann::json::parse(run.out).value("cores", -1), 1) << run.out << run.err;
}

}  // namespace
}  // namespace gantry::testing
