#include "gantry/data/line_index.h"

#include <algorithm>
#include <atomic>
#include <fmt/format.h>
#include <thread>

namespace gantry {
namespace {

// Lines that are encoded side by side before their outcomes are taken in order.
constexpr std::size_t kLinesAtOnce = 4096;
// Fewer are not worth a thread.
constexpr std::size_t kLinesOfThread = 64;

}  // namespace

LineIndex::LineIndex(const LinePaths& paths, const LineRules& rules) : rules_(rules), encoder_(rules) {
  for (const auto& path : paths) files_.emplace_back(path);
  Place place;
  std::vector<FoundLine> lines;
  FoundLine found;
  for (bool more = true; more;) {
    lines.clear();
    while (lines.size() < kLinesAtOnce && (more = next_line(place, found))) lines.push_back(found);
    const auto outcomes = outcomes_of(lines);
    for (std::size_t i = 0; i < lines.size(); ++i) take(lines[i].place, outcomes[i]);
  }
}

bool LineIndex::next_line(Place& place, FoundLine& found) const {
  for (; place.file < files_.size(); place = {place.file + 1, 0, 1}) {
    const std::string_view text = files_[place.file].text();
    while (place.offset < text.size()) {
      const auto end = std::min(text.find('\n', place.offset), text.size());
      found = {place, text.substr(place.offset, end - place.offset)};
      place.offset = end + 1;
      ++place.line;
      if (found.text.find_first_not_of(" \t\r") != std::string_view::npos) return true;
    }
  }
  return false;
}

std::string LineIndex::name_of(const Place& place) const {
  return fmt::format("{}:{}", files_[place.file].path().string(), place.line);
}

LineIndex::Outcome LineIndex::outcome_of(const FoundLine& line) const try {
  const LineTokens made = encoder_.encode(std::string(line.text), name_of(line.place));
  return {.tokens = made.places() + 1,
          .trained = made.trained_tokens(),
          .was_cut = made.was_cut,
          .is_chat = made.is_chat,
          .fault = "",
          .failure = nullptr};
} catch (const BadLine& error) {
  return {.fault = error.what(), .failure = rules_.bad_lines == "stop" ? std::current_exception() : nullptr};
} catch (...) {
  return {.fault = "", .failure = std::current_exception()};
}

std::vector<LineIndex::Outcome> LineIndex::outcomes_of(const std::vector<FoundLine>& lines) const {
  std::vector<Outcome> outcomes(lines.size());
  std::atomic<std::size_t> next{0};
  const auto work = [&] {
    for (std::size_t i; (i = next++) < lines.size();) outcomes[i] = outcome_of(lines[i]);
  };
  std::vector<std::jthread> threads;
  const std::size_t cores = std::max(1u, std::thread::hardware_concurrency());
  for (std::size_t i = 1; i < std::min(cores, lines.size() / kLinesOfThread); ++i) threads.emplace_back(work);
  work();
  threads.clear();
  return outcomes;
}

void LineIndex::take(const Place& place, const Outcome& outcome) {
  if (outcome.failure) std::rethrow_exception(outcome.failure);
  if (!outcome.fault.empty()) {
    if (skipped_++ == 0) first_skipped_ = outcome.fault;
    return;
  }
  ++lines_;
  tokens_ += outcome.tokens;
  trained_ += outcome.trained;
  longest_ = std::max(longest_, outcome.tokens);
  cut_ += outcome.was_cut ? 1 : 0;
  chats_ += outcome.is_chat ? 1 : 0;
  const std::int64_t places = outcome.tokens - 1;
  if (starts_.empty() || places > left_ || is_pairs()) {
    starts_.push_back({place, 0});
    left_ = rules_.sequence_length;
  }
  ++starts_.back().documents;
  left_ -= places;
}

std::string LineIndex::summary() const {
  const std::int64_t filled = is_pairs() ? tokens_ : tokens_ - lines_,
                     room = samples() * (rules_.sequence_length + rules_.target_length);
  std::string text = fmt::format(
      "{} lines with {} tokens ({:.1f} per line, at most {}), {} of them in the loss; {} samples, {:.1f}% full", lines_,
      tokens_, static_cast<double>(tokens_) / static_cast<double>(lines_), longest_, trained_, samples(),
      100 * static_cast<double>(filled) / static_cast<double>(room));
  if (cut_ > 0 && is_pairs())
    text += fmt::format("; {} truncated to {} and {} tokens", cut_, rules_.sequence_length, rules_.target_length);
  else if (cut_ > 0)
    text += fmt::format("; {} truncated to {} tokens", cut_, rules_.sequence_length + 1);
  if (skipped_ > 0) text += fmt::format("; {} skipped, the first: {}", skipped_, first_skipped_);
  if (chats_ > 0) {
    const std::string split = encoder_.split_marks();
    text += fmt::format("; {} chats with the template {}{}", chats_, encoder_.chat_template(),
                        split.empty() ? "" : ", of which " + split);
  }
  return text;
}

std::vector<LineTokens> LineIndex::lines_of(std::int64_t sample, bool for_display) const {
  const SampleStart& start = starts_[static_cast<std::size_t>(sample)];
  std::vector<LineTokens> lines;
  Place place = start.place;
  FoundLine found;
  while (static_cast<std::int64_t>(lines.size()) < start.documents) {
    if (!next_line(place, found))
      throw InputError({files_[start.place.file].path().string(), "the file has fewer lines than when it was opened",
                        "files that do not change during a run", ""});
    try {
      lines.push_back(encoder_.encode(std::string(found.text), name_of(found.place), for_display));
    } catch (const BadLine&) {  // as when it was opened
      if (rules_.bad_lines == "stop") throw;
    }
  }
  return lines;
}

}  // namespace gantry
