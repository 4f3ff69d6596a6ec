// Unigram language model (Kudo 2018): of all ways to cut a piece into tokens the one of the largest sum of scores.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gantry/data/tokenizers/piece_model.h"

namespace gantry {

struct UnigramOptions {
  std::optional<std::int64_t> unknown;  // what a character without a token is; neighbours are one
  std::vector<std::int32_t> bytes;      // tokens of the bytes that such characters fall back to; empty: none
};

// tokens[i] has scores[i] and the id i; of equal tokens the last counts.
std::unique_ptr<PieceModel> make_unigram(const std::vector<std::string>& tokens, const std::vector<double>& scores,
                                         const UnigramOptions& options);

}  // namespace gantry
