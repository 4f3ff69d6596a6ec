// The images of a line of JSON: their tokens, and their records in a row.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "gantry/data/images/image_reader.h"
#include "gantry/data/line_encoder.h"

namespace gantry {

// Everything except the image files that changes the rows of images in the files, as text; "" without a reader. Images
// are relative to the files.
std::string image_key(const ImageReader* reader, const LinePaths& paths);
// Returns a hash of the names, sizes and times of all images in the files; "" for files without images.
std::string image_state(const LinePaths& paths, const OpenProgress& progress);

// Throws InputError for a line with images if the rules read none, which no data.bad_lines passes over, and BadLine for
// images without messages. `line`: an object.
void require_images_read(const LineRules& rules, const nlohmann::ordered_json& line, const std::string& where);

// Reads the images of a chat and adds their tokens to its text. `where`: the line's file and number; images are
// relative to the file's directory. `messages`: those of `chat`. Returns the images without their places. Throws
// BadLine for images that cannot be used.
std::vector<LineImage> images_of_line(const ImageReader& reader, const std::string& where,
                                      const nlohmann::ordered_json& messages, ChatText& chat);

// Sets the places of the images of `made`, and names them in its parts.
void set_places(const std::vector<std::pair<std::int64_t, std::int64_t>>& places, LineTokens& made);

// Removes the tokens of images from made.trained.
void keep_images_untrained(LineTokens& made);

// Removes the images after the end of a truncated line. Throws BadLine if the line ends within an image or with one,
// because its last token is a label only, and if the line has other image tokens than those of its images.
void fit_images(const ImageReader& reader, const std::string& where, LineTokens& made);

// Throws BadLine if an image is not before the first token with a loss. `completion`: the name of the tokens with a
// loss.
void require_images_in_prompt(const LineTokens& made, const char* completion, const std::string& where);

// Appends the images to the tokens and ranges of a row, as its last ones: height, width and the bytes of the path of
// each.
void append_images(const std::vector<LineImage>& images, LineRow& row);
// Returns the row without its `count` images, and the files and sizes of these images.
EncodedRow without_images(EncodedRow row, std::size_t count);
std::vector<LineImage> images_of_row(const EncodedRow& row, std::size_t count);

// The images of a row, in order, and the place of its line for errors.
struct RowImages {
  std::vector<LineImage> images;
  std::string place;
};

}  // namespace gantry
