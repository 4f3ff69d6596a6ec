#include "gantry/trainer/report/event_file.h"

#include <array>
#include <bit>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fmt/format.h>
#include <unistd.h>

#include "gantry/core/error.h"
#include "gantry/core/host/this_host.h"

namespace gantry {
namespace {

constexpr std::uint32_t kPolynomial = 0x82f63b78;  // Castagnoli's, bits reversed

std::array<std::uint32_t, 256> make_table() {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t i = 0; i < table.size(); ++i) {
    std::uint32_t value = i;
    for (int bit = 0; bit < 8; ++bit) value = (value >> 1) ^ (value & 1 ? kPolynomial : 0);
    table[i] = value;
  }
  return table;
}

template <class Number>
std::string little_endian(Number value) {
  std::string bytes;
  for (std::size_t i = 0; i < sizeof(Number); ++i) bytes += static_cast<char>(value >> (8 * i));
  return bytes;
}

// TensorFlow's: a check of bytes that hold checks would be weak.
std::uint32_t masked(std::uint32_t crc) { return ((crc >> 15) | (crc << 17)) + 0xa282ead8u; }

// Protocol buffers' wire format. Numbers of fields are those of TensorBoard's event.proto and summary.proto.
enum Wire { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

std::string varint(std::uint64_t value) {
  std::string bytes;
  for (; value >= 128; value >>= 7) bytes += static_cast<char>(value | 128);
  return bytes + static_cast<char>(value);
}
std::string key(int field, Wire wire) { return varint(static_cast<std::uint64_t>(field) << 3 | wire); }
std::string message(int field, std::string_view bytes) {
  return key(field, kBytes) + varint(bytes.size()) + std::string(bytes);
}

std::string event_head(double seconds, std::int64_t step) {
  return key(1, kFixed64) + little_endian(std::bit_cast<std::uint64_t>(seconds)) + key(2, kVarint) +
         varint(static_cast<std::uint64_t>(step));
}

// Since 1970, as TensorBoard has them.
double wall_seconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace

std::uint32_t crc32c(std::string_view bytes) {
  static const auto table = make_table();
  std::uint32_t crc = ~0u;
  for (const char c : bytes) crc = (crc >> 8) ^ table[(crc ^ static_cast<unsigned char>(c)) & 255];
  return ~crc;
}

std::string event_record(std::string_view bytes) {
  const std::string length = little_endian(static_cast<std::uint64_t>(bytes.size()));
  return length + little_endian(masked(crc32c(length))) + std::string(bytes) + little_endian(masked(crc32c(bytes)));
}

std::string scalar_event(double seconds, std::int64_t step,
                         const std::vector<std::pair<std::string, double>>& scalars) {
  std::string values;
  for (const auto& [tag, number] : scalars) {
    const auto bits = std::bit_cast<std::uint32_t>(static_cast<float>(number));
    values += message(1, message(1, tag) + key(2, kFixed32) + little_endian(bits));
  }
  return event_head(seconds, step) + message(5, values);
}

EventFile::EventFile(const std::string& folder, std::int64_t first_step) {
  std::error_code ignored;  // the open below says what is wrong
  std::filesystem::create_directories(folder, ignored);
  // Readers take a folder's files by their names: with microseconds a resumed run's is never before what it goes on
  // from.
  path_ = fmt::format("{}/events.out.tfevents.{:.6f}.{}.{}", folder, wall_seconds(), host_name(), getpid());
  file_ = std::fopen(path_.c_str(), "ab");
  if (!file_) throw ResourceError({path_, std::strerror(errno), "a writable file", "choose another `output`"});
  append(event_head(wall_seconds(), 0) + message(3, "brain.Event:2"));
  // A session that starts at this step: readers drop later steps of sessions before it.
  constexpr int kStart = 1;
  append(event_head(wall_seconds(), first_step) + message(7, key(1, kVarint) + varint(kStart)));
}

EventFile::~EventFile() {
  if (file_) std::fclose(file_);
}

void EventFile::write(std::int64_t step, const std::vector<std::pair<std::string, double>>& scalars) {
  append(scalar_event(wall_seconds(), step, scalars));
}

void EventFile::append(const std::string& event) {
  const std::string record = event_record(event);
  if (std::fwrite(record.data(), 1, record.size(), file_) != record.size() || std::fflush(file_) != 0)
    throw ResourceError({path_, std::strerror(errno), "disk space for another record", "free some space"});
}

}  // namespace gantry
