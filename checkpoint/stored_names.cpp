#include "gantry/checkpoint/stored_names.h"

#include <algorithm>
#include <cctype>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "gantry/checkpoint/eight_bit.h"
#include "gantry/checkpoint/four_bit.h"
#include "gantry/checkpoint/fp8.h"
#include "gantry/checkpoint/mxfp4.h"

namespace gantry {
namespace {

// Prefixes of wrappers for data parallelism and compilation, and of models with additional parts.
constexpr const char* kPrefixes[] = {"module.",      "_orig_mod.",    "model.",
                                     "transformer.", "transformers.", "language_model."};
// Suffixes of the name of an encoded weight; longer suffixes come first.
constexpr const char* kEndings[] = {
    kFp8Scale,     kFp8PlainScale, kMxfp4Blocks, kMxfp4Scales,         kFourBitScales,
    kFourBitTable, kNf4State,      kFp4State,    kFourBitNestedScales, kFourBitNestedTable};

bool takes_ending(std::string& name, const std::string& ending, const std::string& other) {
  if (!name.ends_with(ending)) return false;
  name = name.substr(0, name.size() - ending.size()) + other;
  return true;
}

}  // namespace

StoredNames::StoredNames(const models::ModelFamily& family, const nlohmann::json& keys) : family_(family), keys_(keys) {
  for (const auto& name : family.tensor_names(keys)) {
    for (const auto& one : {name.hugging_face, name.preferred}) add(one);
    for (const auto* further : {&name.copies, &name.other_names})
      for (const auto& one : *further) add(one);
    for (const auto* parts : {&name.parts, &name.other_parts})
      for (const auto& part : *parts) add(part.hugging_face);
  }
  if (family.tied_tensors)
    for (const auto& tied : family.tied_tensors(keys)) add(tied.hugging_face);
}

void StoredNames::add(const std::string& name) {
  if (name.empty() || !known_.insert(name).second) return;
  if (const auto [found, fresh] = by_core_.try_emplace(core_of(name), name); !fresh) found->second.clear();
}

// Files of transformers 3 and earlier use gamma and beta.
std::string StoredNames::core_of(std::string name) const {
  takes_ending(name, ".gamma", ".weight");
  takes_ending(name, ".beta", ".bias");
  for (bool found = true; found;) {
    found = false;
    for (const std::string_view prefix : kPrefixes)
      if (name.starts_with(prefix)) {
        name.erase(0, prefix.size());
        found = true;
      }
    if (const std::string own = family_.model_type + "."; name.starts_with(own)) {
      name.erase(0, own.size());
      found = true;
    }
  }
  return name;
}

std::string StoredNames::find_plain(const std::string& stored) const {
  const std::string normalised = family_.normalise_name ? family_.normalise_name(keys_, stored) : stored;
  if (normalised.empty() || is_known(normalised)) return normalised;
  const std::string core = core_of(stored);
  if (const auto found = by_core_.find(core); found != by_core_.end() && !found->second.empty()) return found->second;
  const std::string again = family_.normalise_name ? family_.normalise_name(keys_, core) : core;
  return again.empty() || is_known(again) ? again : normalised;
}

std::string StoredNames::find(const std::string& stored) const {
  const std::string found = find_plain(stored);
  if (found.empty() || is_known(found)) return found;
  for (const std::string ending : kEndings) {
    if (!stored.ends_with(ending)) continue;
    const std::string weight = find_plain(stored.substr(0, stored.size() - ending.size()));
    if (is_known(weight)) return weight + ending;
  }
  // These belong to a layer, not to its weight.
  for (const std::string ending : {kEightBitScales, kEightBitFormat}) {
    std::string weight = stored;
    if (!takes_ending(weight, ending, ".weight")) continue;
    std::string known = find_plain(weight);
    if (is_known(known) && takes_ending(known, ".weight", ending)) return known;
  }
  // Scales of a layer's inputs, which a model with decoded weights does not use.
  if (std::string weight = stored; takes_ending(weight, ".input_scale", ".weight") && is_known(find_plain(weight)))
    return "";
  return found;
}

models::TensorName form_in_files(const models::TensorName& name, const std::function<bool(const std::string&)>& has) {
  models::TensorName form = name;
  const auto full = [&](const std::string& found) {
    form.hugging_face = found;
    form.parts.clear();
    return form;
  };
  const auto any_of = [&](const std::vector<models::TensorPart>& parts) {
    return std::any_of(parts.begin(), parts.end(), [&](const auto& part) { return has(part.hugging_face); });
  };
  if (!name.preferred.empty() && has(name.preferred)) return full(name.preferred);
  if (name.parts.empty() ? has(name.hugging_face) : any_of(name.parts)) return form;
  for (const auto& other : name.other_names)
    if (has(other)) return full(other);
  if (any_of(name.other_parts)) {
    form.hugging_face.clear();
    form.parts = name.other_parts;
  }
  return form;
}

std::vector<std::string> names_in_files(const models::TensorName& name) {
  if (name.parts.empty()) return {name.hugging_face};
  std::vector<std::string> names;
  for (const auto& part : name.parts) names.push_back(part.hugging_face);
  return names;
}

std::string summary_of_names(const std::vector<std::string>& names) {
  constexpr std::size_t kShown = 8;
  std::map<std::string, std::pair<std::string, int>> counts;  // by pattern: the first name, and the number of names
  for (const auto& name : names) {
    std::string pattern;
    for (const char c : name) {
      const bool digit = std::isdigit(static_cast<unsigned char>(c));
      const bool begins = pattern.empty() || pattern.back() == '.';
      if (!digit || !(begins || pattern.back() == '*'))
        pattern += c;
      else if (begins)
        pattern += '*';
    }
    ++counts.try_emplace(pattern, name, 0).first->second.second;
  }
  std::vector<std::string> shown;
  for (const auto& [pattern, found] : counts) {
    if (shown.size() == kShown) {
      shown.push_back(fmt::format("{} further kinds", counts.size() - kShown));
      break;
    }
    shown.push_back(found.second == 1 ? found.first : fmt::format("{} ({})", pattern, found.second));
  }
  return fmt::format("{}", fmt::join(shown, ", "));
}

}  // namespace gantry
