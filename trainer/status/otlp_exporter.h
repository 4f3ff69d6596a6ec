// Sends spans to an OpenTelemetry collector over HTTP, from a thread of its own.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "gantry/core/config/otlp_endpoint.h"
#include "gantry/trainer/status/otlp_span.h"

namespace gantry {

// Thread-safe. A collector that is away, slow or refuses spans costs the caller nothing. Requests end after 10 s. A
// failed request is repeated after a pause of 1 to 30 s, if a repetition can succeed. Spans are dropped while more than
// kMostPending of them wait.
class OtlpExporter {
 public:
  static constexpr std::size_t kMostPending = 50'000;

  // Connects when the first spans are added.
  OtlpExporter(OtlpEndpoint endpoint, OtlpSource source);
  // Drops the spans that still wait.
  ~OtlpExporter();

  // Never blocks for longer than the copy takes.
  void add(std::vector<OtlpSpan> spans);
  // Sends the spans that wait, for at most `seconds` and only until a request fails. Drops the others. No spans are
  // added after this call.
  void finish(double seconds);

  std::int64_t sent() const;     // number of spans that the collector has accepted
  std::int64_t dropped() const;  // number of spans that it has not received, or has rejected
  std::string failure() const;   // the reason of the first failure; empty if all requests succeeded

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace gantry
