// The training data as datasets with weights: data.path, or each of data.sources.
#pragma once

#include <fmt/format.h>
#include <string>
#include <vector>

#include "gantry/core/config.h"
#include "gantry/data/dataset.h"

namespace gantry {

// `open(path, key)` returns the dataset of a path; `key`: the key of that path, for errors.
template <class Open>
std::vector<WeightedDataset> open_sources(const DataConfig& data, const std::string& key, const Open& open) {
  std::vector<WeightedDataset> all;
  if (data.sources.empty()) all.push_back({open(data.path, key)});
  for (std::size_t i = 0; i < data.sources.size(); ++i)
    all.push_back({open(data.sources[i].path, fmt::format("data.sources[{}].path", i)), data.sources[i].weight});
  return all;
}

}  // namespace gantry
