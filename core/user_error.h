// What the code of a user's own threw: a model, a policy, a criterion, a data set or the training loop.
#pragma once

#include "gantry/core/error.h"

namespace gantry {

struct UserError : detail::ErrorOf<9> {
  using ErrorOf::ErrorOf;
};  // an exception that is no gantry::Error

}  // namespace gantry
