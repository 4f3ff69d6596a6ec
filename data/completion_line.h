// A line of JSON with one completion of a prompt, from lines that judge completions.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace gantry {

// Returns the line that LineEncoder reads: `prompt` and `completion` if object[completion] is a text, else `messages`
// with those of the prompt, if there is one, and of the completion. Other members stay, without chosen, rejected and
// label.
std::string completion_line(nlohmann::ordered_json object, const char* completion);

// Returns the objects with messages in a line: the line itself, or for a line that judges completions that are lists of
// messages one object for each completion. `line`: any value. The messages may be of any type.
std::vector<nlohmann::ordered_json> chats_of_line(const nlohmann::ordered_json& line);

}  // namespace gantry
