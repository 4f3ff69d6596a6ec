// Properties of a configuration's model that data sets and losses need.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "gantry/core/config.h"
#include "gantry/models/model_family.h"

namespace gantry {

inline constexpr const char* kRegression = "regression";
inline constexpr const char* kSeveralLabels = "multi_label_classification";

nlohmann::json model_json(const Config& config);  // model.config

// Null for a model whose policy is registered without a family; the program builds it.
const models::ModelFamily* family_or_null(const Config& config);

// The training task of the model's head, by ModelFamily::task.
std::string task_of(const Config& config);

// The files of the training data (of the first source); none if they do not exist, which opening them reports.
std::vector<std::filesystem::path> files_of_data(const DataConfig& data);

// The problem_type of a classification head; "" for a single label, and for heads that do not classify.
std::string problem_of(const Config& config);

// The size of the vocabulary; the largest number if it is unknown.
std::int64_t vocabulary_of(const Config& config);

}  // namespace gantry
