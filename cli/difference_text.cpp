#include "gantry/cli/difference_text.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "gantry/cli/checkpoint_tree.h"
#include "gantry/core/io/output.h"

namespace gantry::cli {
namespace {

using Json = nlohmann::ordered_json;

// JSON has no infinity.
Json number(double value) { return std::isfinite(value) ? Json(value) : Json("infinity"); }

Json difference_json(const TensorDifference& difference) {
  Json json = {{"name", difference.name}};
  if (!difference.fault.empty()) {
    json["fault"] = difference.fault;
    return json;
  }
  json["elements"] = difference.elements;
  json["different"] = difference.different;
  json["largest"] = number(difference.largest);
  json["relative"] = number(difference.relative);
  if (difference.different > 0) json["at"] = difference.at;
  return json;
}

std::string difference_line(const TensorDifference& difference) {
  if (!difference.fault.empty()) return fmt::format("{:<50} {}\n", difference.name, difference.fault);
  return fmt::format("{:<50} {:<12.4g} {:<12.4g} at {}, {} of {} elements\n", difference.name, difference.largest,
                     difference.relative, shape_text(difference.at), difference.different, difference.elements);
}

}  // namespace

void print_differences(const std::vector<TensorDifference>& all, const std::string& a, const std::string& b,
                       const CheckpointDiffArguments& arguments) {
  const auto end = std::find_if(all.begin(), all.end(),
                                [](const TensorDifference& each) { return each.fault.empty() && each.different == 0; });
  const auto differing = static_cast<std::size_t>(end - all.begin());
  if (arguments.json) {
    Json list = Json::array();
    for (const auto& difference : all) list.push_back(difference_json(difference));
    print_output(Json({{"a", a}, {"b", b}, {"equal", differing == 0}, {"tensors", list}})
                     .dump(-1, ' ', false, Json::error_handler_t::replace) +
                 "\n");
    return;
  }
  std::string text = fmt::format("{} tensors, {} differ\n", all.size(), differing);
  const std::size_t shown = arguments.most == 0 ? differing : std::min(differing, arguments.most);
  if (shown > 0) text += fmt::format("{:<50} {:<12} {:<12} where\n", "largest differences", "absolute", "relative");
  for (std::size_t i = 0; i < shown; ++i) text += difference_line(all[i]);
  if (shown < differing) text += fmt::format("and {} more; --most 0 shows all\n", differing - shown);
  print_output(text);
}

}  // namespace gantry::cli
