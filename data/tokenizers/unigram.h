// Unigram language model (Kudo 2018): splits a piece into the tokens with the largest sum of scores.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gantry/data/tokenizers/piece_model.h"

namespace gantry {

struct UnigramOptions {
  std::optional<std::int64_t> unknown;  // token of characters that the vocabulary lacks; neighbours are one token
  bool falls_back_to_bytes = false;     // such characters are replaced by the tokens <0x00> to <0xFF>
};

// tokens[i] has scores[i] and the id i. If a token occurs several times, the last one counts.
std::unique_ptr<PieceModel> make_unigram(const std::vector<std::string>& tokens, const std::vector<double>& scores,
                                         const UnigramOptions& options);

}  // namespace gantry
