#include "gantry/models/shared_keys.h"

#include <algorithm>
#include <fmt/format.h>

namespace gantry::models {
namespace {

int source_of(const DecoderSpec& spec, int layer) {
  const int keys_of = spec.layers.at(layer).attention.keys_of;
  return keys_of < 0 ? layer : keys_of;
}

}  // namespace

std::string keys_entry(int layer) { return fmt::format("keys.{}", layer); }
std::string values_entry(int layer) { return fmt::format("values.{}", layer); }

std::vector<int> users_of_keys(const DecoderSpec& spec, int layer) {
  std::vector<int> users;
  for (int other = 0; other < static_cast<int>(spec.layers.size()); ++other)
    if (source_of(spec, other) == source_of(spec, layer)) users.push_back(other);
  return users.size() > 1 ? users : std::vector<int>();
}

std::vector<std::string> entries_of_earlier_layers(const DecoderSpec& spec, int next) {
  std::vector<std::string> entries;
  for (int layer = next; layer < static_cast<int>(spec.layers.size()); ++layer) {
    const int source = source_of(spec, layer);
    if (source >= next || std::ranges::count(entries, keys_entry(source)) > 0) continue;
    entries.push_back(keys_entry(source));
    entries.push_back(values_entry(source));
  }
  return entries;
}

int holder_of_cache(const std::vector<int>& users, const LayerRange& range) {
  return *std::ranges::find_if(users, [&](int user) { return user >= range.begin; });
}

}  // namespace gantry::models
