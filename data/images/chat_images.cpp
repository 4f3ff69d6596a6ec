#include "gantry/data/images/chat_images.h"

#include <algorithm>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "gantry/core/error.h"
#include "gantry/data/chat_line.h"

namespace gantry {
namespace {

using ByteRanges = std::vector<std::pair<std::size_t, std::size_t>>;

// The places of a text after its marks were replaced.
class MovedPlaces {
 public:
  MovedPlaces(const std::string& text, const std::string& mark, const ByteRanges& images) : mark_(mark.size()) {
    std::size_t begin = 0;
    for (const auto& image : images) {
      const std::size_t at = text.find(mark, begin);
      begins_.push_back(at);
      ends_.push_back(image.second);
      begin = at + mark.size();
    }
  }

  void move(ByteRanges& ranges) const {
    for (auto& [begin, end] : ranges) begin = moved(begin), end = moved(end);
  }

 private:
  std::size_t moved(std::size_t place) const {
    std::size_t image = begins_.size();
    while (image > 0 && begins_[image - 1] + mark_ > place) --image;
    return image == 0 ? place : ends_[image - 1] + place - (begins_[image - 1] + mark_);
  }

  std::size_t mark_;
  std::vector<std::size_t> begins_, ends_;  // begins of the marks, and ends of the tokens that replace them
};

// True if a string of the value has the mark. The files of image parts are not texts.
bool has_mark(const nlohmann::ordered_json& value, const std::string& mark) {
  if (value.is_string()) return value.get_ref<const std::string&>().find(mark) != std::string::npos;
  if (!value.is_structured() || is_image(value)) return false;
  return std::ranges::any_of(value, [&](const auto& each) { return has_mark(each, mark); });
}

// Returns the place and the reason of an error. Its remedy is for an image alone, not for a line.
std::string reason_of(const InputError& error) {
  const std::string line = error.what();
  return line.substr(0, line.find("; expected "));
}

}  // namespace

ChatImages read_chat_images(const ImageReader& reader, const std::filesystem::path& folder,
                            const nlohmann::ordered_json& messages, ChatText& chat) {
  const std::string& mark = reader.format().marks.mark;
  for (std::size_t i = 0; i < messages.size(); ++i)
    if (has_mark(messages[i], mark))
      return {{}, fmt::format("messages[{}] has the mark of an image ({}) in a text", i, mark)};
  if (const std::size_t marks = reader.marks_in(chat.text); marks != chat.images.size())
    return {{},
            fmt::format("the number of marks of images ({}) in the text of the chat template is {}, but the number of "
                        "images in the messages is {}",
                        mark, marks, chat.images.size())};
  ChatImages made;
  std::vector<ImageSize> sizes;
  for (const std::string& file : chat.images) {
    try {
      made.images.push_back(reader.read(folder / file));
    } catch (const InputError& error) {
      return {{}, fmt::format("an image cannot be read: {}", reason_of(error))};
    }
    sizes.push_back(made.images.back().size);
  }
  ImageText expanded = reader.expanded(chat.text, sizes);
  const MovedPlaces places(chat.text, mark, expanded.images);
  places.move(chat.said);
  places.move(chat.not_trained);
  chat.text = std::move(expanded.text);
  chat.image_texts = std::move(expanded.images);
  return made;
}

}  // namespace gantry
