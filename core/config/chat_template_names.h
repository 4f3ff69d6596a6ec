// The names of the chat templates for data.chat_template. The files are in data/chat_templates.
#pragma once

#include <string>
#include <vector>

namespace gantry {

inline std::vector<std::string> chat_template_names() {
  return {"chatml", "gemma", "gemma3", "llama2", "llama3", "mistral", "phi3", "zephyr"};
}

}  // namespace gantry
