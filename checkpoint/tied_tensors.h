// Tensors that a configuration ties, and that files may store with different values.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "gantry/models/model_family.h"

namespace gantry {

// The result of comparing tied tensors.
struct StoredTies {
  nlohmann::json keys = nlohmann::json::object();  // keys of the stored model that differ from `config`
  std::vector<std::string> notes;                  // one sentence for each difference from `config`
};

// Compares the stored tensors with the table that `config` ties them to, as bytes; values of different types
// are converted. Returns nothing for a directory with missing files. Throws InputError for a damaged file.
StoredTies compare_tied_tensors(const std::string& directory, const models::ModelFamily& family,
                                const nlohmann::json& config);

}  // namespace gantry
