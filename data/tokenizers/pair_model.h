// Byte-pair encoding of pieces.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gantry/data/tokenizers/merge_table.h"
#include "gantry/data/tokenizers/piece_model.h"

namespace gantry {

struct PairOptions {
  bool reads_bytes = false;     // pieces are bytes, and tokens their spellings
  bool ignores_merges = false;  // a piece that is a token is not split
  bool fuses_unknown = false;   // neighbouring unknown characters are one token
  bool falls_back_to_bytes = false;
  std::optional<std::int64_t> unknown;  // null: characters without a token are dropped
  std::string prefix;                   // continuing_subword_prefix: before all symbols of a piece but the first
  std::string suffix;                   // end_of_word_suffix: after the last symbol
};

std::unique_ptr<PieceModel> make_pair_model(const TokenTable& ids, const std::vector<Merge>& merges,
                                            const PairOptions& options);

// The ids of the tokens <0x00> to <0xFF>, kNoToken if there is none.
inline constexpr std::int32_t kNoToken = -1;
std::array<std::int32_t, 256> byte_tokens(const TokenTable& ids);

}  // namespace gantry
