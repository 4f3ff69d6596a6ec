// Texts of errors about files of a checkpoint that differ from the written ones.
#pragma once

#include <string>

namespace gantry {

inline constexpr const char* kDamaged = "use another checkpoint, because this one is damaged";

// "it looks like a Git LFS pointer; ...", judged by the first bytes of the file; "" if they match no known
// form.
std::string file_likeness(const std::string& path);
// The remedy for a damaged file: file_likeness() or, if that is empty, kDamaged.
std::string damage_remedy(const std::string& path);

}  // namespace gantry
