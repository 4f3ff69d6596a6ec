#include "gantry/data/line_images.h"

#include <algorithm>
#include <filesystem>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <system_error>

#include "gantry/checkpoint/format/files.h"
#include "gantry/core/base/utf8.h"
#include "gantry/core/io/strict_json.h"
#include "gantry/data/chat_line.h"
#include "gantry/data/completion_line.h"
#include "gantry/data/images/chat_images.h"

namespace gantry {
namespace {

constexpr std::size_t kRecordHead = 2;  // height and width

using Places = std::pair<std::int64_t, std::int64_t>;

// The parts of `range` before and after the image.
void add_outside(const Places& range, const LineImage& image, std::vector<Places>& parts) {
  const Places before{range.first, std::min(range.second, image.first)},
      after{std::max(range.first, image.second), range.second};
  if (image.second <= range.first || range.second <= image.first) return parts.push_back(range);
  for (const Places& part : {before, after})
    if (part.first < part.second) parts.push_back(part);
}

// The name, size and time of an image. A missing file is a fault of its line.
std::string facts_of_image(const std::filesystem::path& folder, const std::string& image) {
  const auto file = folder / image;
  std::error_code failure;
  const auto size = std::filesystem::file_size(file, failure);
  const auto time = std::filesystem::last_write_time(file, failure).time_since_epoch().count();
  return fmt::format("{}\n{} {} {}\n", image, size, time, failure.value());
}

}  // namespace

std::string image_key(const ImageReader* reader, const LinePaths& paths) {
  if (!reader) return "";
  std::string key = reader->key();
  for (const auto& path : paths) key += "\n" + std::filesystem::absolute(path).parent_path().string();
  return valid_utf8(key);
}

std::string image_state(const LinePaths& paths, const OpenProgress& progress) {
  Hasher hasher;
  bool has_images = false;
  FoundLines found(paths);
  for (FoundLine line; found.next(line); progress(line.text.size())) {
    if (line.text.find("\"image") == std::string::npos) continue;  // parsing takes long
    nlohmann::ordered_json object;
    if (!parse_strict(line.text, object).empty()) continue;
    for (const auto& chat : chats_of_line(object))
      for (const std::string& image : read_chat_line(chat, /*loss_on=*/"").images) {
        const std::string facts = facts_of_image(paths[line.file].parent_path(), image);
        hasher.update(facts.data(), facts.size());
        has_images = true;
      }
  }
  return has_images ? hasher.digits() : "";
}

void require_images_read(const LineRules& rules, const nlohmann::ordered_json& line, const std::string& where) {
  const bool is_chat = line.contains("messages"), lists_images = line.contains("images") && !line["images"].empty();
  if (!rules.images && (lists_images || (is_chat && has_image_parts(line["messages"]))))
    throw InputError({where, "the line has images, but " + rules.no_images.reason, rules.no_images.expected,
                      rules.no_images.remedy});
  if (lists_images && !is_chat)
    throw BadLine({where, "the line has images, but no messages", "messages with an image part for each image",
                   "write an image part at the place of each image"});
}

std::vector<LineImage> images_of_line(const ImageReader& reader, const std::string& where,
                                      const nlohmann::ordered_json& messages, ChatText& chat) {
  const auto [images, fault] = read_chat_images(reader, std::filesystem::path(where).parent_path(), messages, chat);
  if (!fault.empty()) throw BadLine({where, fault, "", "correct the line, or set data.bad_lines: skip"});
  std::vector<LineImage> made;
  for (std::size_t i = 0; i < images.size(); ++i) made.push_back({.file = chat.images[i], .size = images[i].size});
  return made;
}

void set_places(const std::vector<Places>& places, LineTokens& made) {
  for (std::size_t i = 0; i < places.size(); ++i) {
    made.images[i].first = places[i].first;
    made.images[i].second = places[i].second;
    made.parts.push_back({places[i].first, places[i].second, "image"});
  }
}

void keep_images_untrained(LineTokens& made) {
  for (const LineImage& image : made.images) {
    std::vector<Places> parts;
    for (const Places& range : made.trained) add_outside(range, image, parts);
    made.trained = std::move(parts);
  }
}

void fit_images(const ImageReader& reader, const std::string& where, LineTokens& made) {
  const auto tokens = static_cast<std::int64_t>(made.tokens.size());
  std::erase_if(made.images, [&](const LineImage& image) { return image.first >= tokens; });
  std::int64_t expected = 0;
  for (const LineImage& image : made.images) {
    expected += reader.tokens_of(image.size);
    if (image.second > made.places())
      throw BadLine({where,
                     fmt::format("the line, with {} tokens, ends {} the image '{}'", tokens,
                                 made.was_truncated ? "within" : "with", image.file),
                     "text after each image", "raise data.sequence_length, or shorten the line"});
  }
  const std::int64_t token = reader.format().token, found = std::ranges::count(made.tokens, token);
  if (found != expected)
    throw BadLine({where,
                   fmt::format("the number of image tokens ({}) is {}, but the images of the line have {}", token,
                               found, expected),
                   "the tokenizer of the model, and no image tokens in texts",
                   fmt::format("remove {} from the texts, or check data.tokenizer", reader.format().marks.token)});
}

void require_images_in_prompt(const LineTokens& made, const char* completion, const std::string& where) {
  if (!made.images.empty() && made.images.back().second > made.trained.front().first)
    throw BadLine({where, fmt::format("'{}' has an image in its completion, the last message", completion),
                   "images in the messages before", "correct the line, or set data.bad_lines: skip"});
}

void append_images(const std::vector<LineImage>& images, LineRow& row) {
  for (const LineImage& image : images) {
    const auto first = static_cast<std::int32_t>(row.tokens.size());
    row.tokens.push_back(static_cast<std::int32_t>(image.size.height));
    row.tokens.push_back(static_cast<std::int32_t>(image.size.width));
    for (const char byte : image.file) row.tokens.push_back(static_cast<unsigned char>(byte));
    row.ranges.push_back({first, static_cast<std::int32_t>(row.tokens.size())});
  }
}

EncodedRow without_images(EncodedRow row, std::size_t count) {
  if (count == 0) return row;
  const std::size_t ranges = row.ranges.size() - count;
  row.tokens = row.tokens.first(static_cast<std::size_t>(row.ranges[ranges].first));
  row.ranges = row.ranges.first(ranges);
  return row;
}

std::vector<LineImage> images_of_row(const EncodedRow& row, std::size_t count) {
  std::vector<LineImage> images;
  for (const auto& [first, second] : row.ranges.last(count)) {
    const auto record = row.tokens.subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(second - first));
    images.push_back({.file = "", .size = {record[0], record[1]}});
    for (const std::int32_t byte : record.subspan(kRecordHead)) images.back().file += static_cast<char>(byte);
  }
  return images;
}

}  // namespace gantry
