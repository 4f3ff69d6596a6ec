#include "gantry/data/tokenizers/pair_model.h"

#include <algorithm>
#include <fmt/format.h>

#include "gantry/core/base/utf8.h"
#include "gantry/data/tokenizers/byte_level.h"

namespace gantry {
namespace {

// Collects the symbols of a piece. Unknown tokens wait, because the next ones may be fused with them; tokens of bytes
// overtake them, as in Hugging Face's tokenizers.
class Symbols {
 public:
  explicit Symbols(const PairOptions& options) : options_(options) {}

  void add(std::int32_t id) {
    add_unknown();
    list.push_back(id);
  }
  void add_byte(std::int32_t id) { list.push_back(id); }
  void wait_unknown() {
    if (!options_.unknown) return;
    if (!options_.fuses_unknown) add_unknown();
    waits_ = true;
  }
  void add_unknown() {
    if (waits_) list.push_back(static_cast<std::int32_t>(*options_.unknown));
    waits_ = false;
  }

  std::vector<std::int32_t> list;

 private:
  const PairOptions& options_;
  bool waits_ = false;
};

class PairModel final : public PieceModel {
 public:
  PairModel(const TokenTable& ids, const std::vector<Merge>& merges, const PairOptions& options)
      : options_(options), merges_(merges), fallback_(byte_tokens(ids)) {
    if (!options.reads_bytes) {
      ids_ = ids;
      return;
    }
    bytes_.fill(kNoToken);
    for (const auto& [token, id] : ids) {
      const auto spelled = spelled_bytes(token);
      if (!spelled || spelled->empty()) continue;
      if (spelled->size() == 1) bytes_[static_cast<unsigned char>((*spelled)[0])] = id;
      if (options.ignores_merges) ids_.emplace(*spelled, id);
    }
  }

  std::string kind() const override { return "BPE"; }

  void append(std::string_view piece, TokenIds& ids) const override {
    if (options_.ignores_merges)
      if (const auto whole = ids_.find(piece); whole != ids_.end()) {
        ids.push_back(whole->second);
        return;
      }
    Symbols symbols(options_);
    symbols.list.reserve(piece.size());
    options_.reads_bytes ? add_bytes(piece, symbols) : add_characters(piece, symbols);
    symbols.add_unknown();
    merges_.merge(symbols.list);
    ids.insert(ids.end(), symbols.list.begin(), symbols.list.end());
  }

 private:
  void add_bytes(std::string_view piece, Symbols& symbols) const {
    for (const char c : piece) {
      const std::int32_t id = bytes_[static_cast<unsigned char>(c)];
      id == kNoToken ? symbols.wait_unknown() : symbols.add(id);
    }
  }

  void add_characters(std::string_view piece, Symbols& symbols) const {
    std::string spelled;
    for (bool is_first = true; !piece.empty(); is_first = false) {
      std::string_view symbol = piece.substr(0, utf8_length(piece[0]));
      piece.remove_prefix(symbol.size());
      if ((!is_first && !options_.prefix.empty()) || (piece.empty() && !options_.suffix.empty())) {
        spelled = fmt::format("{}{}{}", is_first ? "" : options_.prefix, symbol, piece.empty() ? options_.suffix : "");
        symbol = spelled;
      }
      if (const auto found = ids_.find(symbol); found != ids_.end())
        symbols.add(found->second);
      else if (!options_.falls_back_to_bytes || !add_fallback(symbol, symbols))
        symbols.wait_unknown();
    }
  }

  bool add_fallback(std::string_view symbol, Symbols& symbols) const {
    const auto token = [&](char c) { return fallback_[static_cast<unsigned char>(c)]; };
    if (std::ranges::any_of(symbol, [&](char c) { return token(c) == kNoToken; })) return false;
    for (const char c : symbol) symbols.add_byte(token(c));
    return true;
  }

  PairOptions options_;
  MergeTable merges_;
  TokenTable ids_;  // with reads_bytes: by the bytes that are spelled, for ignores_merges
  std::array<std::int32_t, 256> fallback_;
  std::array<std::int32_t, 256> bytes_{};
};

}  // namespace

std::array<std::int32_t, 256> byte_tokens(const TokenTable& ids) {
  std::array<std::int32_t, 256> tokens{};
  for (std::size_t byte = 0; byte < tokens.size(); ++byte) {
    const auto found = ids.find(fmt::format("<0x{:02X}>", byte));
    tokens[byte] = found == ids.end() ? kNoToken : found->second;
  }
  return tokens;
}

std::unique_ptr<PieceModel> make_pair_model(const TokenTable& ids, const std::vector<Merge>& merges,
                                            const PairOptions& options) {
  return std::make_unique<PairModel>(ids, merges, options);
}

}  // namespace gantry
