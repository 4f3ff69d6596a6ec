// The exporter of spans: the JSON of OTLP, and collectors that answer, refuse, close, stay silent or are away.
#include <atomic>
#include <cmath>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <limits>

#include "gantry/core/base/steady_seconds.h"
#include "gantry/core/config/otlp_endpoint.h"
#include "gantry/trainer/status/otlp_exporter.h"
#include "tiny_collector.h"

namespace gantry::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;
using SpanJson = nlohmann::json;

std::vector<OtlpSpan> some_spans(std::size_t count) {
  std::vector<OtlpSpan> spans;
  for (std::size_t i = 1; i <= count; ++i)
    spans.push_back({.id = i, .parent = 7, .name = "step", .start = 1, .end = 2});
  return spans;
}

OtlpEndpoint endpoint_of(const TinyCollector& collector) { return *parse_otlp_endpoint(collector.url()); }

TEST(OtlpEndpoint, IsReadFromAnAddress) {
  const auto text = [](const std::string& url) {
    const auto endpoint = parse_otlp_endpoint(url);
    return endpoint ? endpoint->host + " " + std::to_string(endpoint->port) + " " + endpoint->path : "";
  };
  EXPECT_EQ(text("http://127.0.0.1:4318"), "127.0.0.1 4318 /v1/traces");
  EXPECT_EQ(text("http://collector:4318/"), "collector 4318 /v1/traces");
  EXPECT_EQ(text("http://collector/some/path"), "collector 80 /some/path/v1/traces");
  EXPECT_EQ(text("http://[::1]:4318"), "::1 4318 /v1/traces");
  EXPECT_EQ(text("http://[::1]"), "::1 80 /v1/traces");
  for (const char* wrong : {"", "http://", "https://a:1", "grpc://a:1", "http://a:", "http://a:0", "http://a:65536",
                            "http://a:1x", "http://:1", "http://[::1", "http://[::1]x", "http://[]:1", "http://u@a:1",
                            "http://a:1/?b", "http://a b", "http://a:1/\r\nx", "127.0.0.1:4318", "http://a:1:2"})
    EXPECT_EQ(text(wrong), "") << wrong;
}

TEST(OtlpSpan, IsJsonOfTheProtocol) {
  const double infinity = std::numeric_limits<double>::infinity();
  const OtlpSource source{.trace_high = 0xab, .trace_low = ~0ull, .resource = {{"service.name", "gantry"}}};
  const SpanJson request = SpanJson::parse(otlp_request(
      source,
      {{.id = 0x1f, .parent = 0, .name = "run", .start = 1'795'970'567'000'000'001, .end = 1'795'970'568'000'000'000},
       {.id = 2,
        .parent = 0x1f,
        .name = "step",
        .start = 3,
        .end = 4,
        .attributes = {{"a", std::int64_t{5}},
                       {"b", 0.25},
                       {"c", "x \"\xff"},
                       {"d", infinity},
                       {"e", -infinity},
                       {"f", std::nan("")}},
        .error = "it failed"}}));
  const SpanJson resource = request.at("resourceSpans").at(0);
  EXPECT_EQ(resource.at("resource").at("attributes"),
            SpanJson::parse(R"([{"key": "service.name", "value": {"stringValue": "gantry"}}])"));
  EXPECT_EQ(resource.at("scopeSpans").at(0).at("scope").at("name"), "gantry");
  const SpanJson spans = resource.at("scopeSpans").at(0).at("spans");
  EXPECT_EQ(spans.at(0),
            SpanJson::parse(R"({"traceId": "00000000000000abffffffffffffffff", "spanId": "000000000000001f",
      "parentSpanId": "", "name": "run", "kind": 1, "startTimeUnixNano": "1795970567000000001",
      "endTimeUnixNano": "1795970568000000000", "attributes": [], "status": {}})"));
  EXPECT_EQ(spans.at(1).at("parentSpanId"), "000000000000001f");
  EXPECT_EQ(spans.at(1).at("status"), SpanJson::parse(R"({"code": 2, "message": "it failed"})"));
  EXPECT_EQ(spans.at(1).at("attributes"), SpanJson::parse(R"([
      {"key": "a", "value": {"intValue": "5"}}, {"key": "b", "value": {"doubleValue": 0.25}},
      {"key": "c", "value": {"stringValue": "x \"\ufffd"}}, {"key": "d", "value": {"doubleValue": "Infinity"}},
      {"key": "e", "value": {"doubleValue": "-Infinity"}}, {"key": "f", "value": {"doubleValue": "NaN"}}])"));
}

