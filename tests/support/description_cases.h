// Small decoders that together have every flag of a description (models/description_flags_test.cpp has the table).
#pragma once

#include <vector>

#include "model_case.h"

namespace gantry::testing {

struct DescriptionCase {
  const char* name;
  ModelCase what;
};
std::vector<DescriptionCase> description_cases();

}  // namespace gantry::testing
