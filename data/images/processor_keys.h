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
  // A number n, or {height: n, width: n}: n; {shortest_edge: n}: -n; 0 without the key. `by_shorter`: a number is the
  // shorter side too.
  int side(const std::string& key, bool by_shorter = false) const;
  // An integer from 1 to `most`.
  std::int64_t count(const std::string& key, std::int64_t initial, std::int64_t most) const;

 private:
  int length(const std::string& key, const nlohmann::json& value) const;

  std::string path_;
  nlohmann::json keys_;
};

// The filter, the scale of bytes, and the mean and deviation of colours.
void read_colours(const ProcessorKeys& keys, ImageSettings& settings);
// The defaults of CLIP's processor, which those of LLaVA, Qwen2-VL and Pixtral share.
inline const ImageSettings kSettingsOfClip = {.crops = true,
                                              .filter = ImageFilter::kBicubic,
                                              .mean = {0.48145466, 0.4578275, 0.40821073},
                                              .deviation = {0.26862954, 0.26130258, 0.27577711}};
// The settings of images of one size. image_processor_type, if the file has it, decides between the defaults of CLIP,
// SigLIP and ViT; otherwise `is_clip` does.
ImageSettings read_square_settings(const ProcessorKeys& keys, bool is_clip = false);

}  // namespace gantry
