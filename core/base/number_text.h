// Numbers with their unit, for lines that people read.
#pragma once

#include <cstdint>
#include <string>

namespace gantry {

// "1 host", "2 hosts", "2 microbatches". `noun`: in the singular, with a plural in -s, or in -es after "ch".
std::string quantity(std::int64_t number, const std::string& noun);

// Three digits with a binary unit up to TiB: "1.5 GiB", "560 KiB", "12 B".
std::string bytes_text(double bytes);

}  // namespace gantry
