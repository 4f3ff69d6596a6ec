// The declarations of a header of the project with their comments, for the generated API pages. The header must be
// formatted by clang-format.
#pragma once

#include <string>
#include <vector>

namespace gantry::testing {

struct HeaderDeclaration {
  std::vector<std::string> names;  // "attention", "class ProcessGroup"
  std::string contract;            // the comment above it, without slashes; may be empty
  std::string code;                // verbatim, without bodies and private members
};

// The comment at the head of a file.
std::string purpose_of(const std::string& header);

// Types, functions, constants, aliases and macros, in order. Declarations that follow one another under one comment,
// and overloads that do, are one. Forward declarations and namespaces called detail are left out.
std::vector<HeaderDeclaration> declarations_in(const std::string& header);

}  // namespace gantry::testing
