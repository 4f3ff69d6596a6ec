// Checks JSON from files that may be damaged or hostile, before a document is built from it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

namespace gantry {

// The fault of the text (not JSON, nested deeper than 64 levels, or a duplicate key), or "" if there is none. Uses
// memory for the keys of the open objects, but not for values.
std::string json_fault(std::string_view text);

// Parses the text into `made`. Returns its fault like json_fault, or ""; `made` is null if there is a fault.
std::string parse_strict(std::string_view text, nlohmann::json& made);
std::string parse_strict(std::string_view text, nlohmann::ordered_json& made);

// The same checks for code that reads a document incrementally: it reports here when objects and lists are opened and
// closed, and every key. Returns a fault like json_fault, or "".
class JsonNesting {
 public:
  std::string open();  // begin of an object or a list
  std::string key(const std::string& name);
  void close() { keys_.pop_back(); }
  std::size_t depth() const { return keys_.size(); }  // number of open objects and lists

 private:
  std::vector<std::unordered_set<std::string>> keys_;  // keys of the open objects, the outermost first; none for lists
};

// A whole number from 0 to 2^62; nothing for any other value (negative, a fraction, a string).
std::optional<std::int64_t> count_in(const nlohmann::json& value);

// True for the name of a file in the same directory: not empty, no '/', no leading '.', no control character.
bool is_plain_file_name(std::string_view name);

// A description of the actual type of a file by its first bytes, with a remedy, or "".
std::string likeness(std::string_view start);

}  // namespace gantry
