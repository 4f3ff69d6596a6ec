#include "gantry/core/config/schedule_names.h"

#include <algorithm>

namespace gantry {

const std::vector<ScheduleName>& schedule_names() {
  static const std::vector<ScheduleName> all = {{"gpipe"},     {"1f1b"},     {"interleaved_1f1b"}, {"breadth_first"},
                                                {"zb_h1"},     {"zb_h2"},    {"zb_auto"},          {"zb_v", 2},
                                                {"v_half", 2}, {"v_min", 2}, {"v_1f1b", 2},        {"dualpipe_v", 2}};
  return all;
}

int default_chunks(const std::string& schedule) {
  const auto found = std::ranges::find(schedule_names(), schedule, &ScheduleName::name);
  return found == schedule_names().end() ? 1 : found->default_chunks;
}

int chunks_of(const ScheduleOptions& schedule) { return std::max(schedule.chunks, default_chunks(schedule.name)); }

bool is_schedule_file(const std::string& name) { return name.ends_with(".csv"); }

}  // namespace gantry
