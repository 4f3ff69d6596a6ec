#include "gantry/trainer/report/event_file.h"

#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fmt/format.h>
#include <unistd.h>

#include "gantry/core/error.h"
#include "gantry/core/host/this_host.h"
#include "gantry/trainer/report/checksums.h"
#include "gantry/trainer/report/little_endian.h"
#include "gantry/trainer/report/protobuf.h"

namespace gantry {
namespace {

// TensorFlow's masking of checksums: the CRC of data that contains CRCs would be weak.
std::uint32_t masked(std::uint32_t crc) { return ((crc >> 15) | (crc << 17)) + 0xa282ead8u; }

// The field numbers are those of TensorBoard's event.proto and summary.proto.
std::string event_head(double seconds, std::int64_t step) {
  return double_field(1, seconds) + varint_field(2, static_cast<std::uint64_t>(step));
}

// Returns the seconds since 1970, TensorBoard's time format.
double wall_seconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace

std::string event_record(std::string_view bytes) {
  const std::string length = little_endian(static_cast<std::uint64_t>(bytes.size()));
  return length + little_endian(masked(crc32c(length))) + std::string(bytes) + little_endian(masked(crc32c(bytes)));
}

std::string scalar_event(double seconds, std::int64_t step,
                         const std::vector<std::pair<std::string, double>>& scalars) {
  std::string values;
  for (const auto& [tag, number] : scalars)
    values += bytes_field(1, bytes_field(1, tag) + float_field(2, static_cast<float>(number)));
  return event_head(seconds, step) + bytes_field(5, values);
}

EventFile::EventFile(const std::string& folder, std::int64_t first_step) {
  std::error_code ignored;  // an error makes fopen() below fail
  std::filesystem::create_directories(folder, ignored);
  // Readers sort the files of a directory by name. The microseconds place the file of a resumed run after the
  // file of the run before.
  path_ = fmt::format("{}/events.out.tfevents.{:.6f}.{}.{}", folder, wall_seconds(), host_name(), getpid());
  file_ = std::fopen(path_.c_str(), "ab");
  if (!file_) throw ResourceError({path_, std::strerror(errno), "a writable file", "choose another `output`"});
  append(event_head(wall_seconds(), 0) + bytes_field(3, "brain.Event:2"));
  // Marks the start of a session at this step. Readers drop this and later steps of earlier sessions.
  constexpr int kStart = 1;
  append(event_head(wall_seconds(), first_step) + bytes_field(7, varint_field(1, kStart)));
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
