#include "gantry/trainer/report/thinned_rows.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

namespace gantry {
namespace {

using nlohmann::json;

json number_or_null(const json& line, const std::string& key) {
  const auto found = line.find(key);
  return found != line.end() && found->is_number() ? *found : json(nullptr);
}

double height_of(const json& value) {
  return value.is_null() ? std::numeric_limits<double>::infinity() : value.get<double>();
}

}  // namespace

ThinnedRows::ThinnedRows(std::vector<std::string> columns, const std::vector<std::string>& spikes)
    : columns_(std::move(columns)) {
  for (const auto& name : spikes)
    spikes_.push_back(static_cast<std::size_t>(std::find(columns_.begin(), columns_.end(), name) - columns_.begin()));
}

void ThinnedRows::add(const json& line) {
  Row row;
  for (const auto& name : columns_) row.values.push_back(number_or_null(line, name));
  Stretch added{.length = 1, .rows = {}};
  added.rows.push_back(std::move(row));
  if (!stretches_.empty() && stretches_.back().length < longest_) {
    kept_ -= stretches_.back().rows.size();
    added = joined(std::move(stretches_.back()), std::move(added));
    stretches_.pop_back();
  }
  kept_ += added.rows.size();
  stretches_.push_back(std::move(added));
  while (kept_ > kMost) halve();
}

ThinnedRows::Stretch ThinnedRows::joined(Stretch first, Stretch second) const {
  std::vector<Row> rows = std::move(first.rows);
  std::move(second.rows.begin(), second.rows.end(), std::back_inserter(rows));
  std::vector<bool> stays(rows.size(), false);
  stays.back() = true;
  for (const std::size_t column : spikes_) {
    std::size_t highest = 0;
    for (std::size_t i = 1; i < rows.size(); ++i)
      if (height_of(rows[i].values[column]) > height_of(rows[highest].values[column])) highest = i;
    stays[highest] = true;
  }
  Stretch full{.length = first.length + second.length, .rows = {}};
  for (std::size_t i = 0; i < rows.size(); ++i)
    if (stays[i]) full.rows.push_back(std::move(rows[i]));
  return full;
}

void ThinnedRows::halve() {
  std::vector<Stretch> half;
  for (std::size_t i = 0; i < stretches_.size(); i += 2)
    half.push_back(i + 1 < stretches_.size() ? joined(std::move(stretches_[i]), std::move(stretches_[i + 1]))
                                             : std::move(stretches_[i]));
  stretches_ = std::move(half);
  longest_ *= 2;
  kept_ = 0;
  for (const auto& stretch : stretches_) kept_ += stretch.rows.size();
}

json ThinnedRows::columns() const {
  json all = json::object();
  for (const auto& name : columns_) all[name] = json::array();
  for (const auto& stretch : stretches_)
    for (const auto& row : stretch.rows)
      for (std::size_t column = 0; column < columns_.size(); ++column)
        all[columns_[column]].push_back(row.values[column]);
  return all;
}

}  // namespace gantry
