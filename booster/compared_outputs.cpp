#include "gantry/booster/compared_outputs.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <limits>
#include <numeric>
#include <optional>

#include "gantry/nn/layout.h"
#include "gantry/nn/linear.h"
#include "gantry/tensors/libtorch.h"
#include "gantry/tensors/slice_copy.h"

namespace gantry {
namespace {

double finite_or_infinity(double value) { return std::isnan(value) ? std::numeric_limits<double>::infinity() : value; }

// The dimension in which two shapes differ, if there is exactly one.
std::optional<std::int64_t> differing_dim(const torch::Tensor& a, const torch::Tensor& b) {
  if (a.dim() != b.dim()) return std::nullopt;
  std::optional<std::int64_t> found;
  for (std::int64_t dim = 0; dim < a.dim(); ++dim) {
    if (a.size(dim) == b.size(dim)) continue;
    if (found) return std::nullopt;
    found = dim;
  }
  return found;
}

// Returns the output itself and its samples [first, first + count) along each of the first two dims that may
// hold samples or their tokens. `all`: number of samples of the output.
std::vector<torch::Tensor> of_samples(const torch::Tensor& full, std::int64_t first, std::int64_t count,
                                      std::int64_t all) {
  std::vector<torch::Tensor> candidates{full};
  for (std::int64_t dim = 0; dim < std::min<std::int64_t>(2, full.dim()) && count < all; ++dim) {
    if (full.size(dim) == 0 || full.size(dim) % all != 0) continue;
    const std::int64_t each = full.size(dim) / all;
    candidates.push_back(full.narrow(dim, first * each, count * each));
  }
  return candidates;
}

}  // namespace

double largest_difference(const torch::Tensor& a, const torch::Tensor& b) {
  if (a.numel() == 0) return 0;
  return finite_or_infinity((a.to(torch::kFloat64) - b.to(torch::kFloat64)).abs().max().item<double>());
}

double largest_entry(const torch::Tensor& tensor) {
  if (tensor.numel() == 0) return 0;
  return finite_or_infinity(tensor.to(torch::kFloat64).abs().max().item<double>());
}

NamedOutputs::NamedOutputs(const StageModule& model) : model_(model) {
  for (const auto& item : model.module().named_modules("", /*include_self=*/false))
    paths_.emplace(item.value().get(), item.key());
}

void NamedOutputs::begin(std::int64_t first, std::int64_t samples) {
  first_ = first;
  samples_ = samples;
}

void NamedOutputs::module_output(const torch::nn::Module& module, const torch::Tensor& output) {
  const auto found = paths_.find(&module);
  if (samples_ > 0 && output.defined() && found != paths_.end()) take(found->second, &module, output);
}

void NamedOutputs::layer_output(int layer, const torch::Tensor& output) {
  if (samples_ > 0 && output.defined()) take(path_of(layer), nullptr, output);
}

void NamedOutputs::model_output(const std::string& name, const torch::Tensor& output) {
  // Scalars, such as a mean, are values of a microbatch and cannot be compared with the full batch.
  if (samples_ > 0 && output.defined() && output.dim() > 0) take(name + " (output)", nullptr, output);
}

std::string NamedOutputs::path_of(int layer) const { return layer_path(model_.lists(), layer); }

void OutputKeeper::added_loss(const std::string& name, int layer, const std::string& part) {
  std::string place = layer < 0 ? "between layers" : path_of(layer);
  if (!part.empty()) place += " (" + part + ")";
  auto& places = kept_.losses[name];
  if (std::find(places.begin(), places.end(), place) == places.end()) places.push_back(std::move(place));
}

void OutputKeeper::take(const std::string& name, const torch::nn::Module*, const torch::Tensor& output) {
  kept_.samples = samples();
  auto& calls = kept_.outputs[name];
  if (calls.empty()) kept_.order.push_back(name);
  calls.push_back(output.detach().clone());  // later modules may overwrite the output
}

// Candidates for this rank's tokens of an output [samples, tokens, ...]: the shard of each list of layers
// with this number of tokens, or all tokens, because modules may also run on full sequences.
std::vector<torch::Tensor> OutputComparer::of_tokens(const torch::Tensor& full, const torch::Tensor& output) const {
  std::vector<torch::Tensor> parts;
  if (tokens_ && full.dim() > 1)
    for (const SequenceShard& shard : tokens_->shards)
      if (full.size(1) == shard.tokens)
        parts.push_back(full.index_select(1, torch::tensor(shard.places(tokens_->rank), torch::kInt64)));
  if (parts.empty() || full.sizes() == output.sizes()) parts.push_back(full);
  return parts;
}

// Adds the parts of `candidate` that this rank's output may equal. A column-parallel layer states its
// columns. Other modules partition a dim evenly, or hold a piece that several ranks share (a KV head).
void OutputComparer::add_parts_like(const torch::Tensor& output, const torch::Tensor& candidate,
                                    const torch::nn::Module* module, std::vector<torch::Tensor>& parts) const {
  if (candidate.sizes() == output.sizes()) parts.push_back(candidate);
  const auto dim = differing_dim(candidate, output);
  if (!dim) return;
  const std::int64_t here = output.size(*dim), all = candidate.size(*dim);
  const auto* linear = dynamic_cast<const nn::LinearImpl*>(module);
  if (linear && *dim == output.dim() - 1) {
    const auto& columns = linear->weight_placement();
    if (columns.dim == 0 && columns.local_size(tensor_group_.rank()) == here)
      parts.push_back(take_ranges(candidate, *dim, columns.ranges(tensor_group_.rank())));
    return;
  }
  const Sizes sizes = nn::partition_sizes(all, tensor_group_);
  const auto begin = std::accumulate(sizes.begin(), sizes.begin() + tensor_group_.rank(), std::int64_t{0});
  if (sizes[tensor_group_.rank()] == here) parts.push_back(candidate.narrow(*dim, begin, here));
  for (std::int64_t piece = 0; here > 0 && piece + here <= all; piece += here)
    parts.push_back(candidate.narrow(*dim, piece, here));
}

std::vector<torch::Tensor> OutputComparer::parts_like(const torch::Tensor& output, const torch::Tensor& full,
                                                      const torch::nn::Module* module) const {
  std::vector<torch::Tensor> parts;
  for (const torch::Tensor& of_all : of_samples(full, first(), samples(), full_.samples))
    for (const torch::Tensor& candidate : of_tokens(of_all, output)) add_parts_like(output, candidate, module, parts);
  return parts;
}

void OutputComparer::take(const std::string& name, const torch::nn::Module* module, const torch::Tensor& output) {
  const auto found = full_.outputs.find(name);
  if (found == full_.outputs.end()) return;
  const torch::NoGradGuard no_grad;
  // Take the call with the smallest difference, because layouts may call a module in a different order.
  std::optional<double> least;
  for (const auto& full : found->second)
    for (const auto& part : parts_like(output, full, module)) {
      const double difference = largest_difference(output.detach(), part);
      least = least ? std::min(*least, difference) : difference;
      if (*least == 0) break;
    }
  double& worst = differences_[name];
  worst = std::max(worst, least.value_or(0));
}

}  // namespace gantry
