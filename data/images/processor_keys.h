// The keys of an image processor, in preprocessor_config.json or processor_config.json of Hugging Face.
#pragma once

#include <array>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "gantry/data/images/image_settings.h"

namespace gantry {

// Each error names the file and the key.
class ProcessorKeys {
 public:
  // Throws InputError if `text` is not a JSON object.
  ProcessorKeys(std::string_view text, const std::string& path);
  ProcessorKeys(nlohmann::json keys, std::string path) : path_(std::move(path)), keys_(std::move(keys)) {}

  [[noreturn]] void refuse(const std::string& key, const std::string& expected) const;
  bool has(const std::string& key) const { return keys_.contains(key) && !keys_[key].is_null(); }
  const nlohmann::json& values() const { return keys_; }
  const std::string& path() const { return path_; }

  bool flag(const std::string& key, bool initial) const;
  double number(const std::string& key, double initial) const;
  void colours(const std::string& key, std::array<double, kColours>& values, double above) const;
  // A number n, or {height: n, width: n}: n; {shortest_edge: n}: -n; 0 without the key.
  int side(const std::string& key) const;
  // An integer from 1 to `most`.
  std::int64_t count(const std::string& key, std::int64_t initial, std::int64_t most) const;

 private:
  int length(const std::string& key, const nlohmann::json& value) const;

  std::string path_;
  nlohmann::json keys_;
};

// The filter, the scale of bytes, and the mean and deviation of colours.
void read_colours(const ProcessorKeys& keys, ImageSettings& settings);
// The settings of images of one size.
ImageSettings read_square_settings(const ProcessorKeys& keys);

}  // namespace gantry
