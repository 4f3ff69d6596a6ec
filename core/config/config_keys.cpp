#include "gantry/core/config/config_keys.h"

#include <algorithm>
#include <fmt/format.h>

#include "gantry/core/config/keys/key_lists.h"

namespace gantry {
namespace {

// "data.sources[0].path" -> "data.sources[].path", the form in the list of keys.
std::string without_places(const std::string& path) {
  std::string general;
  bool inside = false;
  for (const char c : path) {
    if (c == ']') inside = false;
    if (!inside) general += c;
    if (c == '[') inside = true;
  }
  return general;
}

class EffectCheck {
 public:
  EffectCheck(const Config& config, bool only_overridden, ConfigFaults& faults)
      : config_(config), only_overridden_(only_overridden), faults_(faults) {}

  void visit(const YAML::Node& node, const std::string& path) {
    if (node.IsSequence())
      for (std::size_t i = 0; i < node.size(); ++i) visit(node[i], fmt::format("{}[{}]", path, i));
    if (!node.IsMap()) return;
    for (const auto& item : node) {
      if (!item.first.IsScalar()) continue;  // the reader has reported it
      const std::string below = path.empty() ? item.first.Scalar() : path + "." + item.first.Scalar();
      if (const ConfigKey* key = find_config_key(without_places(below))) check(*key, below, item.first.Mark());
      if (below != "model.config" && below != "data.template_kwargs") visit(item.second, below);
    }
  }

 private:
  void check(const ConfigKey& key, const std::string& path, const YAML::Mark& mark) {
    if (key.has_effect(config_) || (only_overridden_ && !faults_.is_overridden(path))) return;
    faults_.add(path, mark, "the key has no effect " + key.context->otherwise(config_), key.context->needs,
                key.context->remedy);
  }

  const Config& config_;
  bool only_overridden_;
  ConfigFaults& faults_;
};

}  // namespace

const std::vector<ConfigKey>& config_keys() {
  static const std::vector<ConfigKey> kKeys = [] {
    std::vector<ConfigKey> all;
    for (const auto& list : {model_keys(), layout_keys(), data_keys(), optimizer_keys(), train_keys(), run_keys()})
      all.insert(all.end(), list.begin(), list.end());
    return all;
  }();
  return kKeys;
}

const ConfigKey* find_config_key(std::string_view path) {
  const auto found =
      std::ranges::find(config_keys(), path, [](const ConfigKey& key) { return std::string_view(key.path); });
  return found == config_keys().end() ? nullptr : &*found;
}

void check_effects(const Config& config, const YAML::Node& document, bool only_overridden, ConfigFaults& faults) {
  EffectCheck(config, only_overridden, faults).visit(document, "");
}

}  // namespace gantry
