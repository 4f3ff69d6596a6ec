// Lines of chats with images for the models of tests/golden/images/chats.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "gantry/data/json_lines.h"
#include "gantry/data/sample_dataset.h"
#include "gantry/generation/image_format.h"
#include "gantry/models/described/work_of_keys.h"
#include "program.h"
#include "thrown_by.h"

namespace gantry::testing {

inline const std::string kChatFolder = GANTRY_SOURCE_DIR "/tests/golden/images/chats/";
inline const std::vector<std::string> kChatFamilies = {"gemma3", "llava", "mistral3", "qwen2_5_vl"};

inline nlohmann::json golden_ids(const std::string& family) {
  return nlohmann::json::parse(read_file(kChatFolder + family + "/ids.json"));
}

inline std::shared_ptr<const ImageReader> chat_images(const std::string& family) {
  nlohmann::json keys = nlohmann::json::parse(read_file(kChatFolder + family + "/config.json"));
  keys["image_encoder"] = true;
  return std::make_shared<const ImageReader>(image_format_of(*models::described_decoder(keys)->vision),
                                             kChatFolder + family);
}

inline LineRules image_rules_of(const std::string& family, std::int64_t length = 200) {
  return {
      .tokenizer = kChatFolder + family, .sequence_length = length, .vocabulary = 264, .images = chat_images(family)};
}

inline std::string conversation() { return read_file(kChatFolder + "conversation.json"); }

inline LineTokens encoded_chat(const LineRules& rules, const std::string& line) {
  return LineEncoder(rules).encode(line, kChatFolder + "chats.jsonl:7");
}

inline std::string refused_chat(const LineRules& rules, const nlohmann::json& line) {
  return thrown_by<BadLine>([&] { encoded_chat(rules, line.dump()); });
}

inline nlohmann::json image_part(const std::string& file) { return {{"type", "image"}, {"path", file}}; }
inline nlohmann::json text_part(const std::string& text) { return {{"type", "text"}, {"text", text}}; }

// A question with these parts, and an answer.
inline nlohmann::json chat_about(const std::vector<nlohmann::json>& parts) {
  return {{"messages",
           {{{"role", "user"}, {"content", parts}},
            {{"role", "assistant"}, {"content", nlohmann::json::array({text_part("Yes")})}}}}};
}

inline std::unique_ptr<Dataset> opened_chats(const LineRules& rules, const ScratchFolder& scratch,
                                             const std::string& lines) {
  return open_json_lines({scratch.write("chats.jsonl", lines)}, rules, "data.path");
}

inline TensorDict sample_of_chats(const Dataset& data, std::int64_t index) {
  return dynamic_cast<const SampleDataset&>(data).sample(index);
}

}  // namespace gantry::testing
