// What lies at a path. A path that the system can't tell anything of (a folder that may not be read, a name that is too
// long, a loop of links) is an InputError that names it; std::filesystem's own functions throw what nobody expects.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

namespace gantry {

// False only where nothing is there.
bool path_exists(const std::filesystem::path& path);
bool is_folder(const std::filesystem::path& path);  // links are followed
bool is_file(const std::filesystem::path& path);    // a regular one, likewise
// What lies in a folder, sorted, as FOLDER/NAME. A folder that is not there is an error too.
std::vector<std::filesystem::path> entries_of(const std::filesystem::path& folder);
// The regular files in it and in the folders below it, sorted.
std::vector<std::filesystem::path> files_below(const std::filesystem::path& folder);

}  // namespace gantry
