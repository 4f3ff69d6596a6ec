// The status server with valid and hostile clients, and the pages that it serves about a run.
#include "gantry/trainer/status/status_server.h"

#include <cmath>
#include <gtest/gtest.h>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <thread>
#include <vector>

#include "gantry/core/error.h"
#include "gantry/core/host/addresses.h"
#include "gantry/trainer/status/status_access.h"
#include "gantry/trainer/status/status_pages.h"
#include "raw_socket.h"

namespace gantry::testing {
namespace {

RunNumbers some_numbers() {
  return {.step = 12,
          .steps = 100,
          .loss = 3.25,
          .grad_norm = 0.5,
          .lr = 3e-4,
          .tokens = 4096,
          .step_seconds = 0.5,
          .bubble = 0.125,
          .predicted_bubble = 0.1,
          .peak_memory_bytes = {1000, 2000},
          .total_tokens = 49152,
          .layout = "pp 2, dp 1, tp 1"};
}

StatusServer serve_run(const RunStatus& status) {
  return StatusServer(0, loopback_address(), [&status](const std::string& path) { return status_reply(status, path); });
}

struct Reply {
  int status = 0;
  std::map<std::string, std::string> fields;
  std::string body;
};

Reply parse(const std::string& bytes) {
  Reply reply;
  const std::size_t end = bytes.find("\r\n\r\n");
  if (end == std::string::npos) return reply;
  std::istringstream head(bytes.substr(0, end));
  std::string line;
  std::getline(head, line);
  reply.status = std::stoi(line.substr(9, 3));
  while (std::getline(head, line)) {
    const std::size_t colon = line.find(": ");
    reply.fields[line.substr(0, colon)] = line.substr(colon + 2, line.find('\r') - colon - 2);
  }
  reply.body = bytes.substr(end + 4);
  return reply;
}

Reply ask(const StatusServer& server, const std::string& request) {
  const RawSocket socket = RawSocket::connect(server.port());
  socket.send(request);
  return parse(socket.receive_all());
}
Reply get(const StatusServer& server, const std::string& path) {
  return ask(server, "GET " + path + " HTTP/1.1\r\nHost: localhost\r\n\r\n");
}

TEST(StatusServer, ServesPagesAndRefusesOthers) {
  RunStatus status;
  status.update(some_numbers());
  const StatusServer server = serve_run(status);
  const Reply page = get(server, "/?x=1");
  EXPECT_EQ(page.status, 200);
  EXPECT_EQ(page.fields.at("Content-Type"), "text/html; charset=utf-8");
  EXPECT_EQ(page.fields.at("Content-Length"), std::to_string(page.body.size()));
  EXPECT_NE(page.body.find("Step 12 of 100"), std::string::npos);
  EXPECT_EQ(get(server, "/metrics").fields.at("Content-Type"), kOpenMetricsType);
  EXPECT_EQ(get(server, "/etc/passwd").status, 404);
  EXPECT_EQ(get(server, "/../../etc/passwd").status, 404);
  EXPECT_EQ(get(server, "*").status, 400);
  EXPECT_EQ(server.url(), "http://127.0.0.1:" + std::to_string(server.port()) + "/");
}

TEST(StatusServer, AHeadIsTheGetWithoutItsBody) {
  RunStatus status;
  const StatusServer server = serve_run(status);
  const Reply full = get(server, "/"), head = ask(server, "HEAD / HTTP/1.1\r\nHost: [::1]:80\r\n\r\n");
  EXPECT_EQ(head.status, 200);
  EXPECT_EQ(head.fields, full.fields);
  EXPECT_EQ(head.body, "");
}

TEST(StatusServer, OtherRequestsAreRefused) {
  RunStatus status;
  const StatusServer server = serve_run(status);
  const Reply post = ask(server, "POST / HTTP/1.1\r\nContent-Length: 0\r\n\r\n");
  EXPECT_EQ(post.status, 405);
  EXPECT_EQ(post.fields.at("Allow"), "GET, HEAD");
  EXPECT_EQ(ask(server, "GET / HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello").status, 413);
  EXPECT_EQ(ask(server, "GET / HTTP/1.1\r\nX: " + std::string(20'000, 'x') + "\r\n\r\n").status, 431);
  EXPECT_EQ(ask(server, "no request at all\r\n\r\n").status, 400);
  EXPECT_EQ(ask(server, std::string("\0\x01\x02\xff garbage\r\n\r\n", 16)).status, 400);
  EXPECT_EQ(get(server, "/").status, 200);
}

// A page of another site may point its own host name to this
// server. Its scripts then send requests with that name.
TEST(StatusServer, IsAskedByItsOwnNamesAlone) {
  RunStatus status;
  const StatusServer server = serve_run(status);
  for (const char* host : {"evil.example", "evil.example:80", "localhost.evil.example", "127.0.0.1.evil.example", ""}) {
    const Reply reply = ask(server, std::string("GET / HTTP/1.1\r\nHost: ") + host + "\r\n\r\n");
    EXPECT_EQ(reply.status, 403) << host;
    EXPECT_EQ(reply.body.find("gantry"), std::string::npos) << host;
  }
  EXPECT_EQ(ask(server, "GET /metrics HTTP/1.1\r\n\r\n").status, 403);
  for (const char* host : {"localhost", "LOCALHOST:8080", "127.0.0.1:1", "10.1.2.3", "[::1]:9", "localhost."})
    EXPECT_EQ(ask(server, std::string("GET / HTTP/1.1\r\nHost: ") + host + "\r\n\r\n").status, 200) << host;
}

TEST(StatusServer, ATokenIsAskedOfEveryRequest) {
  const std::string token = "0123456789abcdef";
  const StatusServer server(
      0, loopback_address(), [](const std::string&) { return StatusReply{.body = "the run"}; }, token);
  const auto asked = [&](const std::string& fields) {
    return ask(server, "GET / HTTP/1.1\r\nHost: localhost\r\n" + fields + "\r\n");
  };
  const Reply none = asked("");
  EXPECT_EQ(none.status, 401);
  EXPECT_EQ(none.body.find("the run"), std::string::npos);
  EXPECT_TRUE(none.fields.contains("WWW-Authenticate"));
  for (const char* wrong : {"Bearer 0123456789abcdee", "Bearer 0123456789abcde", "Bearer 0123456789abcdef0", "Bearer",
                            "0123456789abcdef", "Basic 0123456789abcdef", "Basic Z2FudHJ5OjAxMjM="})
    EXPECT_EQ(asked(std::string("Authorization: ") + wrong + "\r\n").status, 401) << wrong;
  EXPECT_EQ(asked("Authorization: Bearer " + token + "\r\n").body, "the run");
  EXPECT_EQ(asked("Authorization: bearer " + token + "\r\n").status, 200);
  // A browser sends this header for the user gantry with the token as the password.
  EXPECT_EQ(asked("Authorization: Basic Z2FudHJ5OjAxMjM0NTY3ODlhYmNkZWY=\r\n").body, "the run");
}

TEST(StatusAccess, IsLoopbackUnlessConfigured) {
  EXPECT_EQ(status_address(""), "127.0.0.1");
  EXPECT_EQ(status_address("localhost"), "127.0.0.1");
  EXPECT_EQ(status_address("lo"), "127.0.0.1");
  EXPECT_EQ(status_address("0.0.0.0"), "0.0.0.0");
  EXPECT_THROW(status_address("ib7"), UsageError);
  EXPECT_THROW(status_address("192.0.2.7"), UsageError);
  EXPECT_TRUE(is_loopback("127.0.0.1") && is_loopback("::1"));
  EXPECT_FALSE(is_loopback("0.0.0.0") || is_loopback("10.0.0.1"));
}

TEST(StatusAccess, BeyondLoopbackThereIsAToken) {
  ::unsetenv("GANTRY_STATUS_TOKEN");
  EXPECT_EQ(status_token("127.0.0.1").text, "");
  const StatusToken made = status_token("0.0.0.0");
  EXPECT_TRUE(made.is_random);
  EXPECT_EQ(made.text.size(), 32u);
  EXPECT_NE(made.text, status_token("0.0.0.0").text);
  ::setenv("GANTRY_STATUS_TOKEN", "short", 1);
  EXPECT_THROW(status_token("127.0.0.1"), UsageError);
  ::setenv("GANTRY_STATUS_TOKEN", "0123456789abcdef", 1);
  EXPECT_EQ(status_token("127.0.0.1").text, "0123456789abcdef");
  EXPECT_FALSE(status_token("0.0.0.0").is_random);
  ::unsetenv("GANTRY_STATUS_TOKEN");
}

TEST(StatusServer, AHandlerThatThrowsIsAnError500) {
  const StatusServer server(0, loopback_address(),
                            [](const std::string&) -> StatusReply { throw InputError("the cause"); });
  const Reply reply = get(server, "/");
  EXPECT_EQ(reply.status, 500);
  EXPECT_EQ(reply.body, "the cause\n");
}

TEST(StatusServer, SlowClientsBlockNobody) {
  RunStatus status;
  const StatusServer server = serve_run(status);
  std::vector<RawSocket> slow;
  for (int i = 0; i < 20; ++i) {
    slow.push_back(RawSocket::connect(server.port()));
    slow.back().send("GET / HT");  // and no more
  }
  EXPECT_EQ(get(server, "/metrics").status, 200);
  for (const RawSocket& socket : slow) socket.send("TP/1.1\r\nX-");
  EXPECT_EQ(get(server, "/").status, 200);
  // They are closed at the deadline, even if they keep sending.
  EXPECT_TRUE(slow.front().closes(20'000));
}

TEST(StatusServer, ConnectionsBeyondTheLimitAreClosedAndLaterOnesServed) {
  RunStatus status;
  const StatusServer server = serve_run(status);
  {
    std::vector<RawSocket> open;
    for (int i = 0; i < 32; ++i) open.push_back(RawSocket::connect(server.port()));
    EXPECT_TRUE(RawSocket::connect(server.port()).closes(3000));
  }
  int answered = 0;
  for (int attempt = 0; attempt < 100 && answered == 0; ++attempt) {
    answered = get(server, "/").status;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  EXPECT_EQ(answered, 200);
}

TEST(StatusServer, EndsWithClientsThatAreStillConnected) {
  auto server = std::make_unique<StatusServer>(0, loopback_address(), [](const std::string&) { return not_found(); });
  const RawSocket client = RawSocket::connect(server->port());
  client.send("GET");
  server.reset();
  EXPECT_TRUE(client.closes());
}

TEST(StatusServer, APortInUseIsOneClearError) {
  const RawListener taken;
  try {
    const StatusServer server(taken.port(), loopback_address(), [](const std::string&) { return not_found(); });
    ADD_FAILURE();
  } catch (const ResourceError& error) {
    EXPECT_EQ(std::string(error.what())
                  .find("status: port " + std::to_string(taken.port()) +
                        " of 127.0.0.1 cannot be opened: Address already in use; expected a free port"),
              0u)
        << error.what();
  }
}

// Checks the rules of OpenMetrics 1.0's text format for families, samples and the end.
void check_open_metrics(const std::string& text) {
  ASSERT_TRUE(text.ends_with("\n# EOF\n")) << text;
  const std::regex comment("# (TYPE|UNIT|HELP) ([a-zA-Z_:][a-zA-Z0-9_:]*) (.+)");
  const std::regex sample(
      "([a-zA-Z_:][a-zA-Z0-9_:]*)(\\{[a-zA-Z_][a-zA-Z0-9_]*=\"[^\"\\\\\\n]*\"(,[a-zA-Z_][a-zA-Z0-9_]*=\"[^\"\\\\\\n]*"
      "\")*\\})?"
      " (NaN|[+-]Inf|[+-]?[0-9.]+(e[+-]?[0-9]+)?)");
  std::string family, type;
  std::set<std::string> families, samples;
  std::istringstream lines(text.substr(0, text.size() - 6));
  std::smatch match;
  for (std::string line; std::getline(lines, line);) {
    if (std::regex_match(line, match, comment)) {
      if (match[1] == "TYPE") {
        family = match[2], type = match[3];
        EXPECT_TRUE(families.insert(family).second) << line;  // families don't interleave
      }
      EXPECT_EQ(match[2], family) << line;
      EXPECT_TRUE(match[1] != "UNIT" || family.ends_with("_" + match[3].str())) << line;
      continue;
    }
    ASSERT_TRUE(std::regex_match(line, match, sample)) << line;
    EXPECT_TRUE(samples.insert(match[1].str() + match[2].str()).second) << line;
    const std::string suffix = type == "counter" ? "_total" : type == "info" ? "_info" : "";
    EXPECT_EQ(match[1], family + suffix) << line;
  }
}

TEST(OpenMetrics, KeepsTheRulesOfItsFormat) {
  RunNumbers numbers = some_numbers();
  check_open_metrics(open_metrics(numbers));
  check_open_metrics(open_metrics({}));
  numbers.loss = NAN, numbers.grad_norm = INFINITY, numbers.lr = 1e-30;
  check_open_metrics(open_metrics(numbers));
}

TEST(OpenMetrics, HasTheRunsNumbers) {
  const std::string text = open_metrics(some_numbers());
  for (const char* line :
       {"\ngantry_step 12\n", "\ngantry_steps 100\n", "\ngantry_loss 3.25\n", "\ngantry_gradient_norm 0.5\n",
        "\ngantry_learning_rate 0.0003\n", "\ngantry_tokens_per_second 8192\n", "\ngantry_step_seconds 0.5\n",
        "\ngantry_bubble_ratio 0.125\n", "\ngantry_tokens_total 49152\n",
        "\ngantry_peak_memory_bytes{rank=\"1\"} 2000\n"})
    EXPECT_NE(text.find(line), std::string::npos) << line << text;
  EXPECT_EQ(open_metrics({}).find("gantry_loss"), std::string::npos);
}

TEST(Addresses, AnInterfaceIsANameOrAnAddress) {
  EXPECT_EQ(interface_address("lo"), "127.0.0.1");
  EXPECT_EQ(interface_address("127.0.0.1"), "127.0.0.1");
  EXPECT_EQ(control_address("", /*one_host=*/true), "127.0.0.1");
  EXPECT_EQ(control_address("lo", /*one_host=*/false), "127.0.0.1");
  try {
    interface_address("ib7");
    ADD_FAILURE();
  } catch (const ConfigError& error) {
    EXPECT_NE(std::string(error.what()).find("'ib7' is not a network interface or address of this host"),
              std::string::npos);
    EXPECT_NE(std::string(error.what()).find("lo (127.0.0.1)"), std::string::npos) << error.what();
  }
}

TEST(Addresses, TheLaunchersNetworksCount) {
  EXPECT_EQ(address_among("lo"), "127.0.0.1");
  EXPECT_EQ(address_among("ib7,lo"), "127.0.0.1");
  EXPECT_EQ(address_among("10.255.0.0/30,127.0.0.0/8"), "127.0.0.1");
  EXPECT_EQ(address_among("127.0.0.1/32"), "127.0.0.1");
  for (const char* none : {"", "ib7", "127.0.0.0/", "127.0.0.0/33", "127.0.0.0/8x", "/8", "10.255.255.252/32"})
    EXPECT_EQ(address_among(none), "") << none;
  EXPECT_EQ(control_address("", /*one_host=*/false, "ib7,lo"), "127.0.0.1");
}

TEST(Addresses, NoNetworkIsTakenThatNobodyNamed) {
  for (const char* networks : {"", "ib7"}) try {
      ADD_FAILURE() << control_address("", /*one_host=*/false, networks);
    } catch (const ConfigError& error) {
      const std::string said = error.what();
      EXPECT_EQ(said.find("comm.interface: the job has several hosts, but no network interface is set"), 0u) << said;
      EXPECT_NE(said.find("--interface NAME"), std::string::npos) << said;
      EXPECT_EQ(said.find("lo (127.0.0.1)"), std::string::npos) << said;
    } catch (const ResourceError& error) {  // a machine without a network
      EXPECT_NE(std::string(error.what()).find("no address but loopback"), std::string::npos) << error.what();
    }
}

}  // namespace
}  // namespace gantry::testing
