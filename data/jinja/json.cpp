// json.dumps() of Python.
#include <algorithm>
#include <cmath>
#include <fmt/format.h>

#include "gantry/data/jinja/meter.h"
#include "gantry/data/jinja/object.h"
#include "gantry/data/jinja/print.h"
#include "gantry/data/jinja/unicode.h"

namespace gantry::jinja {
namespace {

constexpr std::size_t kMostJson = std::size_t{64} << 20;

void append_escape(char32_t unit, std::string& made) {
  made += fmt::format("\\u{:04x}", static_cast<std::uint32_t>(unit));
}

void append_json_text(const std::string& text, bool is_ascii, std::string& made) {
  made += '"';
  for (const auto character : characters(text)) {
    const char32_t point = code_points(character)[0];
    switch (point) {
      case '"':
        made += "\\\"";
        break;
      case '\\':
        made += "\\\\";
        break;
      case '\n':
        made += "\\n";
        break;
      case '\r':
        made += "\\r";
        break;
      case '\t':
        made += "\\t";
        break;
      case '\f':
        made += "\\f";
        break;
      case '\b':
        made += "\\b";
        break;
      default:
        if (point < ' ' || (is_ascii && point > '~' && point <= 0xFFFF)) {
          append_escape(point, made);
        } else if (is_ascii && point > 0xFFFF) {
          append_escape(0xD800 + ((point - 0x10000) >> 10), made);
          append_escape(0xDC00 + ((point - 0x10000) & 0x3FF), made);
        } else {
          made += character;
        }
    }
  }
  made += '"';
}

std::string json_number(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value < 0 ? "-Infinity" : "Infinity";
  return printed(value);
}

std::string json_key(const Value& key) {
  if (key.is_text()) return key.bytes();
  if (key.is_none()) return "null";
  if (key.is_boolean()) return key.truth() ? "true" : "false";
  if (key.is_integer()) return printed(key.whole());
  if (key.is_real()) return json_number(key.number());
  throw RenderError(fmt::format("keys must be str, int, float, bool or None, not {}", key.type_name()));
}

class JsonWriter {
 public:
  explicit JsonWriter(const JsonStyle& style) : style_(style) {}

  void write(const Value& value, int level) {
    const Nesting nesting;
    spend_steps(1);
    if (made_.size() > kMostJson) throw RenderError("a string of more than 64 MiB");
    if (value.is_text())
      append_json_text(value.bytes(), style_.is_ascii, made_);
    else if (value.is_none())
      made_ += "null";
    else if (value.is_boolean())
      made_ += value.truth() ? "true" : "false";
    else if (value.is_integer())
      made_ += printed(value.whole());
    else if (value.is_real())
      made_ += json_number(value.number());
    else if (value.is_sequence())
      write_items(value.items(), level);
    else if (value.is_mapping())
      write_entries(value.entries(), level);
    else
      throw RenderError(fmt::format("Object of type {} is not JSON serializable", value.type_name()));
  }

  std::string take() { return std::move(made_); }

 private:
  void write_items(const Values& items, int level) {
    made_ += '[';
    for (std::size_t i = 0; i < items.size(); ++i) {
      begin_item(i == 0, level + 1);
      write(items[i], level + 1);
    }
    end_items(items.empty(), level);
    made_ += ']';
  }

  void write_entries(const Mapping& mapping, int level) {
    auto entries = mapping.items();
    if (style_.sorts_keys)
      std::ranges::stable_sort(entries, [](const auto& a, const auto& b) { return less(a.first, b.first); });
    made_ += '{';
    for (std::size_t i = 0; i < entries.size(); ++i) {
      begin_item(i == 0, level + 1);
      append_json_text(json_key(entries[i].first), style_.is_ascii, made_);
      made_ += style_.after_key;
      write(entries[i].second, level + 1);
    }
    end_items(entries.empty(), level);
    made_ += '}';
  }

  void begin_item(bool is_first, int level) {
    if (!is_first) made_ += style_.between_items;
    break_line(level);
  }

  void end_items(bool is_empty, int level) {
    if (!is_empty) break_line(level);
  }

  void break_line(int level) {
    if (!style_.indent) return;
    require_text_size(static_cast<std::size_t>(level), style_.indent->size());
    made_ += '\n';
    for (int i = 0; i < level; ++i) made_ += *style_.indent;
  }

  const JsonStyle& style_;
  std::string made_;
};

}  // namespace

std::string to_json(const Value& value, const JsonStyle& style) {
  JsonWriter writer(style);
  writer.write(value, 0);
  return writer.take();
}

}  // namespace gantry::jinja
