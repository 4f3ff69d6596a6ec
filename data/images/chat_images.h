// The images of a rendered chat.
#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "gantry/data/chat_template.h"
#include "gantry/data/images/image_reader.h"

namespace gantry {

struct ChatImages {
  std::vector<ProcessedImage> images;
  std::string fault;  // the reason why the images cannot be used, as a clause; empty: none
};

// Reads chat.images, which are relative to `folder`, replaces their marks in chat.text by their tokens, and sets
// chat.image_texts. The other ranges of the chat move along. `messages`: the list that `chat` was made of, whose texts
// must not have the mark.
ChatImages read_chat_images(const ImageReader& reader, const std::filesystem::path& folder,
                            const nlohmann::ordered_json& messages, ChatText& chat);

}  // namespace gantry
