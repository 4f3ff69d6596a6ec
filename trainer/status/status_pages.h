// What a run's numbers look like to a monitoring system and to a browser.
#pragma once

#include <string>

#include "gantry/trainer/status/run_status.h"
#include "gantry/trainer/status/status_server.h"

namespace gantry {

// The text of OpenMetrics 1.0: names begin with gantry_, times are in seconds, sizes in bytes, shares of 1. Numbers of
// a step are left out before the first step.
std::string open_metrics(const RunNumbers& numbers);
inline constexpr const char* kOpenMetricsType = "application/openmetrics-text; version=1.0.0; charset=utf-8";

// A page without scripts or files of its own, which renews itself every two seconds.
std::string status_page(const RunNumbers& numbers);

// The reply to "/" and "/metrics"; 404 to others.
StatusReply status_reply(const RunStatus& status, const std::string& path);

}  // namespace gantry
