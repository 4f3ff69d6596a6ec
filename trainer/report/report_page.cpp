#include <nlohmann/json.hpp>
#include <string_view>

#include "gantry/core/error.h"
#include "gantry/core/io/durable_file.h"
#include "gantry/trainer/report/page_files.h"
#include "gantry/trainer/report/run_reader.h"

namespace gantry {
namespace {

std::string escaped(const std::string& text) {
  std::string all;
  for (const char c : text) {
    if (c == '&')
      all += "&amp;";
    else if (c == '<')
      all += "&lt;";
    else
      all += c;
  }
  return all;
}

// Returns JSON for a page's script element. "<" is escaped, so that no text in it can end the element.
// Invalid UTF-8 is replaced.
std::string embedded(const nlohmann::json& data) {
  std::string all;
  for (const char c : data.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace)) {
    if (c == '<')
      all += "\\u003c";
    else
      all += c;
  }
  return all;
}

std::string filling(std::string_view mark, const nlohmann::json& data) {
  if (mark == "TITLE") return escaped(data.at("name").get<std::string>());
  if (mark == "STYLE") return kPageStyle;
  if (mark == "DATA") return embedded(data);
  if (mark == "SCRIPT") return kPageScript;
  throw InternalError({"page.html", "the page has the unknown mark " + std::string(mark), "", ""});
}

}  // namespace

std::string report_page(const nlohmann::json& data) {
  constexpr std::string_view kFence = "@@";
  std::string page;
  std::string_view left = kPageHtml;
  for (auto open = left.find(kFence); open != left.npos; open = left.find(kFence)) {
    const auto close = left.find(kFence, open + kFence.size());
    page += left.substr(0, open);
    page += filling(left.substr(open + kFence.size(), close - open - kFence.size()), data);
    left.remove_prefix(close + kFence.size());
  }
  return page.append(left);
}

std::string write_report(const std::string& folder, const std::string& output) {
  const std::string path = output.empty() ? folder + "/report.html" : output;
  write_text_durably(path, report_page(RunReader(folder).data(/*live=*/false)));
  return path;
}

}  // namespace gantry
