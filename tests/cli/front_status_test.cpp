// `gantry train --status`: the pages that a run serves while it trains.
#include <algorithm>
#include <fmt/format.h>
#include <functional>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <regex>

#include "background.h"
#include "raw_socket.h"

namespace gantry::testing {
namespace {

using Json = nlohmann::json;

const char* const kRun = R"(
model: {policy: gpt2, config: {n_embd: 16, n_layer: 2, n_head: 2, vocab_size: 256, n_positions: 16}}
parallel: {pipeline: 2}
data: {format: text, path: CORPUS, sequence_length: 16, batch_size: 4}
train: {steps: 1000000, log_every: 1}
)";

std::string configuration(const ScratchFolder& scratch) {
  const std::string corpus = scratch.write("corpus.txt", std::string(4096, 'a'));
  return scratch.write("run.yaml", std::regex_replace(kRun, std::regex("CORPUS"), corpus));
}

TEST(Status, IsServedWhileARunTrains) {
  const ScratchFolder scratch;
  const std::string log = scratch / "log", page = scratch / "page", metrics = scratch / "metrics";
  // Starts a run, waits for its first step, asks, and ends it.
  const Outcome outcome = run_program(
      gantry_program() + " train " + configuration(scratch) + " --status 0 >" + log + " 2>&1 &\nrun=$!\n" +
          "for i in $(seq 600); do grep -q '^step' " + log + " && break; sleep 0.1; done\n" +
          "url=$(sed -n 's/^status: //p' " + log + ")\n" +
          "python3 -c 'import sys, urllib.request as u; [open(f, \"wb\").write(u.urlopen(sys.argv[1] + p).read()) "
          "for p, f in ((\"\", sys.argv[2]), (\"metrics\", sys.argv[3]))]' $url " +
          page + " " + metrics + "\ncode=$?\nkill $run\nexit $code",
      100);
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err << read_file(log);
  EXPECT_TRUE(std::regex_search(read_file(log), std::regex("status: http://127\\.0\\.0\\.1:[0-9]+/\n")));
  EXPECT_TRUE(std::regex_search(read_file(page), std::regex("Step [0-9]+ of 1000000"))) << read_file(page);
  const std::string text = read_file(metrics);
  for (const char* line : {"\ngantry_step [1-9][0-9]*\n", "\ngantry_loss [0-9.]+\n", "\ngantry_tokens_total [0-9]+\n",
                           "\ngantry_peak_memory_bytes\\{rank=\"1\"\\} [1-9][0-9]*\n"})
    EXPECT_TRUE(std::regex_search(text, std::regex(line))) << line << text;
  EXPECT_TRUE(text.ends_with("# EOF\n"));
}

// A run whose status is asked for while it trains.
class FollowedRun {
 public:
  FollowedRun(const ScratchFolder& scratch, const std::string& sets)
      : log_(scratch / "log"),
        run_(fmt::format("{} train {} --status 0 {} >{} 2>&1", gantry_program(), configuration(scratch), sets, log_)) {}

  // Until `condition` holds; it is asked every few milliseconds.
  bool wait_until(const std::function<bool()>& condition) { return run_.wait_until(condition, 100); }

  // Returns the content of a path; empty before the server listens, and for an unknown path.
  std::string get(const std::string& path) {
    const int port = this->port();
    const RawSocket socket = port == 0 ? RawSocket(-1) : RawSocket::connect(port);
    if (!socket.connected() || !socket.send("GET " + path + " HTTP/1.1\r\nHost: localhost\r\n\r\n")) return "";
    const std::string reply = socket.receive_all();
    return reply.starts_with("HTTP/1.1 200 ") ? reply.substr(reply.find("\r\n\r\n") + 4) : "";
  }
  // Null where there is none.
  Json data() { return Json::parse(get("/data.json"), nullptr, /*allow_exceptions=*/false); }
  std::string log() const { return read_file(log_); }

 private:
  int port() {
    std::smatch found;
    const std::string printed = log();
    if (port_ == 0 && std::regex_search(printed, found, std::regex("status: http://127\\.0\\.0\\.1:([0-9]+)/\n")))
      port_ = std::stoi(found[1]);
    return port_;
  }