TEST(OtlpExporter, SendsAllSpansInBatches) {
  TinyCollector collector;
  OtlpExporter exporter(endpoint_of(collector), {.resource = {{"service.name", "gantry"}}});
  exporter.add(some_spans(2500));
  collector.wait_for(1);  // before the end
  exporter.finish(60);
  EXPECT_EQ(exporter.sent(), 2500);
  EXPECT_EQ(exporter.dropped(), 0);
  EXPECT_EQ(exporter.failure(), "");
  const auto spans = collector.spans();
  ASSERT_EQ(spans.size(), 2500u);
  for (std::size_t i = 0; i < spans.size(); ++i) EXPECT_EQ(spans[i].at("spanId"), fmt::format("{:016x}", i + 1));
  EXPECT_THAT(collector.requests()[0].head, StartsWith("POST /v1/traces HTTP/1.1\r\n"));
  EXPECT_THAT(collector.requests()[0].head, HasSubstr("\r\nContent-Type: application/json\r\n"));
  EXPECT_THAT(collector.requests()[0].head, HasSubstr(fmt::format("\r\nHost: 127.0.0.1:{}\r\n", collector.port())));
}

TEST(OtlpExporter, RepeatsOnlyWhatCanSucceed) {
  TinyCollector collector([](int request) {
    return request == 0 ? std::pair<int, std::string>(503, "") : std::pair<int, std::string>(400, "no");
  });
  OtlpExporter exporter(endpoint_of(collector), {});
  exporter.add(some_spans(1500));
  collector.wait_for(2);
  exporter.finish(60);
  EXPECT_EQ(collector.requests()[0].body, collector.requests()[1].body);
  EXPECT_EQ(exporter.sent(), 0);
  EXPECT_EQ(exporter.dropped(), 1500);
  EXPECT_EQ(exporter.failure(), "the collector replied with status 503");
}

TEST(OtlpExporter, CountsSpansThatTheCollectorRejects) {
  TinyCollector collector(
      [](int) { return std::pair<int, std::string>(200, R"({"partialSuccess": {"rejectedSpans": "3"}})"); });
  OtlpExporter exporter(endpoint_of(collector), {});
  exporter.add(some_spans(10));
  exporter.finish(60);
  EXPECT_EQ(exporter.sent(), 7);
  EXPECT_EQ(exporter.dropped(), 3);
  EXPECT_EQ(exporter.failure(), "the collector rejected 3 spans");
}

// A connection that the collector has closed after a reply is opened again.
TEST(OtlpExporter, ConnectsAgain) {
  std::atomic<int> requests = 0;
  TinyCollector collector([&](int request) {
    ++requests;
    return std::pair<int, std::string>(request == 1 ? 0 : 200, "{}");
  });
  OtlpExporter exporter(endpoint_of(collector), {});
  exporter.add(some_spans(1000));
  collector.wait_for(1);
  exporter.add(some_spans(1000));
  exporter.finish(60);
  EXPECT_EQ(requests, 3);
  EXPECT_EQ(exporter.sent(), 2000);
  EXPECT_EQ(exporter.failure(), "");
}

TEST(OtlpExporter, ASilentCollectorCostsNoTimeAndNoMemory) {
  TinyCollector collector([](int) { return std::pair<int, std::string>(-1, ""); });
  OtlpExporter exporter(endpoint_of(collector), {});
  exporter.add(some_spans(1000));
  collector.wait_for(1);
  for (int i = 0; i < 3; ++i) exporter.add(some_spans(OtlpExporter::kMostPending / 2));
  EXPECT_GE(exporter.dropped(), static_cast<std::int64_t>(OtlpExporter::kMostPending / 2));
  exporter.finish(0.05);
  EXPECT_EQ(exporter.sent(), 0);
  EXPECT_EQ(exporter.dropped(), 1000 + static_cast<std::int64_t>(3 * (OtlpExporter::kMostPending / 2)));
  EXPECT_EQ(collector.requests().size(), 1u);
}

TEST(OtlpExporter, ACollectorThatIsAwayIsAFailure) {
  const TinyCollector closed(TinyCollector::kListensNot);
  OtlpExporter exporter(endpoint_of(closed), {});
  exporter.add(some_spans(10));
  exporter.finish(60);
  EXPECT_EQ(exporter.dropped(), 10);
  EXPECT_THAT(exporter.failure(), HasSubstr("refused"));
  OtlpExporter unknown({.host = "no-such-host.invalid", .port = 4318, .path = "/v1/traces"}, {});
  unknown.add(some_spans(10));
  unknown.finish(0.05);
  EXPECT_EQ(unknown.dropped(), 10);
  const OtlpExporter unused(endpoint_of(closed), {});
}

}  // namespace
}  // namespace gantry::testing
