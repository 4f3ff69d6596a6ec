// What is said of a checkpoint's file that is not what was written.
#pragma once

#include <string>

namespace gantry {

inline constexpr const char* kDamaged = "use another checkpoint, because this one is damaged";

// "it looks like a Git LFS pointer; ..." by the file's first bytes; "" where they tell nothing.
std::string file_likeness(const std::string& path);
// What to do about it: that, else kDamaged.
std::string damage_remedy(const std::string& path);

}  // namespace gantry
