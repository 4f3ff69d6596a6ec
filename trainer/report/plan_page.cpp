#include "gantry/trainer/report/plan_page.h"

#include <algorithm>
#include <fmt/format.h>
#include <functional>
#include <utility>

#include "gantry/core/base/number_text.h"
#include "gantry/planner/calibration.h"
#include "gantry/planner/plan.h"
#include "gantry/trainer/report/page_files.h"

namespace gantry {
namespace {

using planner::PlannedLayout;

constexpr const char* kTints[] = {"--F", "--B", "--I", "--W", "--bad", "--other", "--quiet"};
constexpr int kFrontWidth = 640, kFrontHeight = 260, kFrontEdge = 46;
constexpr int kMostOnFront = 12;  // layouts

struct Part {
  std::string name, value;  // formatted for the reader
  double size = 0;
};

std::string safe(const std::string& text) {
  std::string all;
  for (const char c : text) all += c == '&' ? "&amp;" : c == '<' ? "&lt;" : c == '"' ? "&quot;" : std::string(1, c);
  return all;
}

std::vector<Part> time_parts(const planner::Estimate& estimate) {
  std::vector<Part> parts;
  for (const auto& [name, seconds] : planner::parts_of(estimate.seconds))
    parts.push_back({name, fmt::format("{:.4g} s", seconds), seconds});
  return parts;
}

// The memory of the fullest pipeline rank, by part.
std::vector<Part> memory_parts(const planner::Estimate& estimate) {
  const auto& fullest = *std::ranges::max_element(estimate.memory, {}, &planner::Memory::sum);
  std::vector<Part> parts;
  for (const auto& [name, bytes] : {std::pair("parameters", fullest.parameters),
                                    {"gradients", fullest.gradients},
                                    {"optimizer", fullest.optimizer},
                                    {"activations", fullest.activations},
                                    {"working", fullest.working}})
    parts.push_back({name, bytes_text(bytes), bytes});
  if (fullest.teacher > 0) parts.push_back({"teacher", bytes_text(fullest.teacher), fullest.teacher});
  return parts;
}

// A stacked bar. Its length is its share of `longest`.
std::string bar(const std::vector<Part>& parts, double longest) {
  std::string cells;
  for (std::size_t i = 0; i < parts.size(); ++i)
    if (parts[i].size > 0)
      cells += fmt::format("<i class=\"mark\" title=\"{}: {}\" style=\"width:{:.2f}%;background:var({})\"></i>",
                           parts[i].name, parts[i].value, 100 * parts[i].size / longest, kTints[i]);
  return "<div class=\"meter\">" + cells + "</div>";
}

std::string legend(const std::vector<Part>& parts) {
  std::string names;
  for (std::size_t i = 0; i < parts.size(); ++i)
    names += fmt::format("<span><i class=\"box\" style=\"background:var({})\"></i>{}</span>", kTints[i], parts[i].name);
  return "<div class=\"legend\">" + names + "</div>";
}

std::string bars(const std::vector<PlannedLayout>& best, const std::string& title, const std::string& unit,
                 const std::function<std::vector<Part>(const planner::Estimate&)>& parts_of,
                 const std::function<std::string(const planner::Estimate&)>& total) {
  double longest = 0;
  for (const auto& one : best) {
    double sum = 0;
    for (const Part& part : parts_of(one.estimate)) sum += part.size;
    longest = std::max(longest, sum);
  }
  std::string rows;
  for (const auto& one : best)
    rows += fmt::format("<tr><td>{}</td><td class=\"number\">{}</td><td class=\"share\">{}</td></tr>",
                        safe(describe(one.layout)), total(one.estimate), bar(parts_of(one.estimate), longest));
  return fmt::format(
      "<section><h2>{}</h2><div class=\"card\"><div class=\"scroll\"><table><thead><tr><th>layout</th><th "
      "class=\"number\">{}</th><th class=\"share\"></th></tr></thead><tbody>{}</tbody></table></div>{}</div></section>",
      title, unit, rows, legend(parts_of(best.front().estimate)));
}

// Plots step time over memory, one dot per layout.
std::string front_diagram(const std::vector<PlannedLayout>& front) {
  double most_seconds = 0, most_bytes = 0;
  for (const auto& one : front) {
    most_seconds = std::max(most_seconds, one.estimate.step_seconds);
    most_bytes = std::max(most_bytes, one.estimate.most_memory());
  }
  const auto x = [&](double bytes) { return kFrontEdge + (kFrontWidth - 2 * kFrontEdge) * bytes / most_bytes; };
  const auto y = [&](double seconds) {
    return kFrontHeight - kFrontEdge - (kFrontHeight - 2 * kFrontEdge) * seconds / most_seconds;
  };
  std::string line, dots, rows;
  for (const auto& one : front) {
    const double column = x(one.estimate.most_memory()), row = y(one.estimate.step_seconds);
    const std::string text = fmt::format("{:.4g} s, {}: {}", one.estimate.step_seconds,
                                         bytes_text(one.estimate.most_memory()), describe(one.layout));
    line += fmt::format("{}{:.1f} {:.1f}", line.empty() ? "M" : "L", column, row);
    dots += fmt::format(
        "<circle class=\"mark\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"5\" fill=\"var(--accent)\">"
        "<title>{}</title></circle>",
        column, row, safe(text));
    rows += "<li>" + safe(text) + "</li>";
  }
  const int right = kFrontWidth - kFrontEdge, bottom = kFrontHeight - kFrontEdge;
  std::string diagram = fmt::format("<svg viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"Step time over memory\">",
                                    kFrontWidth, kFrontHeight);
  diagram +=
      fmt::format("<line class=\"axis\" x1=\"{0}\" x2=\"{1}\" y1=\"{2}\" y2=\"{2}\"/>", kFrontEdge, right, bottom);
  diagram += fmt::format("<line class=\"axis\" x1=\"{0}\" x2=\"{0}\" y1=\"{0}\" y2=\"{1}\"/>", kFrontEdge, bottom);
  diagram += fmt::format("<text x=\"{}\" y=\"{}\" text-anchor=\"end\">memory, to {}</text>", right, kFrontHeight - 24,
                         bytes_text(most_bytes));
  diagram += fmt::format("<text x=\"{}\" y=\"{}\">step, to {:.4g} s</text>", kFrontEdge, kFrontEdge - 10, most_seconds);
  diagram += fmt::format("<path d=\"{}\" fill=\"none\" stroke=\"var(--accent)\"/>", line);
  return diagram + dots + "</svg><ul>" + rows + "</ul>";
}

std::string changes_table(const std::vector<planner::WhatIf>& changes, double now) {
  std::string rows;
  for (const auto& [change, best] : changes)
    rows += fmt::format(
        "<tr><td>{}</td><td class=\"number\">{:.4g} s</td><td class=\"number\">{:+.1f}%</td><td>{}</td></tr>", change,
        best.estimate.step_seconds, 100 * (best.estimate.step_seconds / now - 1), safe(describe(best.layout)));
  return "<table><thead><tr><th>with</th><th class=\"number\">step</th><th class=\"number\">difference</th><th>best "
         "layout</th></tr></thead><tbody>" +
         rows + "</tbody></table>";
}

}  // namespace

std::string plan_page(const std::string& title, const planner::PlanRequest& request, const planner::Cluster& cluster,
                      const planner::SearchResult& found) {
  const PlannedLayout& best = found.best.front();
  const auto card = [](const char* heading, const std::string& lead, const std::string& content) {
    return fmt::format("<section><h2>{}</h2><p class=\"lead\">{}</p><div class=\"card\">{}</div></section>", heading,
                       lead, content);
  };
  std::string page = "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n";
  page += "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n";
  page += "<meta name=\"generator\" content=\"Gantry\">\n<title>" + safe(title) + "</title>\n";
  page += "<link rel=\"icon\" href=\"data:,\">\n<style>\n" + std::string(kPageStyle) + "\n</style>\n</head>\n<body>\n";
  page += "<header class=\"top\"><div><p class=\"eyebrow\">Gantry plan</p><h1>" + safe(title) + "</h1>";
  page +=
      fmt::format("<p class=\"quiet\">{} of {} ({}): {}, {:.4g} s per step, {:.4g} tokens/s, MFU {:.1f}%</p>",
                  quantity(cluster.hosts, "host"), cluster.per_host, safe(cluster.name), safe(describe(best.layout)),
                  best.estimate.step_seconds, best.estimate.tokens_per_second, 100 * best.estimate.mfu);
  page += "</div></header>\n<main>\n";
  page += bars(found.best, "Time of a step", "s", time_parts,
               [](const planner::Estimate& one) { return fmt::format("{:.4g}", one.step_seconds); });
  page += bars(found.best, "Memory of the fullest rank", "memory", memory_parts,
               [](const planner::Estimate& one) { return bytes_text(one.most_memory()); });
  page += card("Time and memory", "Layouts for which no other layout is better in both time and memory.",
               front_diagram(planner::pareto_front(request, cluster, kMostOnFront)));
  page += card("Effect of changes", "The best layout after one change of the cluster.",
               changes_table(planner::what_if(request, cluster), best.estimate.step_seconds));
  return page + "</main>\n</body>\n</html>\n";
}

}  // namespace gantry
