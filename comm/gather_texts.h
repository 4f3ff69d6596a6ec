// Texts of all ranks on the first one.
#pragma once

#include <string>
#include <vector>

#include "gantry/comm/process_group.h"

namespace gantry {

// Every rank's text in rank order on rank 0 of the group; nothing on others. Collective over the group.
std::vector<std::string> gather_texts(ProcessGroup& group, const std::string& text);

}  // namespace gantry
