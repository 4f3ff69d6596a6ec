#include "gantry/models/adapter_modules.h"

#include <algorithm>
#include <map>
#include <vector>

#include "gantry/models/peft_names.h"

namespace gantry::models {
namespace {

std::string with_prefix(const std::string& name, const std::string& from, const std::string& to) {
  const std::size_t begin = name.starts_with(kPeftPrefix) ? std::string(kPeftPrefix).size() : 0;
  if (name.compare(begin, from.size(), from) != 0) return name;
  return name.substr(0, begin) + to + name.substr(begin + from.size());
}

// An entry of target_modules can be the end of a path, which begins within the prefix.
std::string file_entry(const ModelFamily& family, const std::string& entry) {
  const std::string path = entry + ".";
  for (const auto& [file, module] : family.module_names) {
    if (path.starts_with(file) && !path.starts_with(module)) return entry;
    for (std::size_t begin = 0; begin < module.size();) {
      const std::string rest = module.substr(begin), renamed = file + path.substr(std::min(rest.size(), path.size()));
      if (path.starts_with(rest)) return renamed.substr(0, renamed.size() - 1);
      const std::size_t dot = module.find('.', begin);
      begin = dot == std::string::npos ? module.size() : dot + 1;
    }
  }
  return entry;
}

}  // namespace

std::string to_module_name(const ModelFamily& family, const std::string& stored) {
  for (const auto& [file, module] : family.module_names)
    if (const std::string renamed = with_prefix(stored, file, module); renamed != stored) return renamed;
  return stored;
}

std::string from_module_name(const ModelFamily& family, const std::string& name) {
  for (const auto& [file, module] : family.module_names)
    if (const std::string renamed = with_prefix(name, module, file); renamed != name) return renamed;
  return name;
}

LoraConfig from_module_names(const ModelFamily& family, LoraConfig lora) {
  if (family.module_names.empty()) return lora;
  for (auto* entries : {&lora.target_modules, &lora.modules_to_save})
    for (std::string& entry : *entries) entry = file_entry(family, entry);
  const auto renamed = [&](const auto& patterns) {
    std::remove_cvref_t<decltype(patterns)> made;
    for (const auto& [name, value] : patterns) made[file_entry(family, name)] = value;
    return made;
  };
  lora.rank_pattern = renamed(lora.rank_pattern);
  lora.alpha_pattern = renamed(lora.alpha_pattern);
  return lora;
}

}  // namespace gantry::models
