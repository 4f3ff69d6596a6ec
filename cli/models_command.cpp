#include "gantry/cli/models_command.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <memory>
#include <nlohmann/json.hpp>

#include "gantry/cli/model_folder.h"
#include "gantry/core/error.h"
#include "gantry/core/io/output.h"
#include "gantry/models/described/family_reader.h"

namespace gantry::cli {
namespace {

using Json = nlohmann::ordered_json;

struct ModelsArguments {
  std::string path;
  bool json = false;
};

void list_families(bool as_json) {
  Json all = Json::array();
  std::string text = fmt::format("{} families, by the model_type in config.json\n", models::family_readers().size());
  for (const auto& family : models::family_readers()) {
    const std::string features = models::family_features(family.model_type);
    all.push_back({{"model_type", family.model_type}, {"architecture", family.architecture}, {"features", features}});
    text += fmt::format("  {:<16} {}\n", family.model_type, features);
  }
  print_output(as_json ? all.dump(2) + "\n" : text);
}

std::string in_gigabytes(double bytes) { return fmt::format("{:.3g} GB", bytes / 1e9); }

std::string counted(double number) {
  if (number >= 1e9) return fmt::format("{:.3g} billion", number / 1e9);
  return number >= 1e6 ? fmt::format("{:.3g} million", number / 1e6) : fmt::format("{:.0f}", number);
}

std::string sizes_text(const models::ModelSizes& sizes) {
  std::string text = fmt::format("sizes: {} layers, hidden size {}", sizes.layers, sizes.hidden);
  if (sizes.heads > 0) text += fmt::format(", {} heads", sizes.heads);
  if (sizes.key_heads != sizes.heads) text += fmt::format(" ({} KV heads)", sizes.key_heads);
  if (sizes.experts > 0) text += fmt::format(", {} experts, {} per token", sizes.experts, sizes.used_experts);
  if (sizes.vocabulary > 0) text += fmt::format(", vocabulary {}", sizes.vocabulary);
  text += sizes.positions > 0 ? fmt::format(", {} positions\n", sizes.positions) : ", no limit of positions\n";
  text += fmt::format("parameters: {}\nmemory of the weights:", counted(sizes.parameters));
  for (const auto& [precision, bytes] : bytes_by_precision(sizes.parameters))
    text += fmt::format("{} {} {}", precision == "bfloat16" ? "" : ",", precision, in_gigabytes(bytes));
  return text + "\n";
}

std::string head_text(const ModelFolder& folder) {
  if (folder.embeds_sentences)
    return fmt::format("head: none; {} with the sentence embedding of modules.json\n", folder.head);
  if (folder.architecture.empty()) return fmt::format("head: {}, because config.json names none\n", folder.head);
  if (folder.architecture == folder.head) return fmt::format("head: {}\n", folder.head);
  return fmt::format(
      "head: {} is not supported; the body is read into {}, whose output layer is new if the files do not have it\n",
      folder.architecture, folder.head);
}

// The line of a part: its refusal, or `read` if that is not empty, or else that there is none.
std::string part_text(const ModelFolder& folder, const std::string& part, const std::string& read) {
  const auto refused = folder.refused.find(part);
  if (refused != folder.refused.end()) return fmt::format("{}: refused: {}\n", part, refused->second);
  return fmt::format("{}: {}\n", part, read.empty() ? "none in this directory" : read);
}

std::string weights_line(const ModelFolder& folder) {
  if (!folder.weights) return "";
  std::vector<std::string> types;
  for (const auto& [type, count] : folder.weights->types) types.push_back(fmt::format("{} {}", count, type));
  return fmt::format("{} tensors ({}), {}", folder.weights->tensors, fmt::join(types, ", "),
                     in_gigabytes(static_cast<double>(folder.weights->bytes)));
}

std::string folder_text(const ModelFolder& folder) {
  const std::string passed = folder.passed_over.empty()
                                 ? "every key is known"
                                 : fmt::format("keys without effect: {}", fmt::join(folder.passed_over, ", "));
  std::string text = fmt::format("{}: {}\n", folder.path, folder.model_type);
  text += part_text(folder, "configuration", "read; " + passed);
  if (folder.sizes) text += head_text(folder) + sizes_text(*folder.sizes);
  if (!folder.not_loaded.empty())
    text += fmt::format("not loaded: {}; the model is its text decoder, and exports copy the other tensors\n",
                        fmt::join(folder.not_loaded, ", "));
  if (!folder.dtype.empty()) text += fmt::format("dtype: {}\n", folder.dtype);
  text += part_text(folder, "weights", weights_line(folder));
  text += part_text(folder, "tokenizer",
                    folder.tokenizer.empty() ? "" : fmt::format("{}, {} tokens", folder.tokenizer, folder.tokens));
  text += part_text(folder, "chat template", folder.chat_template.empty() ? "" : "in " + folder.chat_template);
  text += fmt::format("generation defaults: {}\n",
                      folder.has_generation_config ? "in generation_config.json" : "none in this directory");
  return text + fmt::format("result: {}\n", folder.refused.empty() ? "accepted" : "refused");
}

Json json_of(const models::ModelSizes& sizes) {
  Json memory = Json::object();
  for (const auto& [precision, bytes] : bytes_by_precision(sizes.parameters)) memory[precision] = bytes;
  return {{"layers", sizes.layers},         {"hidden_size", sizes.hidden},
          {"heads", sizes.heads},           {"kv_heads", sizes.key_heads},
          {"vocabulary", sizes.vocabulary}, {"positions", sizes.positions},
          {"experts", sizes.experts},       {"experts_per_token", sizes.used_experts},
          {"parameters", sizes.parameters}, {"memory_bytes", memory}};
}

Json json_of(const ModelFolder& folder) {
  Json all = {{"path", folder.path},
              {"model_type", folder.model_type},
              {"architecture", folder.architecture},
              {"head", folder.head},
              {"dtype", folder.dtype},
              {"passed_over", folder.passed_over},
              {"not_loaded", folder.not_loaded},
              {"tokenizer", folder.tokenizer},
              {"tokens", folder.tokens},
              {"chat_template", folder.chat_template},
              {"generation_config", folder.has_generation_config},
              {"accepted", folder.refused.empty()},
              {"refused", Json::object()}};
  for (const auto& [part, line] : folder.refused) all["refused"][part] = line;
  if (folder.sizes) all["sizes"] = json_of(*folder.sizes);
  if (folder.weights)
    all["weights"] = {
        {"tensors", folder.weights->tensors}, {"bytes", folder.weights->bytes}, {"types", folder.weights->types}};
  return all;
}

}  // namespace

void add_models_command(CLI::App& app, int& exit_code) {
  auto* command =
      app.add_subcommand("models", "List the model families, or show which parts of a model's directory are read");
  const auto arguments = std::make_shared<ModelsArguments>();
  command->add_option("path", arguments->path, "A Hugging Face directory; default: list the families");
  command->add_flag("--json", arguments->json, "Print JSON");
  command->callback([arguments, &exit_code] {
    if (arguments->path.empty()) return list_families(arguments->json);
    const ModelFolder folder = read_model_folder(arguments->path);
    print_output(arguments->json ? json_of(folder).dump(2) + "\n" : folder_text(folder));
    if (!folder.refused.empty()) exit_code = ConfigError::kExitCode;
  });
}

}  // namespace gantry::cli
