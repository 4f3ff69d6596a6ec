#include "gantry/trainer/status/otlp_span.h"

#include <cmath>
#include <fmt/format.h>
#include <iterator>
#include <nlohmann/json.hpp>

#include "gantry/core/version.h"

namespace gantry {
namespace {

constexpr int kInternalKind = 1, kErrorStatus = 2;  // numbers of OTLP's enumerations

std::string json_text(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

// Protocol buffers' JSON has 64-bit integers as strings, and names for numbers that are not finite.
std::string json_value(const OtlpValue& value) {
  if (const auto* integer = std::get_if<std::int64_t>(&value)) return fmt::format(R"({{"intValue":"{}"}})", *integer);
  if (const auto* text = std::get_if<std::string>(&value))
    return fmt::format(R"({{"stringValue":{}}})", json_text(*text));
  const double number = std::get<double>(value);
  if (std::isnan(number)) return R"({"doubleValue":"NaN"})";
  if (std::isinf(number)) return fmt::format(R"({{"doubleValue":"{}Infinity"}})", number < 0 ? "-" : "");
  return fmt::format(R"({{"doubleValue":{}}})", number);
}

std::string json_attributes(const OtlpAttributes& attributes) {
  std::string list;
  for (const auto& [key, value] : attributes)
    list += fmt::format(R"({}{{"key":{},"value":{}}})", list.empty() ? "" : ",", json_text(key), json_value(value));
  return "[" + list + "]";
}

}  // namespace

std::string otlp_request(const OtlpSource& source, const std::vector<OtlpSpan>& spans) {
  const std::string trace = fmt::format("{:016x}{:016x}", source.trace_high, source.trace_low);
  std::string list;
  for (const OtlpSpan& span : spans) {
    fmt::format_to(
        std::back_inserter(list),
        R"({}{{"traceId":"{}","spanId":"{:016x}","parentSpanId":"{}","name":"{}","kind":{},)"
        R"("startTimeUnixNano":"{}","endTimeUnixNano":"{}","attributes":{},"status":{}}})",
        list.empty() ? "" : ",", trace, span.id, span.parent == 0 ? "" : fmt::format("{:016x}", span.parent), span.name,
        kInternalKind, span.start, span.end, json_attributes(span.attributes),
        span.error.empty() ? "{}" : fmt::format(R"({{"code":{},"message":{}}})", kErrorStatus, json_text(span.error)));
  }
  return fmt::format(R"({{"resourceSpans":[{{"resource":{{"attributes":{}}},"scopeSpans":[{{"scope":{{"name":"gantry",)"
                     R"("version":"{}"}},"spans":[{}]}}]}}]}})",
                     json_attributes(source.resource), GANTRY_VERSION, list);
}

}  // namespace gantry
