#include "gantry/data/images/image_reader.h"

#include <nlohmann/json.hpp>

#include "gantry/data/images/image_file.h"

namespace gantry {

ImageReader::ImageReader(ImageFormat format, const std::string& folder)
    : format_(std::move(format)), processor_(read_image_processor(folder, format_.sizes)) {}

ProcessedImage ImageReader::read(const std::filesystem::path& file) const {
  return process_image(read_upright_image(file), processor_, file.string());
}

ImageReader::Grid ImageReader::grid_of(const ImageSize& size) const {
  if (format_.sizes.kind == ProcessorKind::kSquare) return {.rows = 1, .columns = format_.features};
  return {.rows = size.height / format_.sizes.side(), .columns = size.width / format_.sizes.side()};
}

std::int64_t ImageReader::tokens_of(const ImageSize& size) const {
  const Grid grid = grid_of(size);
  return grid.rows * grid.columns;
}

std::string ImageReader::text_of(const ImageSize& size) const {
  const auto [rows, columns] = grid_of(size);
  std::string text = format_.marks.begin;
  for (std::int64_t row = 0; row < rows; ++row) {
    if (row > 0) text += format_.marks.row_end;
    for (std::int64_t column = 0; column < columns; ++column) text += format_.marks.token;
  }
  return text + format_.marks.end;
}

std::size_t ImageReader::marks_in(const std::string& text) const {
  const std::string& mark = format_.marks.mark;
  std::size_t count = 0;
  for (std::size_t at = 0; (at = text.find(mark, at)) != std::string::npos; at += mark.size()) ++count;
  return count;
}

ImageText ImageReader::expanded(const std::string& text, std::span<const ImageSize> sizes) const {
  const std::string& mark = format_.marks.mark;
  ImageText made;
  std::size_t begin = 0;
  for (const ImageSize& size : sizes) {
    const std::size_t at = text.find(mark, begin);
    made.text.append(text, begin, at - begin);
    const std::size_t first = made.text.size();
    made.text += text_of(size);
    made.images.emplace_back(first, made.text.size());
    begin = at + mark.size();
  }
  made.text.append(text, begin);
  return made;
}

std::string ImageReader::key() const {
  const auto& [sizes, marks, token, features] = format_;
  return nlohmann::json{"upright",
                        static_cast<int>(sizes.kind),
                        sizes.size,
                        sizes.patch,
                        sizes.merge,
                        marks.mark,
                        marks.begin,
                        marks.token,
                        marks.row_end,
                        marks.end,
                        token,
                        features,
                        processor_.least_pixels,
                        processor_.most_pixels,
                        processor_.longest_edge}
      .dump();
}

}  // namespace gantry
