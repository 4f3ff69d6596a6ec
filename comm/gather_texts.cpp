#include "gantry/comm/gather_texts.h"

#include <algorithm>

#include <torch/torch.h>

namespace gantry {

std::vector<std::string> gather_texts(ProcessGroup& group, const std::string& text) {
  const auto lengths = all_gather_numbers(group, static_cast<std::int64_t>(text.size()));
  if (group.rank() != 0) {
    torch::Tensor bytes = torch::empty({lengths[group.rank()]}, torch::kUInt8);
    std::copy(text.begin(), text.end(), static_cast<char*>(bytes.data_ptr()));
    group.send(bytes, 0, {}).wait();
    return {};
  }
  std::vector<std::string> texts = {text};
  for (int from = 1; from < group.size(); ++from) {
    const torch::Tensor bytes = group.recv({{lengths[from]}, torch::kUInt8}, from, {}).result();
    texts.emplace_back(static_cast<const char*>(bytes.data_ptr()), static_cast<std::size_t>(lengths[from]));
  }
  return texts;
}

}  // namespace gantry
