// What a header of the project's own declares, for the pages that are made of it: each declaration with its comment.
// Reads what clang-format leaves, which is all that there is.
#pragma once

#include <string>
#include <vector>

namespace gantry::testing {

struct HeaderDeclaration {
  std::vector<std::string> names;  // "attention", "class ProcessGroup"
  std::string contract;            // the comment above it, without slashes; may be empty
  std::string code;                // as it stands there, but for bodies and what is private
};

// The comment at the head of a file.
std::string purpose_of(const std::string& header);

// Types, functions, constants, aliases and macros, in order. Declarations that follow one another under one comment,
// and overloads that do, are one. Forward declarations and namespaces called detail are left out.
std::vector<HeaderDeclaration> declarations_in(const std::string& header);

}  // namespace gantry::testing
