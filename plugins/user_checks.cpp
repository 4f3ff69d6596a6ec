#include "gantry/plugins/user_checks.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <xxhash.h>

#include "gantry/core/base/warning.h"
#include "gantry/core/error.h"
#include "gantry/tensors/host_copy.h"
#include "gantry/tensors/libtorch.h"

namespace gantry {
namespace {

// Number of elements of an output that are compared. If ranks compute the same values, they differ by
// rounding at most. Parts of a sharded dim have nothing in common.
constexpr std::int64_t kCompared = 512;
constexpr double kRounding = 0.05;  // relative to the largest element; bfloat16 has 8 bits

torch::Tensor first_elements(const torch::Tensor& output) {
  const torch::Tensor flat = output.detach().reshape({-1});
  torch::Tensor part = flat.narrow(0, 0, std::min(flat.numel(), kCompared)).to(torch::kCPU, torch::kFloat64);
  return torch::nan_to_num(part).contiguous();
}

// The rank of the group whose output differs from rank 0's, or 0.
int rank_that_differs(const torch::Tensor& output, ProcessGroup& group, bool& nothing_but_zeros) {
  const std::string shape = describe(output);
  const auto shapes = all_gather_numbers(group, static_cast<std::int64_t>(XXH3_64bits(shape.data(), shape.size())));
  for (int rank = 1; rank < group.size(); ++rank)
    if (shapes[rank] != shapes[0]) return rank;
  const torch::Tensor mine = first_elements(output);
  torch::Tensor all = torch::empty({group.size() * mine.numel()}, torch::kFloat64);
  group.all_gather(all, mine, Sizes(group.size(), mine.numel())).wait();
  if (all.numel() == 0) return 0;
  const auto* values = all.const_data_ptr<double>();
  double largest = 0;
  for (std::int64_t i = 0; i < all.numel(); ++i) largest = std::max(largest, std::abs(values[i]));
  if (largest > 0) nothing_but_zeros = false;
  for (std::int64_t i = mine.numel(); i < all.numel(); ++i)
    if (std::abs(values[i] - values[i % mine.numel()]) > kRounding * largest) return static_cast<int>(i / mine.numel());
  return 0;
}

// True for integer types that can represent -100.
bool holds_ignored_labels(torch::ScalarType type) {
  return at::isIntegralType(type, /*includeBool=*/false) && type != torch::kUInt8;
}

// 0: not trained or not held here, 1: without a gradient, 2: with one.
enum Reached : std::int64_t { kUnknown, kWithout, kWith };

}  // namespace

bool check_full_outputs(const TensorDict& outputs, const SplitOutputs& split, const StageModule& model,
                        const ProcessGroupMesh& mesh) {
  ProcessGroup& group = mesh[axis::kTensor];
  if (group.size() == 1) return true;
  bool nothing_but_zeros = !outputs.empty();
  for (const auto& [name, output] : outputs) {
    if (split.contains(name)) {
      nothing_but_zeros = false;
      continue;
    }
    if (!output.defined()) continue;
    const int other = rank_that_differs(output, group, nothing_but_zeros);
    if (other == 0) continue;
    const auto ranks = mesh.mesh().ranks_along(mesh.rank(), {axis::kTensor});
    throw ConfigError({model.policy().name() + "::split",
                       "output '" + name + "' " + describe(output) + " of " + mesh.mesh().describe_rank(ranks[0]) +
                           " differs from the one of " + mesh.mesh().describe_rank(ranks[other]),
                       "full outputs, identical on all tp ranks, except for those in ModelSplit::split_outputs",
                       "add it to split_outputs with the column-parallel layer that computes it, or gather it"});
  }
  return !nothing_but_zeros;
}

void refuse_mean_over_ignored(const TensorDict& batch) {
  constexpr std::int64_t kIgnored = -100;
  for (const auto& [name, tensor] : batch) {
    const bool is_labels = name.find("label") != std::string::npos || name.find("target") != std::string::npos;
    if (!is_labels || !tensor.defined() || tensor.is_meta() || !holds_ignored_labels(tensor.scalar_type())) continue;
    const torch::Tensor known = on_host(tensor);
    if (number_of(((known.defined() ? known : tensor) == kIgnored).any()) == 0) continue;
    throw UsageError({"criterion",
                      "it returned a mean, but '" + name +
                          "' contains ignored labels (-100), so microbatches would be weighted wrongly",
                      "a Loss{sum, count}", "return both, or use gantry::mean_over_labels(criterion)"});
  }
}

void warn_of_unread_documents(const Batch& batch, const EntryReads& reads, const ProcessGroupMesh& mesh) {
  constexpr const char* kDocuments = "document_ids";
  constexpr double kUnread = 1, kRead = 2;
  const double mine = reads.has(kDocuments) ? kRead : batch.tensors.contains(kDocuments) ? kUnread : 0;
  const double any = all_reduce_number(mesh.world_group(), mine, ReduceOp::kMax);
  if (any != kUnread || mesh.rank() != 0) return;
  print_warning(
      "the batches have document_ids, but the model does not read them, so the documents of a sample see "
      "each other; use stage.tokens() in the policy's forward");
}

std::vector<std::string> parameters_without_gradient(const GradientBuffers& gradients, const StageModule& model,
                                                     const ProcessGroupMesh& mesh) {
  const auto& all = model.all_placements;
  std::map<std::string, std::int64_t> place;
  for (std::size_t i = 0; i < all.size(); ++i) place[all[i].name] = static_cast<std::int64_t>(i);
  torch::Tensor reached = torch::zeros({static_cast<std::int64_t>(all.size())}, torch::kInt64);
  auto* numbers = reached.data_ptr<std::int64_t>();
  std::vector<std::int64_t> unreached;
  // A schedule may add weight gradients without reaching the parameter in a backward.
  std::vector<torch::Tensor> any;
  for (std::size_t i = 0; i < gradients.parameters().size(); ++i) {
    if (!gradients.steps(i)) continue;
    const std::int64_t at = place.at(gradients.parameters()[i].placement.name);
    numbers[at] = kWith;
    if (gradients.was_reached(i)) continue;
    unreached.push_back(at);
    any.push_back(gradients.owned_gradient(i).any());
  }
  const auto has_any = read_back(any);
  for (std::size_t i = 0; i < unreached.size(); ++i)
    if (has_any[i] == 0) numbers[unreached[i]] = kWithout;
  mesh.world_group().all_reduce(reached, ReduceOp::kMax).wait();
  std::vector<std::string> names;
  for (std::size_t i = 0; i < all.size(); ++i)
    if (numbers[i] == kWithout) names.push_back(all[i].name);
  return names;
}

}  // namespace gantry