  std::string log_;
  int port_ = 0;
  Background run_;
};

TEST(Status, ShowsTheReportsPlotsWhileTheyGrow) {
  const ScratchFolder scratch;
  FollowedRun run(scratch, "--set output=" + (scratch / "run"));
  Json data;
  const auto has_steps_after = [&](std::int64_t step) {
    data = run.data();
    return data.is_object() && !data["metrics"]["step"].empty() && data["metrics"]["step"].back() > step;
  };
  ASSERT_TRUE(run.wait_until([&] { return has_steps_after(2); })) << run.log();
  for (int look = 0; look < 3; ++look) {
    const Json metrics = data["metrics"];
    EXPECT_EQ(metrics["step"].front(), 1);
    EXPECT_TRUE(std::ranges::is_sorted(metrics["step"], std::less_equal<>())) << metrics["step"];
    for (const char* curve : {"loss", "grad_norm", "lr", "tokens_per_second", "bubble"}) {
      ASSERT_EQ(metrics[curve].size(), metrics["step"].size()) << curve;
      for (const auto& value : metrics[curve]) EXPECT_TRUE(value.is_number()) << curve << " " << value;
    }
    EXPECT_EQ(data["live"], true);
    EXPECT_EQ(data.dump().find(scratch.path()), std::string::npos) << data["config"];
    EXPECT_EQ(data["run"]["schedule"]["name"], "1f1b");
    EXPECT_EQ(data["peak_memory_bytes"].size(), 2u);
    ASSERT_TRUE(run.wait_until([&] { return has_steps_after(metrics["step"].back()); })) << run.log();
  }
  // The page has the points within it, and asks for more.
  const std::string page = run.get("/");
  const std::string mark = "<script type=\"application/json\" id=\"data\">";
  const auto begin = page.find(mark) + mark.size();
  const Json drawn = Json::parse(page.substr(begin, page.find("</script>", begin) - begin), nullptr, false);
  ASSERT_TRUE(drawn.is_object()) << page.substr(0, 400);
  EXPECT_EQ(drawn["live"], true);
  EXPECT_GE(drawn["metrics"]["loss"].size(), data["metrics"]["loss"].size());
  EXPECT_NE(page.find("data.json"), std::string::npos);
  // Redrawn after step 2 with the pipeline's times.
  EXPECT_TRUE(run.wait_until([&] { return (data = run.data())["run"].contains("timeline"); })) << data["run"];
}

// Asked from the first moment on, while the folder still has what a longer run left there.
TEST(Status, NeverShowsAnEarlierRunInTheSameFolder) {
  const ScratchFolder scratch;
  const std::string output = "--set output=" + (scratch / "run");
  const Outcome earlier =
      run_program(fmt::format("{} train {} {} --set train.steps=60", gantry_program(), configuration(scratch), output));
  ASSERT_EQ(earlier.exit_code, 0) << earlier.err;
  FollowedRun run(scratch, output);
  std::vector<Json> begins;  // first steps of the curves, in the order of the requests
  ASSERT_TRUE(run.wait_until([&] {
    const Json data = run.data();
    if (!data.is_object() || data["metrics"]["step"].empty()) return false;
    begins.push_back(data["metrics"]["step_seconds"].front());
    return data["metrics"]["step"].back() > 70;
  })) << run.log();
  const std::string lines = read_file(scratch / "run/metrics.jsonl");
  const Json first = Json::parse(lines.substr(0, lines.find('\n')))["step_seconds"];
  for (const auto& begin : begins) EXPECT_EQ(begin, first);
}

TEST(Status, OnAPortInUseEndsTheRunAtItsStart) {
  const ScratchFolder scratch;
  const RawListener taken;
  const Outcome outcome =
      run_program(gantry_program() + " train " + configuration(scratch) + " --status " + std::to_string(taken.port()));
  EXPECT_EQ(outcome.exit_code, 6);
  EXPECT_NE(outcome.err.find("status: port " + std::to_string(taken.port()) +
                             " of 127.0.0.1 cannot be opened: Address already in use"),
            std::string::npos)
      << outcome.err;
}

TEST(Status, OnWhatIsNoPortIsRefused) {
  const Outcome outcome = run_program(gantry_program() + " train x.yaml --status 70000");
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_NE(outcome.err.find("--status"), std::string::npos);
  for (const char* wrong : {"eth0", ":80", "eth0:", "a:b", "8080x", "-1", "localhost:65536"})
    EXPECT_EQ(run_program(gantry_program() + " train x.yaml --status " + wrong).exit_code, 2) << wrong;
}

TEST(Status, ListensBeyondLoopbackOnlyIfConfiguredAndThenAsksForAToken) {
  const ScratchFolder scratch;
  // comm.interface, which carries heartbeats, does not publish the status of the run.
  FollowedRun usual(scratch, "--set comm.interface=lo");
  ASSERT_TRUE(usual.wait_until([&] { return !usual.get("/metrics").empty(); })) << usual.log();
  const Outcome nowhere = run_program(gantry_program() + " train " + configuration(scratch) + " --status ib7:0");
  EXPECT_EQ(nowhere.exit_code, 2);
  EXPECT_NE(nowhere.err.find("--status: 'ib7' is not an active interface or address of this host"), std::string::npos)
      << nowhere.err;
  const std::string log = scratch / "open.log";
  Background open(
      fmt::format("{} train {} --status 0.0.0.0:0 >{} 2>&1", gantry_program(), configuration(scratch), log));
  std::smatch found;
  std::string printed;
  ASSERT_TRUE(open.wait_until(
      [&] {
        printed = read_file(log);
        return std::regex_search(printed, found,
                                 std::regex("status: http://0\\.0\\.0\\.0:([0-9]+)/ token ([0-9a-f]{32})\n"));
      },
      100))
      << printed;
  const int port = std::stoi(found[1]);
  const auto status_of = [&](const std::string& fields) {
    const RawSocket socket = RawSocket::connect(port);
    socket.send("GET /metrics HTTP/1.1\r\nHost: localhost\r\n" + fields + "\r\n");
    return socket.receive_all().substr(9, 3);
  };
  EXPECT_EQ(status_of(""), "401");
  EXPECT_EQ(status_of("Authorization: Bearer " + found[2].str() + "\r\n"), "200");
}

}  // namespace
}  // namespace gantry::testing
