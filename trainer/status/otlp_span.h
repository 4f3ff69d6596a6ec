// Spans of OpenTelemetry, and the body of a request that exports them (OTLP/HTTP with JSON).
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace gantry {

using OtlpValue = std::variant<std::int64_t, double, std::string>;
using OtlpAttributes = std::vector<std::pair<std::string, OtlpValue>>;

struct OtlpSpan {
  std::uint64_t id = 0, parent = 0;  // parent 0: the span is the root of the trace
  const char* name = "";             // static
  std::int64_t start = 0, end = 0;   // nanoseconds since 1970
  OtlpAttributes attributes = {};
  std::string error = {};  // empty: the operation succeeded
};

// The trace of a rank's spans, and their resource.
struct OtlpSource {
  std::uint64_t trace_high = 0, trace_low = 0;  // the two halves of the trace's number
  OtlpAttributes resource = {};
};

// The JSON of an ExportTraceServiceRequest.
std::string otlp_request(const OtlpSource& source, const std::vector<OtlpSpan>& spans);

}  // namespace gantry
