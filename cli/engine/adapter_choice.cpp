#include "gantry/cli/engine/adapter_choice.h"

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <regex>

#include "gantry/checkpoint/format/adapter_config.h"
#include "gantry/core/error.h"

namespace gantry::cli {
namespace {

constexpr const char* kDefaultName = "default";

AdapterChoice::Named named_directory(const std::string& flag) {
  static const std::regex form("([A-Za-z0-9._-]+)=(.+)");
  std::smatch parts;
  if (std::regex_match(flag, parts, form)) return {parts[1], parts[2]};
  return {kDefaultName, flag};
}

}  // namespace

AdapterChoice choose_adapters(const std::vector<std::string>& flags) {
  AdapterChoice choice;
  for (const std::string& flag : flags) {
    AdapterChoice::Named one = named_directory(flag);
    if (std::ranges::find(choice.named, one.name, &AdapterChoice::Named::name) != choice.named.end())
      throw UsageError({"--adapter", fmt::format("two adapters have the name '{}'", one.name), "each name once",
                        "write --adapter NAME=DIR with another name"});
    read_adapter_config(one.directory);
    choice.named.push_back(std::move(one));
  }
  if (flags.size() != 1 || choice.named.front().directory != flags.front()) return choice;
  choice.own = flags.front();
  choice.named.clear();
  return choice;
}

std::string chosen_adapter(const AdapterChoice& choice, const std::optional<std::string>& asked,
                           const std::string& where) {
  std::vector<std::string> known;
  for (const auto& one : choice.named) known.push_back(one.name);
  if (!choice.own.empty()) known = {kDefaultName};
  if (!asked) return known.empty() ? "" : known.front();
  if (asked->empty() && choice.own.empty()) return "";
  if (asked->empty())
    throw InputError({where, "the model without an adapter is asked for, but its only adapter has no name",
                      "an adapter with a name", fmt::format("write --adapter NAME={}", choice.own)});
  if (std::ranges::find(known, *asked) == known.end())
    throw InputError({where, fmt::format("there is no adapter '{}'", *asked),
                      known.empty() ? "an adapter of --adapter" : fmt::format("{}", fmt::join(known, ", ")),
                      fmt::format("add --adapter {}=DIR", *asked)});
  return *asked;
}

std::unique_ptr<NamedAdapters> load_named_adapters(const AdapterChoice& choice, const Config& config, Boosted& boosted,
                                                   const ProcessGroupMesh& mesh) {
  if (choice.named.empty()) return nullptr;
  auto adapters = std::make_unique<NamedAdapters>(config, boosted, mesh);
  for (const auto& [name, directory] : choice.named) adapters->load(name, directory);
  return adapters;
}

void activate_adapter(NamedAdapters* adapters, const std::string& name) {
  if (!adapters) return;
  if (name.empty())
    adapters->deactivate();
  else
    adapters->activate(name);
}

}  // namespace gantry::cli
