#include "gantry/data/tokenizers/split_step.h"

#include <algorithm>
#include <vector>

#include "gantry/core/base/utf8.h"

namespace gantry {
namespace {

struct Part {
  std::string_view text;
  bool matches;
};

std::string_view joined(std::string_view first, std::string_view second) {
  return {first.data(), static_cast<std::size_t>(second.data() + second.size() - first.data())};
}

std::vector<std::string_view> merge_neighbours(const std::vector<Part>& parts) {
  std::vector<std::string_view> pieces;
  bool last = false;
  for (const auto& [text, matches] : parts) {
    if (matches == last && !pieces.empty())
      pieces.back() = joined(pieces.back(), text);
    else
      pieces.push_back(text);
    last = matches;
  }
  return pieces;
}

// The first delimiter of a run is joined to the piece before it, the others remain by themselves.
std::vector<std::string_view> merge_with_previous(const std::vector<Part>& parts) {
  std::vector<std::string_view> pieces;
  bool last = false;
  for (const auto& [text, matches] : parts) {
    if (matches && !last && !pieces.empty())
      pieces.back() = joined(pieces.back(), text);
    else
      pieces.push_back(text);
    last = matches;
  }
  return pieces;
}

std::vector<std::string_view> merge_with_next(const std::vector<Part>& parts) {
  std::vector<std::string_view> pieces;  // from the last to the first
  bool last = false;
  for (auto part = parts.rbegin(); part != parts.rend(); ++part) {
    if (part->matches && !last && !pieces.empty())
      pieces.back() = joined(part->text, pieces.back());
    else
      pieces.push_back(part->text);
    last = part->matches;
  }
  std::reverse(pieces.begin(), pieces.end());
  return pieces;
}

}  // namespace

FindParts parts_by_text(std::string delimiter) {
  return [delimiter = std::move(delimiter)](std::string_view text, const VisitPart& visit) {
    std::size_t done = 0;
    for (std::size_t at = text.find(delimiter); at != std::string_view::npos; at = text.find(delimiter, done)) {
      if (at > done) visit(text.substr(done, at - done), false);
      visit(text.substr(at, delimiter.size()), true);
      done = at + delimiter.size();
    }
    if (done < text.size()) visit(text.substr(done), false);
  };
}

FindParts parts_by_class(bool (*is_delimiter)(char32_t character)) {
  return [is_delimiter](std::string_view text, const VisitPart& visit) {
    std::size_t done = 0;
    for (std::size_t at = 0; at < text.size();) {
      const auto [length, character] = first_utf8(text.substr(at));
      if (is_delimiter(*character)) {
        if (at > done) visit(text.substr(done, at - done), false);
        visit(text.substr(at, length), true);
        done = at + length;
      }
      at += length;
    }
    if (done < text.size()) visit(text.substr(done), false);
  };
}

void SplitStep::split(std::string_view text, bool at_start, const TakePiece& take) const {
  if (behavior_ != SplitBehavior::kIsolated && behavior_ != SplitBehavior::kRemoved)
    return split_merged(text, at_start, take);
  const bool keeps_all = behavior_ == SplitBehavior::kIsolated;
  parts_(text, [&](std::string_view part, bool matches) {
    if (!part.empty() && (keeps_all || matches == inverted_)) take(part, at_start && part.data() == text.data());
  });
}

void SplitStep::split_merged(std::string_view text, bool at_start, const TakePiece& take) const {
  std::vector<Part> parts;
  parts_(text, [&](std::string_view part, bool matches) { parts.push_back({part, matches != inverted_}); });
  const auto pieces = behavior_ == SplitBehavior::kContiguous           ? merge_neighbours(parts)
                      : behavior_ == SplitBehavior::kMergedWithPrevious ? merge_with_previous(parts)
                                                                        : merge_with_next(parts);
  for (const auto& piece : pieces)
    if (!piece.empty()) take(piece, at_start && piece.data() == text.data());
}

}  // namespace gantry
