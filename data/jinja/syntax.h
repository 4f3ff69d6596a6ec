// The tree of a parsed template.
#pragma once

#include <string>
#include <vector>

#include "gantry/data/jinja/lexer.h"
#include "gantry/data/jinja/value.h"

namespace gantry::jinja {

struct Argument;

struct Expression {
  enum class Kind {
    kConstant,       // value
    kName,           // name
    kList,           // parts
    kTuple,          // parts
    kMapping,        // parts: keys and values in turn
    kAttribute,      // parts[0].name
    kItem,           // parts[0][parts[1]]
    kSlice,          // parts[0][parts[1]:parts[2]:parts[3]], a constant None where one is left out
    kCall,           // parts[0](arguments)
    kFilter,         // parts[0] | name(arguments); without parts: of the text of a block
    kTest,           // parts[0] is name(arguments)
    kNot,            // not parts[0]
    kNegative,       // -parts[0]
    kPositive,       // +parts[0]
    kAnd,            // parts[0] and parts[1]
    kOr,             // parts[0] or parts[1]
    kConditional,    // parts[1] if parts[0], else parts[2] if there are three
    kOperation,      // parts[0] name parts[1]: an operator of arithmetic
    kConcatenation,  // parts, joined by ~
    kComparison,     // parts[0] operators[0] parts[1] operators[1] ...
  };
  Kind kind = Kind::kConstant;
  Place place;
  std::string name;
  Value value;
  std::vector<Expression> parts;
  std::vector<Argument> arguments;
  std::vector<std::string> operators;
  int depth = 1;  // levels of the tree
};

struct Argument {
  enum class Kind { kPlain, kNamed, kSpread, kSpreadNamed };  // value, name=value, *value, **value
  Kind kind = Kind::kPlain;
  std::string name;
  Expression value;
};

struct Parameter {
  std::string name;
  bool has_default = false;
  Expression fallback;
};

struct Statement {
  enum class Kind {
    kText,         // text
    kOutput,       // expressions
    kFor,          // target, expressions: iterable and maybe a test; body, otherwise
    kIf,           // expressions[0], body, otherwise
    kSet,          // target, expressions[0]
    kSetBlock,     // target, body; expressions: a filter, if any
    kMacro,        // text: the name; parameters, body
    kCallBlock,    // expressions[0]: the call; parameters, body
    kFilterBlock,  // expressions[0], body
    kWith,         // targets and expressions, body
    kBlock,        // body
    kGeneration,   // body
    kBreak,
    kContinue,
  };
  Kind kind = Kind::kText;
  Place place;
  std::string text;
  Expression target;
  std::vector<Expression> targets, expressions;
  std::vector<Parameter> parameters;
  std::vector<Statement> body, otherwise;
  bool is_recursive = false;  // a loop can be called
  bool is_scoped = false;     // a block sees the variables around it
  // Special variables that the body of a macro or call block names.
  bool uses_caller = false, uses_values = false, uses_named = false;
};

// Throws SyntaxError, in one line.
std::vector<Statement> parsed(const std::string& source);

}  // namespace gantry::jinja
