// Writes scalars to TensorBoard event files. A file is a sequence of records, each framed by its length and
// masked CRC-32C checksums. A record contains an Event protocol buffer.
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace gantry {

// Returns one record: the length, its checksum, the bytes, and their checksum.
std::string event_record(std::string_view bytes);

// Returns an Event with the scalars of a step. `seconds`: the time since 1970.
std::string scalar_event(double seconds, std::int64_t step, const std::vector<std::pair<std::string, double>>& scalars);

class EventFile {
 public:
  // Creates FOLDER/events.out.tfevents.SECONDS.HOST.PROCESS, and the directory. TensorBoard then ignores the
  // entries of earlier files from `first_step` on. Throws ResourceError if the file cannot be written.
  EventFile(const std::string& folder, std::int64_t first_step);
  ~EventFile();
  EventFile(const EventFile&) = delete;
  EventFile& operator=(const EventFile&) = delete;

  // Writes and flushes one record, so that readers see complete records.
  void write(std::int64_t step, const std::vector<std::pair<std::string, double>>& scalars);

 private:
  void append(const std::string& event);
  std::string path_;
  std::FILE* file_ = nullptr;
};

}  // namespace gantry
