#include "gantry/nn/mixers/selective_scan.h"

#include <algorithm>

#include "gantry/nn/mixers/chunk_states.h"
#include "gantry/nn/recompute.h"
#include "gantry/tensors/libtorch.h"

namespace gantry::nn {
namespace {

// Tensors of a group: x and dt [samples, chunks, size, channels], b and c [samples, chunks, size, state], a, and the
// state before the group. The masks are undefined without documents. Tokens of kContinues [samples, chunks, size] have
// the document of the token before, and those of kToEnd the document of the chunk's end. Chunks of kWhole [samples,
// chunks] are in one document with the end of the chunk before.
enum ScanPart { kX, kDt, kB, kC, kA, kState, kContinues, kToEnd, kWhole };

torch::Tensor per_channel(const torch::Tensor& mask) { return mask.defined() ? mask.unsqueeze(-1) : mask; }

// Out [samples, chunks, size, channels] and the state after the group.
std::vector<torch::Tensor> scan_group(const std::vector<torch::Tensor>& of) {
  const torch::Tensor& a = of[kA];
  const torch::Tensor sums = of[kDt].cumsum(2), end = sums.narrow(2, sums.size(2) - 1, 1);
  const torch::Tensor decays = masked(torch::exp(of[kDt].unsqueeze(-1) * a), per_channel(of[kContinues]), 1);
  const torch::Tensor to_end = masked(torch::exp((end - sums).unsqueeze(-1) * a), per_channel(of[kToEnd]), 1);
  const torch::Tensor writes = (of[kDt] * of[kX]).unsqueeze(-1) * of[kB].unsqueeze(-2);
  const torch::Tensor local = (to_end * writes).sum(2);  // [samples, chunks, channels, state]
  const torch::Tensor whole = masked(torch::exp(end.squeeze(2).unsqueeze(-1) * a), per_channel(of[kWhole]), 1);
  // Every number of a state decays by itself: a head of one row and one column each.
  const ChunkStates states = decayed_states(whole.flatten(2), local.flatten(2).unsqueeze(-1).unsqueeze(-1),
                                            of[kState].flatten(1).unsqueeze(-1).unsqueeze(-1));
  torch::Tensor state = states.before.view_as(local);
  const auto decay_of = decays.unbind(2), write_of = writes.unbind(2), c_of = of[kC].unsqueeze(-1).unbind(2);
  std::vector<torch::Tensor> outs;
  for (std::size_t token = 0; token < c_of.size(); ++token) {
    state = torch::addcmul(write_of[token], decay_of[token], state);
    outs.push_back(torch::matmul(state, c_of[token]).squeeze(-1));
  }
  return {torch::stack(outs, 2), states.last.view_as(of[kState])};
}

// [samples, tokens, features] -> [samples, chunks, size, features], padded with zeros.
torch::Tensor scan_chunks(const torch::Tensor& of_tokens, const Chunks& chunks) {
  return chunks.split(of_tokens.unsqueeze(2)).squeeze(2);
}

// The masks of all chunks, in the order of ScanPart; undefined without documents.
std::vector<torch::Tensor> scan_masks(const torch::Tensor& documents, const Chunks& chunks) {
  const ChunkDocuments parts = chunk_documents(documents, chunks);
  if (!parts.same.defined()) return std::vector<torch::Tensor>(3);
  const torch::Tensor with_previous = parts.same.squeeze(2).diagonal(-1, -2, -1);  // tokens 1 and later
  const torch::Tensor first = parts.from_start.squeeze(2).narrow(-1, 0, 1);
  return {torch::cat({first, with_previous}, -1), parts.to_end.squeeze(2), parts.whole.squeeze(2)};
}

RecurrenceResult with_scan_skip(const torch::Tensor& out, const torch::Tensor& state,
                                const SelectiveScanInputs& inputs) {
  torch::Tensor sum = out;
  if (inputs.d.defined()) sum = sum + inputs.x * inputs.d.to(out.scalar_type());
  return {sum.to(inputs.x.scalar_type()), state};
}

}  // namespace

RecurrenceResult selective_scan(const SelectiveScanInputs& inputs, const torch::Tensor& state,
                                const torch::Tensor& documents, std::int64_t chunk) {
  const Chunks chunks{inputs.x.size(1), chunk};
  std::vector<torch::Tensor> all;
  for (const auto& tensor : {inputs.x, inputs.dt, inputs.b, inputs.c}) all.push_back(scan_chunks(tensor, chunks));
  all.push_back(inputs.a.to(all.front().scalar_type()));
  all.push_back(state_or_zeros(state, {inputs.x.size(0), inputs.a.size(0), inputs.a.size(1)}, all.front()));
  for (const auto& mask : scan_masks(documents, chunks)) all.push_back(mask);
  std::vector<torch::Tensor> outs;
  for (std::int64_t first = 0; first < chunks.count(); first += kScanChunks) {
    std::vector<torch::Tensor> group = all;
    for (const int part : {kX, kDt, kB, kC, kContinues, kToEnd, kWhole})
      if (group[part].defined())
        group[part] = all[part].narrow(1, first, std::min(kScanChunks, chunks.count() - first));
    const auto results = recompute_all(scan_group, group);
    outs.push_back(results[0]);
    all[kState] = results[1];
  }
  const torch::Tensor out = torch::cat(outs, 1).flatten(1, 2).narrow(1, 0, chunks.tokens);
  return with_scan_skip(out, all[kState], inputs);
}

RecurrenceResult selective_scan_step(const SelectiveScanInputs& inputs, const torch::Tensor& state) {
  const torch::ScalarType type = wide_type(inputs.x);
  const auto token = [&](const torch::Tensor& of) { return of.select(1, 0).to(type); };
  const torch::Tensor dt = token(inputs.dt), a = inputs.a.to(type);
  const torch::Tensor before = state_or_zeros(state, {dt.size(0), a.size(0), a.size(1)}, dt);
  const torch::Tensor after =
      torch::exp(dt.unsqueeze(-1) * a) * before + (dt * token(inputs.x)).unsqueeze(-1) * token(inputs.b).unsqueeze(-2);
  const torch::Tensor out = torch::matmul(after, token(inputs.c).unsqueeze(-1)).squeeze(-1);
  return with_scan_skip(out.unsqueeze(1), after, inputs);
}

}  // namespace gantry::nn
