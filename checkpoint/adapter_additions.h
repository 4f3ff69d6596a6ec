// The products of an adapter's factors, by the base tensors to which they are added, and the rows that
// replace rows of an embedding.
#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "gantry/checkpoint/stored_adapter.h"
#include "gantry/core/slice.h"
#include "gantry/models/model_family.h"

namespace gantry {

inline constexpr const char* kStoredA = ".lora_A.weight";
inline constexpr const char* kStoredB = ".lora_B.weight";
inline constexpr const char* kStoredMagnitude = ".lora_magnitude_vector";
inline constexpr const char* kStoredTableA = ".lora_embedding_A";
inline constexpr const char* kStoredTableB = ".lora_embedding_B";
inline constexpr const char* kStoredTokens = ".token_adapter.trainable_tokens_delta";

// The part of an adapter that is added to one tensor of the base.
struct Addition {
  std::string factors;  // prefix of the names of both factors
  std::string path;     // the path that selects rank and scale
  std::string a = kStoredA, b = kStoredB;
  bool transposed = false;                               // the product is transposed
  std::int64_t experts = 0;                              // number of experts of a stack; 0: no stack
  std::optional<std::vector<AppliedShard>> shards = {};  // part of the product in this tensor; unset: all
  bool is_tokens = false;                                // no product: the trained rows of an embedding
};

class Additions {
 public:
  // `names`: all tensors of the base in the family, with every form that files can have.
  Additions(const StoredAdapter& adapter, const std::string& family, const nlohmann::json& config,
            const std::vector<models::TensorName>& names);

  // Returns null for a tensor that the adapter does not change.
  const Addition* find(const std::string& stored) const;

 private:
  void add_matrix(const models::TensorName& name, const std::string& path);
  void add_stack(const models::TensorName& name, const std::string& module);
  void add_full(const models::TensorName& name, const Addition& addition);
  void add_parts(const std::vector<models::TensorPart>& parts, Addition addition);

  const StoredAdapter& adapter_;
  const std::string& family_;
  const nlohmann::json& config_;
  std::map<std::string, Addition> all_;
};

}  // namespace gantry
