// A line with messages, in the form in which apply_chat_template passes it to a template.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace gantry {

struct ChatLine {
  // Members that are null are left out, reasoning has all of its names, and arguments of calls are objects.
  nlohmann::ordered_json messages;
  nlohmann::ordered_json variables;  // an object: the line's tools, documents and chat_template_kwargs
  std::vector<std::string> images;   // the files of the image parts, in order
  std::vector<std::size_t> trained;  // indexes of the messages with a loss, in order
  std::string fault;                 // the reason why the line cannot be rendered, in words that follow "has"; or ""
  std::string expected;              // in place of the files of images, if the fault is in them; or ""
};

// `line`: an object with messages, and maybe tools, documents, chat_template_kwargs and images. A message of the
// assistant has a loss unless its `weight`, `train`, `loss_mask` or `trainable` is 0 or false. A content is a text or a
// list of parts: {type: text, text}, or {type: image} with a file as `image`, `path` or `url`. Image parts without a
// file have those of the list `images`, in order. `loss_on`: see data.loss_on; empty for a prompt, which has no loss
// and may have empty messages.
ChatLine read_chat_line(const nlohmann::ordered_json& line, const std::string& loss_on);

// True if a part of a content is an image. `part`: any value.
bool is_image(const nlohmann::ordered_json& part);
// True if a content of the messages has such a part. `messages`: any value.
bool has_image_parts(const nlohmann::ordered_json& messages);

bool is_assistants(const nlohmann::ordered_json& message);
bool calls_tools(const nlohmann::ordered_json& message);

}  // namespace gantry
