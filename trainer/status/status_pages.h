// A run's numbers as a page for monitoring systems and as a page for browsers.
#pragma once

#include <string>

#include "gantry/trainer/status/run_status.h"
#include "gantry/trainer/status/status_server.h"

namespace gantry {

// Returns OpenMetrics 1.0 text. Names begin with gantry_. Times are in seconds, sizes in bytes, ratios from 0
// to 1. The numbers of a step are omitted before the first step.
std::string open_metrics(const RunNumbers& numbers);
inline constexpr const char* kOpenMetricsType = "application/openmetrics-text; version=1.0.0; charset=utf-8";

// Returns an HTML page without scripts or further files, which reloads itself every two seconds.
std::string status_page(const RunNumbers& numbers);

// Returns the reply to "/" or "/metrics"; 404 for other paths.
StatusReply status_reply(const RunStatus& status, const std::string& path);

}  // namespace gantry
