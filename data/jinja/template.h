// Jinja as Hugging Face's apply_chat_template runs it: jinja2 3.1 in an immutable sandbox, with trim_blocks,
// lstrip_blocks, loop controls and {% generation %}.
#pragma once

#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <utility>
#include <vector>

#include "gantry/data/jinja/meter.h"

namespace gantry::jinja {

struct Rendered {
  std::string text;
  // [begin, end) of the text of each {% generation %} block, in order.
  std::vector<std::pair<std::size_t, std::size_t>> generated;
};

// May be rendered from several threads at once.
class Template {
 public:
  // Throws RenderError, in one line with row and column, if the text is not a template.
  explicit Template(const std::string& source);
  ~Template();
  Template(Template&&) noexcept;
  Template& operator=(Template&&) noexcept;

  // `variables`: an object. `format_time`: strftime_now(). Throws RenderError, in one line with row and column, and
  // RaisedError with the text that the template calls raise_exception() with.
  Rendered render(const nlohmann::ordered_json& variables,
                  const std::function<std::string(const std::string&)>& format_time, const Limits& limits = {}) const;

 private:
  struct Tree;
  std::unique_ptr<const Tree> tree_;
};

}  // namespace gantry::jinja
