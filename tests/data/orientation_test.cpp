// The orientation of photos: files with Exif compared with the definition of the tag, and where it is applied.
#include "gantry/data/images/orientation.h"

#include <filesystem>
#include <gtest/gtest.h>

#include "gantry/data/data_loader.h"
#include "gantry/data/images/image_file.h"
#include "gantry/data/images/image_folder.h"
#include "gantry/tensors/libtorch.h"
#include "image_chats_rig.h"

namespace gantry::testing {
namespace {

const std::string kPhotos = GANTRY_SOURCE_DIR "/tests/golden/images/";
constexpr std::uint32_t kOrientationTag = 274, kShortType = 3;

std::string bytes_of_number(std::uint32_t number, int count, bool little_endian = false) {
  std::string bytes;
  for (int i = 0; i < count; ++i) bytes += static_cast<char>(number >> 8 * (little_endian ? i : count - 1 - i) & 0xFF);
  return bytes;
}

struct ExifOf {
  std::uint32_t orientation = 1;
  bool little_endian = false;
  std::uint32_t directory = 8, tag = kOrientationTag, type = kShortType;

  // A directory with the width of the image, and the tag.
  std::string bytes() const {
    const auto number = [&](std::uint32_t value, int count) { return bytes_of_number(value, count, little_endian); };
    const std::string width = number(256, 2) + number(kShortType, 2) + number(1, 4) + number(37, 2) + number(0, 2);
    return (little_endian ? "II" : "MM") + number(42, 2) + number(directory, 4) + number(2, 2) + width +
           number(tag, 2) + number(type, 2) + number(1, 4) + number(orientation, 2) + number(0, 2) + number(0, 4);
  }
};

// A segment after the first mark.
std::string jpeg_with(const std::string& exif) {
  std::string file = read_file(kPhotos + "rgb.jpg");
  const std::string content = std::string("Exif\0\0", 6) + exif;
  return file.insert(2, "\xFF\xE1" + bytes_of_number(static_cast<std::uint32_t>(content.size() + 2), 2) + content);
}

// The sum of a PNG chunk: CRC-32.
std::uint32_t sum_of_chunk(const std::string& bytes) {
  std::uint32_t sum = 0xFFFFFFFF;
  for (const char byte : bytes) {
    sum ^= static_cast<std::uint8_t>(byte);
    for (int bit = 0; bit < 8; ++bit) sum = sum >> 1 ^ (sum & 1 ? 0xEDB88320 : 0);
  }
  return ~sum;
}

// A chunk after the first one, which has 25 bytes.
std::string png_with(const std::string& exif) {
  std::string file = read_file(kPhotos + "rgb.png");
  const std::string chunk = "eXIf" + exif;
  return file.insert(8 + 25, bytes_of_number(static_cast<std::uint32_t>(exif.size()), 4) + chunk +
                                 bytes_of_number(sum_of_chunk(chunk), 4));
}

int orientation_in(const std::string& file) { return orientation_of(std::as_bytes(std::span(file))); }

// Exif 2.32: the sides of the upright image where row 0 and column 0 of the file are.
struct Sides {
  char row, column;  // t(op), b(ottom), l(eft), r(ight)
};
constexpr Sides kSides[] = {{'t', 'l'}, {'t', 'r'}, {'b', 'r'}, {'b', 'l'},
                            {'l', 't'}, {'r', 't'}, {'r', 'b'}, {'l', 'b'}};

void expect_upright(const Image& stored, const Image& turned, int orientation) {
  const auto [row_side, column_side] = kSides[orientation - 1];
  const bool rows_stay = row_side == 't' || row_side == 'b';
  ASSERT_EQ(std::pair(turned.width, turned.height),
            rows_stay ? std::pair(stored.width, stored.height) : std::pair(stored.height, stored.width));
  int x = 0, y = 0;
  const auto place_at = [&](char side, int distance) {
    if (side == 't') y = distance;
    if (side == 'b') y = turned.height - 1 - distance;
    if (side == 'l') x = distance;
    if (side == 'r') x = turned.width - 1 - distance;
  };
  int differences = 0;
  for (int row = 0; row < stored.height; ++row)
    for (int column = 0; column < stored.width; ++column) {
      place_at(row_side, row);
      place_at(column_side, column);
      for (int colour = 0; colour < kColours; ++colour)
        differences += turned.row(y)[x * kColours + colour] != stored.row(row)[column * kColours + colour];
    }
  EXPECT_EQ(differences, 0);
}

TEST(Orientation, TurnsPhotosAsTheTagIsDefined) {
  const ScratchFolder scratch;
  for (int orientation = 1; orientation <= 8; ++orientation)
    for (const bool little : {false, true}) {
      SCOPED_TRACE(orientation);
      const std::string exif = ExifOf{static_cast<std::uint32_t>(orientation), little}.bytes();
      const std::pair<std::string, const char*> files[] = {{jpeg_with(exif), "rgb.jpg"}, {png_with(exif), "rgb.png"}};
      for (const auto& [file, stored] : files) {
        EXPECT_EQ(orientation_in(file), orientation);
        const Image image = read_image(kPhotos + stored);
        const std::string path = scratch.write("photo", file);
        expect_upright(image, read_upright_image(path), orientation);
        EXPECT_EQ(read_image(path).pixels, image.pixels) << stored;
      }
    }
}

TEST(Orientation, BrokenExifIsUpright) {
  const ExifOf turned{.orientation = 6};
  const std::string exif = turned.bytes();
  constexpr std::size_t kEndOfEntry = 8 + 2 + 12 + 12;  // header, count, and two entries
  for (std::size_t length = 0; length <= exif.size(); ++length) {
    const int expected = length < kEndOfEntry ? 1 : 6;
    EXPECT_EQ(orientation_in(jpeg_with(exif.substr(0, length))), expected) << length;
    EXPECT_EQ(orientation_in(png_with(exif.substr(0, length))), expected) << length;
  }
  const ExifOf broken[] = {{.orientation = 0},
                           {.orientation = 9},
                           {.orientation = 65535},
                           {.orientation = 6, .directory = 0},
                           {.orientation = 6, .directory = static_cast<std::uint32_t>(exif.size())},
                           {.orientation = 6, .directory = 0x7FFFFFFF},
                           {.orientation = 6, .directory = 0xFFFFFFFF},
                           {.orientation = 6, .tag = 275},
                           {.orientation = 6, .type = 2}};
  for (const ExifOf& each : broken) {
    EXPECT_EQ(orientation_in(jpeg_with(each.bytes())), 1) << each.orientation << " " << each.directory;
    EXPECT_EQ(orientation_in(png_with(each.bytes())), 1) << each.orientation << " " << each.directory;
  }
  std::string many = exif;  // the number of entries is far above the bytes
  many.replace(8, 2, "\xFF\xFF").replace(22, 2, bytes_of_number(275, 2));
  EXPECT_EQ(orientation_in(jpeg_with(many)), 1);
  EXPECT_EQ(orientation_in(jpeg_with("XX" + exif.substr(2))), 1);
  std::string wide = exif;  // a number of four bytes, which Pillow reads too
  wide.replace(24, 2, bytes_of_number(4, 2)).replace(30, 4, bytes_of_number(6, 4));
  EXPECT_EQ(orientation_in(jpeg_with(wide)), 6);
}

// Files that end before or within their Exif, and files without one.
TEST(Orientation, FilesWithoutExifAreUpright) {
  const std::string exif = ExifOf{.orientation = 6}.bytes();
  for (const std::string& file : {jpeg_with(exif), png_with(exif)}) {
    ASSERT_EQ(orientation_in(file), 6);
    const std::size_t value = file.find(bytes_of_number(kOrientationTag, 2) + bytes_of_number(kShortType, 2)) + 8;
    for (std::size_t length = 0; length < value + 2; ++length)
      EXPECT_EQ(orientation_in(file.substr(0, length)), 1) << length;
  }
  for (const char* file : {"rgb.jpg", "cmyk.jpg", "progressive.jpg", "rgb.png", "palette.png"})
    EXPECT_EQ(orientation_in(read_file(kPhotos + file)), 1) << file;
  EXPECT_EQ(orientation_in("these are no pixels"), 1);
}

TEST(Orientation, ChatsUseIt) {
  const ScratchFolder scratch;
  const std::string photo = scratch.write("photo.jpg", jpeg_with(ExifOf{.orientation = 6}.bytes()));
  for (const std::string& family : kChatFamilies) {
    const auto reader = chat_images(family);
    const ImageProcessor processor = read_image_processor(kChatFolder + family, reader->format().sizes);
    const Image stored = read_image(kPhotos + "rgb.jpg");
    const ProcessedImage expected = process_image(upright(stored, 6), processor, photo), got = reader->read(photo);
    EXPECT_EQ(got.size, expected.size) << family;
    EXPECT_EQ(got.numbers, expected.numbers) << family;
    EXPECT_NE(got.numbers, process_image(stored, processor, photo).numbers) << family;
  }
}

TEST(Orientation, DirectoriesOfImagesIgnoreIt) {
  const ScratchFolder scratch;
  std::filesystem::create_directories(scratch / "set/ant");
  std::filesystem::create_directories(scratch / "set/bee");
  scratch.write("set/ant/turned.jpg", jpeg_with(ExifOf{.orientation = 6}.bytes()));
  scratch.write("set/bee/plain.jpg", read_file(kPhotos + "rgb.jpg"));
  const DataConfig config{.format = "images", .path = scratch / "set"};
  const Loader loader(
      image_source(config, {.settings = {.size = 6}, .trains = false, .seed = 3, .labels = 2}, "data.path"),
      {.shuffle = false});
  const torch::Tensor pixels = loader.batch(0, 2).tensors.at("pixel_values");
  EXPECT_TRUE(torch::equal(pixels[0], pixels[1]));
}

}  // namespace
}  // namespace gantry::testing
