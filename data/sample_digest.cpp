#include "gantry/data/sample_digest.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "gantry/checkpoint/format/files.h"
#include "gantry/data/data_loader.h"
#include "gantry/tensors/libtorch.h"

namespace gantry {
namespace {

constexpr std::int64_t kDigestedSamples = 256;  // read at once

void add_entry(Hasher& hasher, const std::string& name, const torch::Tensor& entry) {
  const std::string facts = fmt::format("{} {} [{}]\n", name, dtype_name(entry.scalar_type()),
                                        fmt::join(std::vector<std::int64_t>(entry.sizes().vec()), ", "));
  hasher.update(facts.data(), facts.size());
  const torch::Tensor numbers = entry.contiguous();
  if (numbers.nbytes() > 0) hasher.update(numbers.const_data_ptr(), numbers.nbytes());
}

}  // namespace

std::string sample_digest(const SampleSource& source, int workers, const OpenProgress& progress) {
  // Collated entries are padded to the longest sample of a batch, so these samples are read one by one.
  DataLoader loader(
      source,
      {.global_batch = source.collate ? 1 : kDigestedSamples, .shuffle = false, .workers = workers, .keep_last = true});
  loader.open(progress);
  Hasher hasher;
  for (std::int64_t step = 0; step < loader.steps(); ++step) {
    std::uint64_t bytes = 1;
    for (const auto& [name, entry] : loader.batch(step).tensors) {
      add_entry(hasher, name, entry);
      bytes += entry.nbytes();
    }
    progress(bytes);
  }
  return hasher.digits();
}

}  // namespace gantry
