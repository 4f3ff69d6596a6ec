#include "gantry/data/jinja/syntax_nodes.h"

#include <algorithm>
#include <fmt/format.h>

namespace gantry::jinja {
namespace {

constexpr int kDeepestTree = 300;  // chains of operators nest without a recursion of the parser

}  // namespace

Expression made_of(Expression::Kind kind, Place place, std::vector<Expression> parts, std::string name) {
  int depth = 0;
  for (const Expression& part : parts) depth = std::max(depth, part.depth);
  if (depth >= kDeepestTree) throw SyntaxError(place, fmt::format("more than {} nested operations", kDeepestTree));
  return {.kind = kind, .place = place, .name = std::move(name), .parts = std::move(parts), .depth = depth + 1};
}

std::vector<Expression> one_of(Expression part) {
  std::vector<Expression> parts;
  parts.push_back(std::move(part));
  return parts;
}

std::vector<Expression> pair_of(Expression one, Expression other) {
  std::vector<Expression> parts = one_of(std::move(one));
  parts.push_back(std::move(other));
  return parts;
}

Expression constant(Place place, Value value) {
  return {.kind = Expression::Kind::kConstant, .place = place, .value = std::move(value)};
}

}  // namespace gantry::jinja
