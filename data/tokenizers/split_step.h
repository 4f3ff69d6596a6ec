// A step of a pre-tokenizer that splits text at delimiters, with the behaviors of Hugging Face's tokenizers.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "gantry/data/tokenizers/piece_step.h"

namespace gantry {

// The use of delimiters: each is a piece, they are removed, neighbours are one piece, or they are a part of the piece
// before or after them.
enum class SplitBehavior { kIsolated, kRemoved, kContiguous, kMergedWithPrevious, kMergedWithNext };

// Passes all parts of a text in order, and whether each one is a delimiter.
using VisitPart = std::function<void(std::string_view part, bool matches)>;
using FindParts = std::function<void(std::string_view text, const VisitPart& visit)>;

FindParts parts_by_text(std::string delimiter);                      // each occurrence
FindParts parts_by_class(bool (*is_delimiter)(char32_t character));  // each character of the class

class SplitStep final : public PieceStep {
 public:
  // `inverted`: the text between delimiters takes their part.
  SplitStep(FindParts parts, SplitBehavior behavior, bool inverted)
      : parts_(std::move(parts)), behavior_(behavior), inverted_(inverted) {}

  void split(std::string_view text, bool at_start, const TakePiece& take) const override;

 private:
  void split_merged(std::string_view text, bool at_start, const TakePiece& take) const;

  FindParts parts_;
  SplitBehavior behavior_;
  bool inverted_;
};

}  // namespace gantry
