// Exit code and stderr of ranks that are expected to fail.
#pragma once

#include <gtest/gtest.h>
#include <string>

#include "ranks.h"

namespace gantry::testing {

struct RanksOutcome {
  int code = 0;
  std::string text;  // on stderr
};

inline RanksOutcome outcome_of(const Config& config, const std::function<void(World&)>& body) {
  ::testing::internal::CaptureStderr();
  RanksOutcome outcome;
  outcome.code = start_ranks()(config, body);
  outcome.text = ::testing::internal::GetCapturedStderr();
  return outcome;
}

// Expects this exit code, and `words` in the output.
inline void expect_refused(const RanksOutcome& outcome, int code, const std::string& words) {
  EXPECT_EQ(outcome.code, code) << outcome.text;
  EXPECT_NE(outcome.text.find(words), std::string::npos) << outcome.text;
}

}  // namespace gantry::testing
