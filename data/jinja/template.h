// Jinja as Hugging Face's apply_chat_template runs it: jinja2 3.1 in an immutable sandbox, with trim_blocks,
// lstrip_blocks, loop controls and {% generation %}.
#pragma once

#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gantry/data/jinja/meter.h"
#include "gantry/data/jinja/value.h"

namespace gantry::jinja {

struct Rendered {
  std::string text;
  // [begin, end) of the text of each {% generation %} block, in order.
  std::vector<std::pair<std::size_t, std::size_t>> generated;
};

// The variables of a rendering. A later one replaces an earlier one of the same name.
using Variables = std::vector<std::pair<std::string, Value>>;

Value value_of(const nlohmann::ordered_json& json);
Variables variables_of(const nlohmann::ordered_json& object);

// May be rendered from several threads at once.
class Template {
 public:
  // Throws RenderError, in one line with row and column, if the text is not a template.
  explicit Template(const std::string& source);
  ~Template();
  Template(Template&&) noexcept;
  Template& operator=(Template&&) noexcept;

  // `format_time`: strftime_now(). Throws RenderError, in one line with row and column, and RaisedError with the text
  // that the template calls raise_exception() with.
  Rendered render(const Variables& variables, const std::function<std::string(const std::string&)>& format_time,
                  const Limits& limits = {}) const;

  // The text of {% if name %} text {% endif %} at the end of the template, if there is nothing but constants between.
  std::optional<std::string> constant_end(const std::string& name) const;

 private:
  struct Tree;
  std::unique_ptr<const Tree> tree_;
};

}  // namespace gantry::jinja
