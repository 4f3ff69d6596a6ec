// Queries about paths. They throw an InputError that names the path if the system cannot answer: a directory without
// permission, a name that is too long, a loop of links. Callers do not expect the exceptions of std::filesystem.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

namespace gantry {

// Returns false only if the path does not exist.
bool path_exists(const std::filesystem::path& path);
bool is_folder(const std::filesystem::path& path);  // follows links
bool is_file(const std::filesystem::path& path);    // a regular file; follows links
// The entries of a directory, sorted, as FOLDER/NAME. A directory that does not exist is an error.
std::vector<std::filesystem::path> entries_of(const std::filesystem::path& folder);
// The regular files in the directory and its subdirectories, sorted. Follows links. A link to nothing is an error,
// unless its name begins with a dot, as those of editors do.
std::vector<std::filesystem::path> files_below(const std::filesystem::path& folder);

}  // namespace gantry
