// The classes of an image classifier, which have the same numbers in all data and in config.json.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "gantry/core/config.h"

namespace gantry {

// Returns the names by label, from id2label or label2id of config.json. Empty if both are missing or have the
// placeholders LABEL_0, LABEL_1, ... of transformers. Throws ConfigError for labels that are not 0, 1, ... with
// different names.
std::vector<std::string> stated_classes(const nlohmann::json& keys);

// Returns the names by label: stated_classes(), or else the names of the class directories of the training data.
// `labels`: number of classes of the model. Throws InputError like image_classes().
std::vector<std::string> classes_of_images(const Config& config, const nlohmann::json& keys, std::int64_t labels);

// Removes the labels of a model's config.json that the keys of the configuration replace. id2label and
// label2id replace each other, and another num_labels has no names yet, as in transformers.
void drop_replaced_labels(nlohmann::json& file, const nlohmann::json& asked);

// Names the classes of the run's model like the training data (directories of images, or labels of texts), so
// that an export names them. No effect if config.json names them.
void name_classes(Config& config);

// Sets id2label and label2id to the names of classes_of_images() and, for labels without a class, to placeholders.
void set_class_names(nlohmann::json& keys, const std::vector<std::string>& names, std::int64_t labels);

}  // namespace gantry
