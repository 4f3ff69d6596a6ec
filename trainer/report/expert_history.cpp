#include "gantry/trainer/report/expert_history.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace gantry {
namespace {

using nlohmann::json;

constexpr std::size_t kMostExperts = std::size_t{1} << 16;  // in all layers; larger models are not shown

// Returns false if the line does not have Gantry's format, or has too many experts.
bool read(const json& layers, std::vector<std::string>& routers, std::vector<std::vector<double>>& tokens) {
  if (!layers.is_array() || layers.empty()) return false;
  std::size_t all = 0;
  for (const json& layer : layers) {
    const json counts = layer.is_object() ? layer.value("tokens", json()) : json();
    const auto is_number = [](const json& count) { return count.is_number(); };
    if (!counts.is_array() || !std::all_of(counts.begin(), counts.end(), is_number)) return false;
    const json router = layer.value("router", json());
    if (!router.is_string() || (all += counts.size()) > kMostExperts) return false;
    routers.push_back(router.get<std::string>());
    tokens.push_back(counts.get<std::vector<double>>());
  }
  return true;
}

bool have_equal_sizes(const std::vector<std::vector<double>>& a, const std::vector<std::vector<double>>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const auto& left, const auto& right) { return left.size() == right.size(); });
}

// Returns each count relative to the mean, rounded to thousandths, which is enough for a page.
json over_mean(const std::vector<double>& tokens) {
  const double sum = std::accumulate(tokens.begin(), tokens.end(), 0.0);
  json loads = json::array();
  for (const double count : tokens)
    loads.push_back(sum > 0 ? std::round(count * static_cast<double>(tokens.size()) / sum * 1000) / 1000 : 0.0);
  return loads;
}

}  // namespace

void ExpertHistory::join(Stretch& first, const Stretch& second) {
  first.step = second.step;
  first.length += second.length;
  for (std::size_t router = 0; router < first.tokens.size(); ++router)
    for (std::size_t expert = 0; expert < first.tokens[router].size(); ++expert)
      first.tokens[router][expert] += second.tokens[router][expert];
}

void ExpertHistory::add(const json& line) {
  const json experts = line.value("experts", json());
  if (!experts.is_object()) return;
  std::vector<std::string> routers;
  Stretch added{.step = line.at("step").get<double>(), .length = 1, .tokens = {}};
  if (!read(experts.value("layers", json()), routers, added.tokens)) return;
  if (stretches_.empty()) routers_ = std::move(routers);
  if (!stretches_.empty() && !have_equal_sizes(stretches_.front().tokens, added.tokens)) return;
  if (const json dropped = experts.value("dropped", json()); dropped.is_number()) dropped_ += dropped.get<double>();
  if (!stretches_.empty() && stretches_.back().length < longest_)
    join(stretches_.back(), added);
  else
    stretches_.push_back(std::move(added));
  if (stretches_.size() <= kMost) return;
  std::vector<Stretch> half;
  for (std::size_t i = 0; i < stretches_.size(); ++i) {
    if (i % 2 == 0)
      half.push_back(std::move(stretches_[i]));
    else
      join(half.back(), stretches_[i]);
  }
  stretches_ = std::move(half);
  longest_ *= 2;
}

json ExpertHistory::data() const {
  if (stretches_.empty()) return nullptr;
  json steps = json::array(), loads = json::array();
  for (const Stretch& stretch : stretches_) {
    steps.push_back(stretch.step);
    json of_stretch = json::array();
    for (const auto& tokens : stretch.tokens) of_stretch.push_back(over_mean(tokens));
    loads.push_back(std::move(of_stretch));
  }
  return {{"routers", routers_}, {"steps", steps}, {"loads", loads}, {"dropped", dropped_}};
}

}  // namespace gantry
