#include "gantry/cli/checkpoint_command.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <memory>
#include <nlohmann/json.hpp>

#include "gantry/checkpoint/format/difference.h"
#include "gantry/checkpoint/format/find.h"
#include "gantry/checkpoint/format/stored_form.h"
#include "gantry/cli/checkpoint_tree.h"
#include "gantry/cli/commands.h"
#include "gantry/cli/difference_text.h"
#include "gantry/cli/number_checks.h"
#include "gantry/cli/progress_bar.h"
#include "gantry/cli/warnings.h"
#include "gantry/core/error.h"
#include "gantry/core/io/output.h"

namespace gantry::cli {
namespace {

using Json = nlohmann::ordered_json;

struct InspectOptions {
  std::string path;
  int depth = 0;
  bool json = false;
};

struct VerifyOptions {
  std::string path;
  bool json = false;
};

Json tensor_json(const ManifestTensor& tensor) {
  Json slices = Json::array();
  for (const auto& slice : tensor.slices)
    slices.push_back({{"file", slice.file}, {"cuts", Json(to_json(slice.shards))}});
  Json json = {{"name", tensor.name},
               {"dtype", tensor.type->readable},
               {"shape", tensor.shape},
               {"bytes", tensor.bytes()},
               {"slices", slices}};
  if (!tensor.kind.empty()) json["kind"] = tensor.kind;
  return json;
}

std::string layout_text(const std::map<std::string, int>& layout) {
  std::vector<std::string> sizes;
  for (const auto& [axis, size] : layout) sizes.push_back(fmt::format("{} {}", axis, size));
  return fmt::format("{}", fmt::join(sizes, " x "));
}

std::string inspect_json(const TensorCatalog& catalog) {
  Json json = {{"path", catalog.path()}};
  if (const Manifest* manifest = catalog.manifest()) {
    json["step"] = manifest->step;
    json["policy"] = manifest->policy;
    json["layout"] = manifest->layout;
    json["threads_per_rank"] = manifest->threads_per_rank;
    json["numbers"] = Json(manifest->numbers);
    json["progress"] = Json(manifest->progress);
    json["user"] = Json(manifest->user);
    json["model_config"] = Json(manifest->model_config);
    json["config"] = manifest->config_text;
    for (const auto& [name, file] : manifest->files) json["files"][name] = {{"bytes", file.size}, {"hash", file.hash}};
  }
  json["tensors"] = Json::array();
  for (const auto& [key, tensor] : catalog.tensors()) json["tensors"].push_back(tensor_json(tensor));
  return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string inspect_text(const TensorCatalog& catalog, int depth) {
  std::string text = catalog.path() + "\n";
  if (const Manifest* manifest = catalog.manifest()) {
    std::uint64_t bytes = 0;
    for (const auto& [name, file] : manifest->files) bytes += file.size;
    text += fmt::format("step {} of {}, saved by {} with {} threads per rank: {} files, {}\n", manifest->step,
                        manifest->policy, layout_text(manifest->layout), manifest->threads_per_rank,
                        manifest->files.size(), readable_bytes(bytes));
    for (const auto& [name, value] : {std::pair<const char*, const nlohmann::json&>{"numbers", manifest->numbers},
                                      {"progress", manifest->progress},
                                      {"user", manifest->user}})
      if (!value.empty()) text += fmt::format("{} {}\n", name, value.dump());
  }
  return text + "\n" + tensor_tree(catalog, depth);
}

void run_inspect(const InspectOptions& options) {
  const TensorCatalog catalog = TensorCatalog::open(options.path, warn_of_passed_over);
  print_output(options.json ? inspect_json(catalog) : inspect_text(catalog, options.depth));
}

// Returns the step folder that `path` refers to. Its manifest may be damaged: verify_checkpoint() reports the damage.
std::string folder_to_verify(const std::string& path) {
  const std::string folder = path.substr(0, path.find_last_not_of('/') + 1);
  return step_of_folder_name(folder.substr(folder.rfind('/') + 1)) ? folder
                                                                   : require_checkpoint(path, warn_of_passed_over);
}

void run_verify(const VerifyOptions& options) {
  const std::string folder = folder_to_verify(options.path);
  VerifyReport report;
  {
    ProgressBar bar("verifying");
    report = verify_checkpoint(folder, bar.function());
  }
  if (options.json)
    print_output(Json({{"path", folder},
                       {"sound", report.faults.empty()},
                       {"files", report.files},
                       {"bytes", report.bytes},
                       {"faults", report.faults}})
                     .dump(-1, ' ', false, Json::error_handler_t::replace) +
                 "\n");
  if (!report.faults.empty())
    throw CheckpointError(
        fmt::format("{}{}", report.faults.front(),
                    report.faults.size() > 1 ? fmt::format(" (and {} more)", report.faults.size() - 1) : ""));
  if (!options.json)
    print_output(fmt::format("{}: sound; {} files, {}\n", folder, report.files, readable_bytes(report.bytes)));
}

// A checkpoint and a Hugging Face model name the same tensors differently. Only the engine can map the names.
bool have_other_names(const std::string& a, const std::string& b) {
  const StoredForm forms[] = {stored_form(a), stored_form(b)};
  const auto has = [&](StoredForm form) { return forms[0] == form || forms[1] == form; };
  return has(StoredForm::kHuggingFace) && (has(StoredForm::kCheckpoint) || has(StoredForm::kParallelized));
}

void run_diff(const CheckpointDiffArguments& arguments) {
  TensorCatalog a = TensorCatalog::open(arguments.a, warn_of_passed_over),
                b = TensorCatalog::open(arguments.b, warn_of_passed_over);
  std::vector<TensorDifference> differences;
  {
    ProgressBar bar("comparing");
    differences = compare_tensors(a, b, bar.function());
  }
  print_differences(differences, a.path(), b.path(), arguments);
}

}  // namespace

void add_checkpoint_readers(CLI::App& checkpoint, const std::function<void()>& hand_on) {
  constexpr const char* kAny = "A step folder or its parent, a Hugging Face directory, or a safetensors file";
  auto* inspect = checkpoint.add_subcommand("inspect", "Show the tensors: shapes, types, sizes and files");
  const auto inspected = std::make_shared<InspectOptions>();
  inspect->add_option("checkpoint", inspected->path, kAny)->required();
  inspect->add_option("--depth", inspected->depth, "Number of tree levels to show; 0: all")->check(at_least_zero());
  inspect->add_flag("--json", inspected->json, "Print JSON");
  inspect->callback([inspected] { run_inspect(*inspected); });

  auto* verify =
      checkpoint.add_subcommand("verify", "Check every hash, size and header; exit code 5 if a file is damaged");
  const auto verified = std::make_shared<VerifyOptions>();
  verify->add_option("checkpoint", verified->path, "A step folder, or its parent for the newest one")->required();
  verify->add_flag("--json", verified->json, "Print JSON, with every fault");
  verify->callback([verified] { run_verify(*verified); });

  const auto compared = std::make_shared<CheckpointDiffArguments>();
  add_diff_command(checkpoint, *compared, [compared, hand_on] {
    if (have_other_names(compared->a, compared->b)) hand_on();
    run_diff(*compared);
  });
}

}  // namespace gantry::cli
