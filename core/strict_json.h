// JSON from files that may be damaged or hostile: checked before a document is made of it.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>

namespace gantry {

// What is wrong with the text: not JSON, nested deeper than 64, a key that is there twice; "" for nothing. Uses memory
// for the keys of the objects that are open, not for values.
std::string json_fault(std::string_view text);

// A whole number from 0 to 2^62; nothing for anything else (negative, a fraction, text).
std::optional<std::int64_t> count_in(const nlohmann::json& value);

// True for the name of a file of the same folder: not empty, no '/', no leading '.', no control character.
bool is_plain_file_name(std::string_view name);

// What a file that is not what it should be looks like by its first bytes, with what to do, or "".
std::string likeness(std::string_view start);

}  // namespace gantry
