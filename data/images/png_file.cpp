#include <csetjmp>
#include <cstdio>
#include <cstring>
#include <png.h>

#include "gantry/data/images/image_file.h"

namespace gantry {
namespace {

// The library reports errors by longjmp(). No object with a destructor may be created between setjmp() and
// the jump, so the buffers are here.
struct PngReading {
  std::span<const std::byte> left;
  png_structp png = nullptr;
  png_infop info = nullptr;
  std::jmp_buf back{};
  char text[200] = "";
  std::vector<png_bytep> rows;
};

void give_up_png(png_structp png, png_const_charp text) {
  auto* reading = static_cast<PngReading*>(png_get_error_ptr(png));
  std::snprintf(reading->text, sizeof reading->text, "%s", text);
  std::longjmp(reading->back, 1);
}

void pass_over(png_structp, png_const_charp) {}

void take_bytes(png_structp png, png_bytep to, std::size_t count) {
  auto* reading = static_cast<PngReading*>(png_get_io_ptr(png));
  if (reading->left.size() < count) png_error(png, "the file is truncated");
  std::memcpy(to, reading->left.data(), count);
  reading->left = reading->left.subspan(count);
}

// Makes the library convert the image to RGB of 8 bits per colour.
void ask_for_rgb(const PngReading& reading) {
  png_set_expand(reading.png);
  png_set_strip_16(reading.png);
  png_set_strip_alpha(reading.png);
  png_set_gray_to_rgb(reading.png);
}

std::string read_png(PngReading& reading, std::uint64_t most_pixels, Image& image) {
  png_set_user_limits(reading.png, 0x7FFFFFFF, 0x7FFFFFFF);  // size_fault() decides
  png_read_info(reading.png, reading.info);
  const png_uint_32 width = png_get_image_width(reading.png, reading.info),
                    height = png_get_image_height(reading.png, reading.info);
  if (std::string fault = size_fault(width, height, most_pixels); !fault.empty()) return fault;
  ask_for_rgb(reading);
  png_set_interlace_handling(reading.png);
  png_read_update_info(reading.png, reading.info);
  image = Image(static_cast<int>(width), static_cast<int>(height));
  for (int y = 0; y < image.height; ++y) reading.rows.push_back(image.row(y));
  png_read_image(reading.png, reading.rows.data());
  png_read_end(reading.png, nullptr);
  return "";
}

}  // namespace

bool is_png(std::span<const std::byte> bytes) {
  return bytes.size() >= 8 && png_sig_cmp(reinterpret_cast<png_const_bytep>(bytes.data()), 0, 8) == 0;
}

std::string decode_png(std::span<const std::byte> bytes, std::uint64_t most_pixels, Image& image) {
  PngReading reading{.left = bytes};
  std::string fault;
  if (setjmp(reading.back) == 0) {
    reading.png = png_create_read_struct(PNG_LIBPNG_VER_STRING, &reading, give_up_png, pass_over);
    reading.info = reading.png ? png_create_info_struct(reading.png) : nullptr;
    if (reading.info) {
      png_set_read_fn(reading.png, &reading, take_bytes);
      fault = read_png(reading, most_pixels, image);
    } else {
      fault = "libpng cannot be initialised";
    }
  } else {
    fault = reading.text;
  }
  png_destroy_read_struct(&reading.png, &reading.info, nullptr);
  return fault;
}

}  // namespace gantry
