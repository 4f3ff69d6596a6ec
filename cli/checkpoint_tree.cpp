#include "gantry/cli/checkpoint_tree.h"

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <memory>

#include "gantry/cli/progress_bar.h"

namespace gantry::cli {
namespace {

// Orders layers by their numbers: "h.2" precedes "h.10".
struct ByNumber {
  static bool is_number(const std::string& text) {
    return !text.empty() && text.size() < 10 && text.find_first_not_of("0123456789") == std::string::npos;
  }
  bool operator()(const std::string& a, const std::string& b) const {
    if (is_number(a) && is_number(b) && std::stoi(a) != std::stoi(b)) return std::stoi(a) < std::stoi(b);
    return a < b;
  }
};

struct Node {
  std::map<std::string, std::unique_ptr<Node>, ByNumber> below;
  const ManifestTensor* tensor = nullptr;
  std::uint64_t bytes = 0;
  std::size_t tensors = 0;
};

void add(Node& root, const ManifestTensor& tensor) {
  std::vector<std::string> parts;
  std::string name = tensor.name;
  for (std::size_t dot; (dot = name.find('.')) != std::string::npos; name = name.substr(dot + 1))
    parts.push_back(name.substr(0, dot));
  parts.push_back(name);
  Node* node = &root;
  for (std::size_t i = 0;; ++i) {
    node->bytes += tensor.bytes();
    ++node->tensors;
    if (i == parts.size()) break;
    auto& next = node->below[parts[i]];
    if (!next) next = std::make_unique<Node>();
    node = next.get();
  }
  node->tensor = &tensor;
}

// "dim 0 0:4 8:12"; "rows of 6 2:4"; "elements 0:384"
std::string shard_text(const AppliedShard& shard) {
  std::string text = fmt::format("dim {}", shard.dim);
  if (shard.row > 0) text = shard.row == 1 ? "elements" : fmt::format("rows of {}", shard.row);
  for (const Range& range : shard.ranges)
    if (range.size() > 0) text += fmt::format(" {}:{}", range.begin, range.end);
  return text;
}

std::string place_text(const ManifestTensor& tensor) {
  std::vector<std::string> places;
  for (const auto& slice : tensor.slices) {
    places.push_back(slice.file);
    for (const AppliedShard& shard : slice.shards) places.back() += " " + shard_text(shard);
  }
  return fmt::format("{}", fmt::join(places, ", "));
}

class Printer {
 public:
  explicit Printer(int depth) : depth_(depth) {}

  void print(const std::string& name, const Node& node, int level) {
    // Print a chain of single children in one line: "attn.qkv.weight".
    if (!node.tensor && node.below.size() == 1)
      return print(name + "." + node.below.begin()->first, *node.below.begin()->second, level);
    const std::string indent(static_cast<std::size_t>(2 * level), ' ');
    if (node.tensor)
      text +=
          fmt::format("{:<38} {:<9} {:<14} {:>9}  {}\n", indent + name, node.tensor->type->readable,
                      shape_text(node.tensor->shape), readable_bytes(node.tensor->bytes()), place_text(*node.tensor));
    if (node.below.empty()) return;
    text += fmt::format("{:<63} {:>9}  {} tensors\n", indent + name, readable_bytes(node.bytes), node.tensors);
    if (depth_ > 0 && level + 1 >= depth_) return;
    for (const auto& [below, child] : node.below) print(below, *child, level + 1);
  }

  std::string text;

 private:
  int depth_;
};

}  // namespace

std::string shape_text(const std::vector<std::int64_t>& shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

std::string tensor_tree(const TensorCatalog& catalog, int depth) {
  std::map<std::string, Node> kinds;
  for (const auto& [key, tensor] : catalog.tensors()) add(kinds[tensor.kind], tensor);
  Printer printer(depth);
  for (const auto& [kind, root] : kinds) {
    if (kind.empty()) {
      for (const auto& [name, child] : root.below) printer.print(name, *child, 0);
      continue;
    }
    printer.text += fmt::format("{:<63} {:>9}  {} tensors\n", kind, readable_bytes(root.bytes), root.tensors);
    if (depth == 1) continue;
    for (const auto& [name, child] : root.below) printer.print(name, *child, 1);
  }
  return printer.text;
}

}  // namespace gantry::cli
