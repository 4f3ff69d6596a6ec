// Filters and tests of jinja2, by name.
#pragma once

#include <string>

#include "gantry/data/jinja/object.h"

namespace gantry::jinja {

// Throw RenderError for an unknown name, and for arguments that the filter or test rejects.
Value apply_filter(const std::string& name, const Value& value, const Arguments& arguments);
bool apply_test(const std::string& name, const Value& value, const Arguments& arguments);

bool is_filter(const std::string& name);
bool is_test(const std::string& name);

struct NamedFilter {
  const char* name;
  Value (*apply)(const Value& value, const Arguments& arguments);
};

// In filters_text.cpp and filters_list.cpp; ended by an entry without a name.
extern const NamedFilter kTextFilters[];
extern const NamedFilter kListFilters[];

// The value at "a.b.0" or an integer within an item, as filters with `attribute` look it up. `fallback` is taken for
// undefined ones unless it is null.
Value value_at(const Value& item, const Value& path, const Value* fallback = nullptr);

}  // namespace gantry::jinja
