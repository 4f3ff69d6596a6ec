#include "gantry/generation/time_stamps.h"

#include <algorithm>
#include <fmt/format.h>
#include <limits>

#include "gantry/core/error.h"
#include "gantry/tensors/libtorch.h"

namespace gantry::generation {
namespace {

constexpr double kSecondsOfATime = 0.02;  // an encoder position: two steps of 160 samples at 16 kHz

void forbid_range(torch::Tensor& row, std::int64_t begin, std::int64_t end) {
  end = std::min(end, row.size(0));
  if (begin < end) row.narrow(0, begin, end - begin).fill_(-std::numeric_limits<double>::infinity());
}

// Forbids the tokens that the text before rules out: those that break a pair of times, and decreasing times.
void keep_order(torch::Tensor& row, const TimeStamps& stamps, const TokenIds& text) {
  const auto is_time = [&](std::int64_t token) { return token >= stamps.first; };
  const bool ends_with_time = !text.empty() && is_time(text.back());
  const bool is_pair = text.size() < 2 || is_time(text[text.size() - 2]);
  if (ends_with_time && is_pair) forbid_range(row, stamps.first, row.size(0));
  if (ends_with_time && !is_pair) forbid_range(row, 0, stamps.text_end);
  const auto last = std::find_if(text.rbegin(), text.rend(), is_time);
  if (last != text.rend()) forbid_range(row, stamps.first, *last + (ends_with_time && !is_pair ? 0 : 1));
  if (!text.empty()) return;
  forbid_range(row, 0, stamps.first);
  if (stamps.most_initial) forbid_range(row, stamps.first + *stamps.most_initial + 1, row.size(0));
}

// Forbids all words in rows in which the times together are likelier than the likeliest word. Computed on the
// device, without a device-to-host read.
void keep_likelier_times(torch::Tensor& scores, const TimeStamps& stamps) {
  const torch::Tensor shares = scores.log_softmax(1),
                      times = shares.narrow(1, stamps.first, scores.size(1) - stamps.first);
  const torch::Tensor all = times.logsumexp(1, true);
  torch::Tensor words = scores.narrow(1, 0, stamps.first);
  words.masked_fill_(all > shares.narrow(1, 0, stamps.first).amax(1, true), -std::numeric_limits<double>::infinity());
}

}  // namespace

void keep_time_stamps(torch::Tensor& scores, const TimeStamps& stamps, const std::vector<TokenIds>& texts) {
  if (stamps.first < 1 || stamps.first >= scores.size(1))
    throw InputError({"time_stamps", fmt::format("the first one is token {} of {}", stamps.first, scores.size(1)),
                      "a token of the vocabulary", "check no_timestamps_token_id in generation_config.json"});
  for (std::int64_t i = 0; i < scores.size(0); ++i) {
    torch::Tensor row = scores[i];
    forbid_range(row, stamps.first - 1, stamps.first);
    keep_order(row, stamps, texts[static_cast<std::size_t>(i)]);
  }
  keep_likelier_times(scores, stamps);
}

std::vector<TimedText> timed_texts(const TokenIds& tokens, const TimeStamps& stamps) {
  std::vector<TimedText> all;
  TimedText open;
  const auto close = [&](std::optional<double> end) {
    if (open.tokens.empty()) return;
    open.end = end;
    all.push_back(std::move(open));
  };
  for (const std::int64_t token : tokens) {
    if (token >= stamps.first) {
      const double time = static_cast<double>(token - stamps.first) * kSecondsOfATime;
      close(time);
      open = {.begin = time};
    } else if (token < stamps.text_end) {
      open.tokens.push_back(token);
    }
  }
  close(std::nullopt);
  return all;
}

}  // namespace gantry::generation
