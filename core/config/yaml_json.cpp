#include "gantry/core/config/yaml_json.h"

#include <nlohmann/json.hpp>

namespace gantry {

nlohmann::json yaml_to_json(const YAML::Node& node, const std::string& path, ConfigFaults& faults) {
  if (node.IsMap()) {
    nlohmann::json object = nlohmann::json::object();
    visit_keys(node, path, faults, [&](const YAML::Node& key, const YAML::Node& value) {
      const std::string place = path + "." + key.Scalar();
      if (key.Scalar() == "<<" && key.Tag() != "!")
        faults.add(place, key.Mark(), "the key is a merge key", "plain keys", "write the keys out");
      object[key.Scalar()] = yaml_to_json(value, place, faults);
    });
    return object;
  }
  if (node.IsSequence()) {
    nlohmann::json array = nlohmann::json::array();
    for (const auto& item : node) array.push_back(yaml_to_json(item, path, faults));
    return array;
  }
  if (!node.IsScalar()) return nullptr;
  const std::string& text = node.Scalar();
  if (node.Tag() == "!") return text;
  if (text == "true" || text == "false") return text == "true";
  if (text == "null" || text == "~") return nullptr;
  if (const auto whole = parse_whole_number(text)) return *whole;
  if (const auto number = parse_number(text)) return *number;
  const bool numeric = text.find_first_not_of("+-.0123456789eE") == std::string::npos &&
                       text.find_first_of("0123456789") != std::string::npos;
  const std::string bare =
      text.substr(text.find_first_not_of("+-") == std::string::npos ? 0 : text.find_first_not_of("+-"));
  if (numeric || bare == ".inf" || bare == ".Inf" || bare == ".INF" || bare == ".nan" || bare == ".NaN" ||
      bare == ".NAN")
    faults.add(path, node.Mark(), "'" + text + "' is not finite", "a finite number, or a quoted string");
  return text;
}

}  // namespace gantry
