// Makes nodes of a template's tree.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "gantry/data/jinja/syntax.h"

namespace gantry::jinja {

// Throws SyntaxError for a tree that is too deep.
Expression made_of(Expression::Kind kind, Place place, std::vector<Expression> parts, std::string name = "");
Expression constant(Place place, Value value);
// Lists of initializers would copy trees.
std::vector<Expression> one_of(Expression part);
std::vector<Expression> pair_of(Expression one, Expression other);

}  // namespace gantry::jinja
