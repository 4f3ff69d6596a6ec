// JSON from files that may be damaged or hostile: checked before a document is made of it.
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

// What is wrong with the text: not JSON, nested deeper than 64, a key that is there twice; "" for nothing. Uses memory
// for the keys of the objects that are open, not for values.
std::string json_fault(std::string_view text);

// The same rules for who reads a document piece by piece: objects and lists are opened and closed here as they come by,
// and keys named. A fault is given as json_fault gives it, "" for none.
class JsonNesting {
 public:
  std::string open();  // an object or a list
  std::string key(const std::string& name);
  void close() { keys_.pop_back(); }
  std::size_t depth() const { return keys_.size(); }  // objects and lists that are open

 private:
  std::vector<std::unordered_set<std::string>> keys_;  // of what is open, the outermost first; none for lists
};

// A whole number from 0 to 2^62; nothing for anything else (negative, a fraction, text).
std::optional<std::int64_t> count_in(const nlohmann::json& value);

// True for the name of a file of the same folder: not empty, no '/', no leading '.', no control character.
bool is_plain_file_name(std::string_view name);

// What a file that is not what it should be looks like by its first bytes, with what to do, or "".
std::string likeness(std::string_view start);

}  // namespace gantry
