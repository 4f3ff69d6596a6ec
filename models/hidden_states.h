// The hidden states that a decoder returns next to its logits, for a loss that compares them with those of a teacher.
#pragma once

#include <string_view>

namespace gantry::models {

// The output with the input of the head, or its projection.
inline constexpr const char* kHiddenStates = "hidden_states";
// The path of the module that gives each rank of tp the hidden states of all tokens; it has no parameters.
inline constexpr const char* kFullHiddenStates = "full_hidden_states";
// The path of the matrix that projects them to the size of a teacher. It belongs to the training alone: no file of the
// model has it.
inline constexpr const char* kHiddenProjection = "hidden_projection";

// True for the name of a parameter of kHiddenProjection.
inline bool is_hidden_projection(std::string_view parameter) {
  constexpr std::string_view kName = kHiddenProjection;
  return parameter.starts_with(kName) && parameter.substr(kName.size()).starts_with('.');
}

}  // namespace gantry::models
