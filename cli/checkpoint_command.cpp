#include "gantry/cli/checkpoint_command.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <memory>
#include <nlohmann/json.hpp>

#include "gantry/checkpoint/format/difference.h"
#include "gantry/checkpoint/format/find.h"
#include "gantry/cli/checkpoint_tree.h"
#include "gantry/cli/output.h"
#include "gantry/cli/progress_bar.h"
#include "gantry/core/error.h"

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

struct DiffOptions {
  std::string a, b;
  std::size_t most = 20;
  bool json = false;
};

Json tensor_json(const ManifestTensor& tensor) {
  Json slices = Json::array();
  for (const auto& slice : tensor.slices) {
    Json ranges = Json::array();
    for (const Range& range : slice.ranges) ranges.push_back({range.begin, range.end});
    slices.push_back({{"file", slice.file}, {"dim", slice.dim}, {"ranges", ranges}});
  }
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
    text += fmt::format("step {} of {}, saved by {} with {} threads a rank: {} files, {}\n", manifest->step,
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

// The folder that `path` means. Its manifest may be damaged: verify says how.
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

void run_diff(const DiffOptions& options) {
  TensorCatalog a = TensorCatalog::open(options.a, warn_of_passed_over),
                b = TensorCatalog::open(options.b, warn_of_passed_over);
  std::vector<TensorDifference> all;
  {
    ProgressBar bar("comparing");
    all = compare_tensors(a, b, bar.function());
  }
  const auto end = std::find_if(all.begin(), all.end(),
                                [](const TensorDifference& each) { return each.fault.empty() && each.different == 0; });
  const auto differing = static_cast<std::size_t>(end - all.begin());
  if (options.json) {
    Json list = Json::array();
    for (const auto& difference : all) list.push_back(difference_json(difference));
    print_output(Json({{"a", a.path()}, {"b", b.path()}, {"equal", differing == 0}, {"tensors", list}})
                     .dump(-1, ' ', false, Json::error_handler_t::replace) +
                 "\n");
    return;
  }
  std::string text = fmt::format("{} tensors, {} differ\n", all.size(), differing);
  const std::size_t shown = options.most == 0 ? differing : std::min(differing, options.most);
  if (shown > 0) text += fmt::format("{:<50} {:<12} {:<12} where\n", "largest differences", "absolute", "relative");
  for (std::size_t i = 0; i < shown; ++i) text += difference_line(all[i]);
  if (shown < differing) text += fmt::format("and {} more; --most 0 shows all\n", differing - shown);
  print_output(text);
}

}  // namespace

void add_checkpoint_readers(CLI::App& checkpoint) {
  constexpr const char* kAny = "A step folder or its parent, a Hugging Face directory, or a safetensors file";
  auto* inspect = checkpoint.add_subcommand("inspect", "Show the tensors: shapes, types, sizes and where they lie");
  const auto inspected = std::make_shared<InspectOptions>();
  inspect->add_option("checkpoint", inspected->path, kAny)->required();
  inspect->add_option("--depth", inspected->depth, "Levels of the tree to show; 0: all")->check(CLI::NonNegativeNumber);
  inspect->add_flag("--json", inspected->json, "As JSON");
  inspect->callback([inspected] { run_inspect(*inspected); });

  auto* verify = checkpoint.add_subcommand("verify", "Check every hash, size and header; exit code 5 on damage");
  const auto verified = std::make_shared<VerifyOptions>();
  verify->add_option("checkpoint", verified->path, "A step folder, or its parent for the newest one")->required();
  verify->add_flag("--json", verified->json, "As JSON, with every fault");
  verify->callback([verified] { run_verify(*verified); });

  auto* diff = checkpoint.add_subcommand("diff", "Show how the tensors of two differ, the largest difference first");
  const auto compared = std::make_shared<DiffOptions>();
  diff->add_option("a", compared->a, kAny)->required();
  diff->add_option("b", compared->b, "Another one")->required();
  diff->add_option("--most", compared->most, "Lines to show; 0: all")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  diff->add_flag("--json", compared->json, "As JSON, with every tensor");
  diff->callback([compared] { run_diff(*compared); });
}

}  // namespace gantry::cli
