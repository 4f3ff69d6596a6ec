// Training over several hosts, which are network namespaces with one address each (GANTRY_LONG=1, as root).
// The short form passes one host by name and runs the same code without the network.
#include <cstdlib>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <regex>
#include <sstream>
#include <unistd.h>

#include "background.h"

namespace gantry::testing {
namespace {

constexpr int kSteps = 6;
const std::string kHosts = std::string(GANTRY_SOURCE_DIR) + "/tests/support/network_hosts.sh";

// The command line of a shorter demo, with its output in the test's directory.
std::string demo(const std::string& output, const std::string& sets = "") {
  return fmt::format(
      "{0} train {1}/examples/demo.yaml --set data.path={1}/core/*/*.h --set train.steps={2} --set output={3} --set "
      "checkpoint.path={3}/c --set comm.threads_per_rank=1 {4}",
      gantry_program(), GANTRY_SOURCE_DIR, kSteps, output, sets);
}

// The part of each metrics line before the learning rate. It must not depend on the hosts of the ranks.
std::string losses_of(const std::string& output) {
  std::string losses;
  std::istringstream lines(read_file(output + "/metrics.jsonl"));
  for (std::string line; std::getline(lines, line);) losses += line.substr(0, line.find(",\"lr\"")) + "\n";
  return losses;
}

std::string losses_of_threads(const ScratchFolder& scratch) {
  const Outcome run = run_program(demo(scratch / "threads"), 300);
  EXPECT_EQ(run.exit_code, 0) << run.err;
  return losses_of(scratch / "threads");
}

// Network namespaces that exist as long as the object.
class Network {
 public:
  explicit Network(int hosts) : name_(fmt::format("gantry{}", ::getpid() % 10000)), hosts_(hosts) {
    const Outcome made = call(fmt::format("up {} {} {}", name_, hosts, folder_.path()));
    EXPECT_EQ(made.exit_code, 0) << made.err;
  }
  ~Network() { call("down " + folder_.path()); }
  Network(const Network&) = delete;
  Network& operator=(const Network&) = delete;

  std::string host(int i) const { return fmt::format("{}-{}", name_, i); }
  void slow(int i) const { EXPECT_EQ(call("slow " + folder_.path() + " " + host(i)).exit_code, 0); }
  void disconnect(int i) const { EXPECT_EQ(call("cut " + folder_.path() + " " + host(i)).exit_code, 0); }
  // The command line of `gantry launch` on the first host, with `ranks_each` ranks per host.
  std::string launch(int ranks_each, const std::string& program, const std::string& flags = "") const {
    std::string list;
    for (int i = 0; i < hosts_; ++i) list += fmt::format("{}{}:{}", i ? "," : "", host(i), ranks_each);
    return fmt::format(
        "env OMPI_MCA_plm_rsh_agent={0}/agent {1} run {0} {2} {3} launch --hosts {4} --interface eth0 {5} -- {6}",
        folder_.path(), kHosts, host(0), gantry_program(), list, flags, program);
  }

 private:
  static Outcome call(const std::string& arguments) { return run_program(kHosts + " " + arguments); }

  const ScratchFolder folder_;
  const std::string name_;
  const int hosts_;
};

TEST(Hosts, ThisOneByItsName) {
  const ScratchFolder scratch;
  const std::string expected = losses_of_threads(scratch);
  const Outcome run = run_program(fmt::format("{} launch --hosts $(hostname):4 --log-dir {} -- {}", gantry_program(),
                                              scratch / "logs", demo(scratch / "host")),
                                  300);
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_NE(expected, "");
  EXPECT_EQ(losses_of(scratch / "host"), expected);
}

TEST(Hosts, SeveralGiveTheNumbersOfThreadsToTheBit) {
  if (!is_long_form()) return;
  const ScratchFolder scratch;
  const std::string expected = losses_of_threads(scratch);
  for (const int hosts : {2, 4}) {
    const Network network(hosts);
    if (hosts == 2) network.slow(1);
    const std::string output = scratch / fmt::format("hosts{}", hosts);
    const Outcome run = run_program(network.launch(4 / hosts, demo(output)), 300);
    ASSERT_EQ(run.exit_code, 0) << run.out << run.err;
    EXPECT_NE(run.out.find("over mpi"), std::string::npos) << run.out;
    EXPECT_EQ(losses_of(output), expected);
  }
}

TEST(Hosts, ABrokenNetworkEndsTheJobAndIsNamed) {
  if (!is_long_form()) return;
  const ScratchFolder scratch;
  const Network network(2);
  const std::string program = demo(scratch / "cut", "--set train.steps=100000 --set comm.timeout_seconds=5");
  Background run(network.launch(2, program));
  ASSERT_TRUE(run.wait_until(
      [&] { return read_file(scratch / "cut/metrics.jsonl").find("\"step\":3") != std::string::npos; }, 120))
      << run.err();
  network.disconnect(1);
  const Outcome ended = run.wait(15 + 15 + 10);
  EXPECT_EQ(ended.exit_code, 7) << ended.out << ended.err;
  // The error names a rank on the other side of the broken link.
  EXPECT_TRUE(std::regex_search(ended.err, std::regex("error: .*rank [23]\\b"))) << ended.err;
  // No message crosses the broken link, so the ranks there have to detect it. (mpirun's idle daemon waits for
  // the kernel.)
  const std::string ranks = "for p in $(ip netns pids " + network.host(1) +
                            "); do tr '\\0' ' ' </proc/$p/cmdline; echo; done | grep -c 'launch-rank\\|demo.yaml'";
  EXPECT_EQ(run_program("for i in $(seq 200); do [ $(" + ranks + ") = 0 ] && break; sleep 0.1; done; " + ranks).out,
            "0\n");
}

}  // namespace
}  // namespace gantry::testing
