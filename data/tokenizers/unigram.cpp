#include "gantry/data/tokenizers/unigram.h"

#include <algorithm>
#include <fmt/format.h>
#include <limits>

#include "gantry/core/base/utf8.h"
#include "gantry/core/error.h"
#include "gantry/data/tokenizers/pair_model.h"

namespace gantry {
namespace {

constexpr double kUnknownPenalty = 10;  // distance to the lowest score, as in SentencePiece

class Unigram final : public PieceModel {
 public:
  Unigram(const std::vector<std::string>& tokens, const std::vector<double>& scores, const UnigramOptions& options)
      : options_(options) {
    double lowest = std::numeric_limits<double>::infinity();
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      lowest = std::min(lowest, scores[i]);
      if (!tokens[i].empty()) entries_.push_back({tokens[i], static_cast<std::int64_t>(i), scores[i]});
      ids_.insert_or_assign(tokens[i], static_cast<std::int32_t>(i));
    }
    bytes_ = byte_tokens(ids_);
    unknown_score_ = lowest - kUnknownPenalty;
    // Among equal tokens, the last one of the list is sorted first, and is the one that is kept.
    std::ranges::stable_sort(
        entries_, [](const Entry& a, const Entry& b) { return a.token != b.token ? a.token < b.token : a.id > b.id; });
    const auto is_same = [](const Entry& a, const Entry& b) { return a.token == b.token; };
    entries_.erase(std::unique(entries_.begin(), entries_.end(), is_same), entries_.end());
  }

  std::string kind() const override { return "Unigram"; }

  void append(std::string_view piece, TokenIds& ids) const override {
    const std::vector<Place> best = best_ways(piece);
    std::vector<std::pair<std::size_t, std::size_t>> spans;  // from the end to the start
    for (std::size_t end = piece.size(); end > 0; end = best[end].begin) {
      const bool goes_on = !spans.empty() && is_unknown(best[end].id) && is_unknown(best[spans.back().second].id);
      if (goes_on)
        spans.back().first = best[end].begin;
      else
        spans.emplace_back(best[end].begin, end);
    }
    for (auto span = spans.rbegin(); span != spans.rend(); ++span)
      append_token(piece.substr(span->first, span->second - span->first), best[span->second].id, ids);
  }

 private:
  struct Entry {
    std::string token;
    std::int64_t id;
    double score;
  };
  // The best segmentation up to a position. Its last token begins at `begin`.
  struct Place {
    static constexpr std::size_t kNone = ~std::size_t{0};
    std::size_t begin = kNone;
    std::int64_t id = 0;
    double score = 0;
  };

  bool is_unknown(std::int64_t id) const { return options_.unknown == id; }

  std::vector<Place> best_ways(std::string_view piece) const {
    std::vector<Place> best(piece.size() + 1);
    for (std::size_t begin = 0; begin < piece.size(); begin += utf8_length(piece[begin])) {
      const std::size_t next = begin + utf8_length(piece[begin]);
      bool has_character = false;
      const auto consider = [&](std::size_t end, std::int64_t id, double score) {
        const double sum = score + best[begin].score;
        if (best[end].begin == Place::kNone || sum > best[end].score) best[end] = {begin, id, sum};
      };
      visit_prefixes(piece.substr(begin), [&](const Entry& entry) {
        consider(begin + entry.token.size(), entry.id, entry.score);
        has_character = has_character || begin + entry.token.size() == next;
      });
      if (has_character) continue;
      if (!options_.unknown)
        throw InputError({"tokenizer",
                          fmt::format("the vocabulary has no token for '{}', which is in the text",
                                      piece.substr(begin, next - begin)),
                          "a vocabulary with unk_id", ""});
      consider(next, *options_.unknown, unknown_score_);
    }
    return best;
  }

  // Visits all tokens that are prefixes of `text`, the shortest first. Each byte narrows the range of tokens
  // that begin with the bytes so far.
  template <class Take>
  void visit_prefixes(std::string_view text, const Take& take) const {
    auto first = entries_.begin(), last = entries_.end();
    for (std::size_t at = 0; at < text.size() && first != last; ++at) {
      const auto byte_at = [at](const Entry& entry) { return static_cast<unsigned char>(entry.token[at]); };
      const auto byte = static_cast<unsigned char>(text[at]);
      first =
          std::lower_bound(first, last, byte, [&](const Entry& entry, unsigned char b) { return byte_at(entry) < b; });
      last =
          std::upper_bound(first, last, byte, [&](unsigned char b, const Entry& entry) { return b < byte_at(entry); });
      if (first != last && first->token.size() == at + 1) take(*first++);
    }
  }

  // A run of unknown characters becomes one token, or its byte tokens if the vocabulary has all of them.
  void append_token(std::string_view text, std::int64_t id, TokenIds& ids) const {
    if (!is_unknown(id)) return ids.push_back(id);
    if (const auto found = ids_.find(text); found != ids_.end()) return ids.push_back(found->second);
    const auto token = [&](char c) { return bytes_[static_cast<unsigned char>(c)]; };
    if (!options_.falls_back_to_bytes || std::ranges::any_of(text, [&](char c) { return token(c) == kNoToken; }))
      return ids.push_back(id);
    for (const char c : text) ids.push_back(token(c));
  }

  std::vector<Entry> entries_;  // by token
  TokenTable ids_;
  std::array<std::int32_t, 256> bytes_{};  // see byte_tokens()
  double unknown_score_ = 0;
  UnigramOptions options_;
};

}  // namespace

std::unique_ptr<PieceModel> make_unigram(const std::vector<std::string>& tokens, const std::vector<double>& scores,
                                         const UnigramOptions& options) {
  return std::make_unique<Unigram>(tokens, scores, options);
}

}  // namespace gantry
