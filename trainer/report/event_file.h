// Scalars in TensorBoard's event files: records framed by their length and masked CRC-32C checks, each an Event message
// of protocol buffers.
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace gantry {

// One record: length, its check, the bytes, their check.
std::string event_record(std::string_view bytes);

// An Event of the scalars of a step; `seconds` since 1970.
std::string scalar_event(double seconds, std::int64_t step, const std::vector<std::pair<std::string, double>>& scalars);

class EventFile {
 public:
  // Makes FOLDER/events.out.tfevents.SECONDS.HOST.PROCESS, and the folder. What earlier files have of steps from
  // `first_step` on is void to TensorBoard. ResourceError if it can't be written.
  EventFile(const std::string& folder, std::int64_t first_step);
  ~EventFile();
  EventFile(const EventFile&) = delete;
  EventFile& operator=(const EventFile&) = delete;

  // Flushed: a reader sees whole records.
  void write(std::int64_t step, const std::vector<std::pair<std::string, double>>& scalars);

 private:
  void append(const std::string& event);
  std::string path_;
  std::FILE* file_ = nullptr;
};

}  // namespace gantry
