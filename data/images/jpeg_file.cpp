#include <algorithm>
#include <csetjmp>
#include <cstdio>
#include <jerror.h>
#include <jpeglib.h>

#include "gantry/data/images/image_file.h"

namespace gantry {
namespace {

// The library reports errors by longjmp(). No object with a destructor may be created between setjmp() and
// the jump, so the buffers are here.
struct JpegReading {
  jpeg_decompress_struct info{};
  jpeg_error_mgr errors{};
  std::jmp_buf back{};
  char text[JMSG_LENGTH_MAX] = "";
  bool has_ended = false;                  // within the pixels or after them
  std::vector<std::uint8_t> four_colours;  // a row of CMYK
};

void give_up(j_common_ptr info) {
  auto* reading = static_cast<JpegReading*>(info->client_data);
  reading->errors.format_message(info, reading->text);
  std::longjmp(reading->back, 1);
}

// Ignores damage that the library repairs, like Pillow, but rejects a file that ends within the image. If a file with
// one scan lacks the mark of its end alone, the library finds all pixels. With arithmetic codes it reports no missing
// ones, so these files need the mark.
void hear_warning(j_common_ptr info, int level) {
  auto* reading = static_cast<JpegReading*>(info->client_data);
  if (level >= 0) return;
  if (info->err->msg_code == JWRN_HIT_MARKER && reading->has_ended) std::longjmp(reading->back, 1);
  if (info->err->msg_code != JWRN_JPEG_EOF) return;
  if (reading->info.output_width == 0 || reading->info.arith_code || jpeg_has_multiple_scans(&reading->info))
    give_up(info);
  reading->errors.format_message(info, reading->text);
  reading->has_ended = true;
}

// Converts inverted CMYK, which Adobe's programs write, to RGB, with Pillow's rounding.
void append_rgb(const std::uint8_t* from, int pixels, std::uint8_t* to) {
  for (int i = 0; i < pixels; ++i, from += 4, to += kColours)
    for (int colour = 0; colour < kColours; ++colour) {
      const int ink = 255 - from[colour], light = from[3], product = ink * light + 128;
      to[colour] = static_cast<std::uint8_t>(std::max(0, light - (((product >> 8) + product) >> 8)));
    }
}

// Returns a fault that the library does not report; "" if there is none.
std::string read_jpeg(JpegReading& reading, std::uint64_t most_pixels, Image& image) {
  jpeg_decompress_struct& info = reading.info;
  jpeg_read_header(&info, TRUE);
  if (std::string fault = size_fault(info.image_width, info.image_height, most_pixels); !fault.empty()) return fault;
  const bool is_cmyk = info.jpeg_color_space == JCS_CMYK || info.jpeg_color_space == JCS_YCCK;
  info.out_color_space = is_cmyk ? JCS_CMYK : JCS_RGB;
  image = Image(static_cast<int>(info.image_width), static_cast<int>(info.image_height));
  if (is_cmyk) reading.four_colours.resize(static_cast<std::size_t>(image.width) * 4);
  jpeg_start_decompress(&info);
  while (info.output_scanline < info.output_height) {
    std::uint8_t* to = image.row(static_cast<int>(info.output_scanline));
    JSAMPROW row = is_cmyk ? reading.four_colours.data() : to;
    jpeg_read_scanlines(&info, &row, 1);
    if (is_cmyk) append_rgb(row, image.width, to);
  }
  jpeg_finish_decompress(&info);
  return "";
}

}  // namespace

bool is_jpeg(std::span<const std::byte> bytes) {
  return bytes.size() >= 3 && bytes[0] == std::byte{0xFF} && bytes[1] == std::byte{0xD8} && bytes[2] == std::byte{0xFF};
}

std::string decode_jpeg(std::span<const std::byte> bytes, std::uint64_t most_pixels, Image& image) {
  JpegReading reading;
  reading.info.err = jpeg_std_error(&reading.errors);
  reading.info.client_data = &reading;
  reading.errors.error_exit = give_up;
  reading.errors.emit_message = hear_warning;
  std::string fault;
  if (setjmp(reading.back) == 0) {
    jpeg_create_decompress(&reading.info);
    jpeg_mem_src(&reading.info, reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size());
    fault = read_jpeg(reading, most_pixels, image);
  } else {
    fault = reading.text;
  }
  jpeg_destroy_decompress(&reading.info);
  return fault;
}

}  // namespace gantry
