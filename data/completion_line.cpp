#include "gantry/data/completion_line.h"

#include <nlohmann/json.hpp>
#include <utility>

namespace gantry {

std::string completion_line(nlohmann::ordered_json object, const char* completion) {
  nlohmann::ordered_json chosen = std::move(object[completion]);
  for (const char* key : {"chosen", "rejected", "label", "completion"}) object.erase(key);
  if (chosen.is_string()) {
    object["completion"] = std::move(chosen);
    return object.dump();
  }
  nlohmann::ordered_json messages = object.contains("prompt") ? object["prompt"] : nlohmann::ordered_json::array();
  messages.insert(messages.end(), chosen.begin(), chosen.end());
  object.erase("prompt");
  object["messages"] = std::move(messages);
  return object.dump();
}

std::vector<nlohmann::ordered_json> chats_of_line(const nlohmann::ordered_json& line) {
  if (!line.is_object()) return {};
  if (line.contains("messages")) return {line};
  if (line.contains("prompt") && !line["prompt"].is_array()) return {};
  std::vector<nlohmann::ordered_json> chats;
  for (const char* key : {"chosen", "rejected", "completion"})
    if (line.contains(key) && line[key].is_array())
      chats.push_back(nlohmann::ordered_json::parse(completion_line(line, key)));
  return chats;
}

}  // namespace gantry
