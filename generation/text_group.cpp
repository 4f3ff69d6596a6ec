#include "gantry/generation/text_group.h"

#include <algorithm>
#include <numeric>

#include "gantry/tensors/libtorch.h"

namespace gantry::generation {

torch::Tensor Decision::encode() const {
  const auto rows = static_cast<std::int64_t>(tokens.size());
  torch::Tensor encoded = torch::zeros({rows + 1, 3}, torch::kInt64);
  auto* at = encoded.data_ptr<std::int64_t>();
  for (std::int64_t row = 0; row < rows; ++row, at += 3) {
    at[0] = tokens[row];
    at[1] = sources[row];
    at[2] = joined[row];
  }
  at[0] = is_last ? 1 : 0;
  return encoded;
}

Decision Decision::decode(const torch::Tensor& encoded) {
  const torch::Tensor on_host = encoded.to(torch::kCPU).contiguous();
  const auto* at = on_host.data_ptr<std::int64_t>();
  Decision decision;
  for (std::int64_t row = 0; row + 1 < on_host.size(0); ++row, at += 3) {
    decision.tokens.push_back(at[0]);
    decision.sources.push_back(at[1]);
    decision.joined.push_back(at[2]);
  }
  decision.is_last = at[0] != 0;
  return decision;
}

namespace {

// Returns the encoder's input, padded on the right to the longest prompt, and to at least `least` tokens.
TensorDict encoder_entries(const std::vector<TokenIds>& prompts, std::size_t least, torch::Device device) {
  std::size_t longest = least;
  for (const auto& prompt : prompts) longest = std::max(longest, prompt.size());
  const auto rows = static_cast<std::int64_t>(prompts.size());
  torch::Tensor ids = torch::zeros({rows, static_cast<std::int64_t>(longest)}, torch::kInt64), mask = ids.clone();
  for (std::int64_t row = 0; row < rows; ++row) {
    const auto& prompt = prompts[row];
    const auto size = static_cast<std::int64_t>(prompt.size());
    ids[row].narrow(0, 0, size).copy_(torch::tensor(prompt, torch::kInt64));
    mask[row].narrow(0, 0, size).fill_(1);
  }
  return {{"input_ids", to_device(ids, device)}, {"attention_mask", to_device(mask, device)}};
}

// New tokens continue after the largest position of the prompt. With positions of three rows (M-RoPE), this
// is not the number of its tokens. Returns the difference for each row.
torch::Tensor shifts_after(const torch::Tensor& positions, const std::vector<std::int64_t>& lengths) {
  torch::Tensor shifts = torch::zeros({positions.size(0), 1}, torch::kInt64);
  for (std::int64_t row = 0; row < positions.size(0); ++row) {
    const std::int64_t length = lengths[static_cast<std::size_t>(row)];
    const torch::Tensor own = positions[row].narrow(0, positions.size(1) - length, length);
    shifts[row].fill_(own.max().item<std::int64_t>() + 1 - length);
  }
  return shifts;
}

}  // namespace

TextGroup::TextGroup(std::vector<TokenIds> prompts, const Options& options, torch::Device device)
    : width_(options.width),
      is_cached_(options.is_cached),
      device_(device),
      texts_(std::move(prompts)),
      is_finished_(texts_.empty()) {
  has_encoder_ = !options.encoder.empty() || !options.begin.empty();
  for (const auto& [name, tensor] : options.encoder) encoder_.set(name, to_device(tensor, device));
  for (const auto& [name, tensor] : options.images) images_.set(name, to_device(tensor.contiguous(), device));
  if (options.encoder.empty() && has_encoder_) {
    const std::size_t least = options.parts ? options.parts->group().size() : 1;  // each rank has a token
    encoder_ = encoder_entries(texts_, least, device);
    texts_.assign(texts_.size(), options.begin);
  }
  for (const auto& text : texts_) lengths_.push_back(static_cast<std::int64_t>(text.size()));
  longest_ = lengths_.empty() ? 1 : *std::max_element(lengths_.begin(), lengths_.end());
  if (options.parts) parts_.emplace(*options.parts, longest_, has_encoder_);
  const std::int64_t cached = longest_ + options.max_new_tokens - 1;  // the last new token is never an input
  caches_ = nn::LayerCaches(parts_ ? static_cast<std::int64_t>(parts_->kept_of(cached).size()) : cached);
  context_ = {.keep = {}, .positions = {}, .caches = &caches_, .only_last = true};
  if (parts_ && has_encoder_) parts_->set_read(encoder_);
  if (const torch::Tensor positions = options.images.get("position_ids"); positions.defined())
    shifts_ = shifts_after(positions, lengths_);
  if (is_cached_) make_context();
}

TensorDict TextGroup::input() {
  const auto rows = static_cast<std::int64_t>(texts_.size());
  const bool only_new = continues_caches();
  const std::int64_t width = only_new ? 1 : longest_ + rounds_;
  torch::Tensor ids = torch::zeros({rows, width}, torch::kInt64);
  auto* row = ids.data_ptr<std::int64_t>();
  for (const auto& text : texts_) {
    if (only_new)
      *row = text.back();
    else
      std::copy(text.begin(), text.end(), is_cached_ ? row + width - static_cast<std::int64_t>(text.size()) : row);
    row += width;
  }
  if (shards_input()) ids = parts_->own_of(ids);
  const torch::Tensor there = to_device(ids, device_);
  known_ = HostCopy(there, ids);
  if (!has_encoder_) {
    TensorDict input = images_;
    input.set("input_ids", there);
    return input;
  }
  TensorDict input = parts_ && !only_new ? parts_->own_read(encoder_) : encoder_;
  input.set("decoder_input_ids", there);
  return input;
}

// Positions count from the first token of a text. The padding before it has position 0 and is masked.
void TextGroup::make_context() {
  std::vector<std::int64_t> padding;
  for (std::size_t row = 0; row < texts_.size(); ++row)
    padding.push_back(longest_ + rounds_ - static_cast<std::int64_t>(texts_[row].size()));
  const torch::Tensor before = torch::tensor(padding, torch::kInt64).unsqueeze(1);
  const torch::Tensor places = torch::arange(longest_ + rounds_, torch::kInt64).unsqueeze(0);
  const bool pads = std::any_of(padding.begin(), padding.end(), [](std::int64_t count) { return count > 0; });
  context_.keep = pads ? (places >= before).to(device_) : torch::Tensor();
  torch::Tensor positions = (places - before).clamp_min(0);
  if (rounds_ > 0) positions = positions.narrow(1, positions.size(1) - 1, 1);
  if (rounds_ > 0 && shifts_.defined()) positions = positions + shifts_;
  if (shards_input()) positions = parts_->own_of(positions);
  context_.positions = images_.contains("position_ids") ? images_.at("position_ids") : positions.to(device_);
  if (!parts_) return;
  context_.length = longest_ + rounds_;
  context_.sequence = shards_input()
                          ? parts_->of_prompts(context_.keep)
                          : parts_->of_new(rounds_ > 0 ? context_.length - 1 : 0, context_.length, context_.keep);
}

torch::Tensor TextGroup::last_of(const torch::Tensor& logits) const {
  if (is_cached_) return logits.select(1, logits.size(1) - 1);
  std::vector<std::int64_t> last;
  for (const auto& text : texts_) last.push_back(static_cast<std::int64_t>(text.size()) - 1);
  const torch::Tensor rows = torch::arange(logits.size(0), torch::TensorOptions(torch::kInt64).device(device_));
  return logits.index({rows, torch::tensor(last, torch::kInt64).to(device_)});
}

void TextGroup::apply(const Decision& decision) {
  std::vector<std::int64_t> rows;
  std::vector<TokenIds> grown;
  for (std::size_t i = 0; i < decision.tokens.size(); ++i) {
    rows.push_back(row_of(decision.sources[i]));
    grown.push_back(texts_[rows.back()]);
    grown.back().push_back(decision.tokens[i]);
  }
  if (is_cached_ && has_encoder_) {
    const torch::Tensor mask = encoder_.get("attention_mask");
    encoder_ = mask.defined() ? TensorDict{{"attention_mask", mask}} : TensorDict();
  }
  images_ = {};
  std::vector<std::int64_t> same(texts_.size());
  std::iota(same.begin(), same.end(), 0);
  if (rows != same) {
    const torch::Tensor samples = torch::tensor(rows, torch::kInt64).to(device_);
    caches_.select(samples);
    if (shifts_.defined()) shifts_ = shifts_.index_select(0, samples.cpu());
    for (auto& [name, tensor] : encoder_) tensor = tensor.index_select(0, samples);
    if (parts_ && has_encoder_) parts_->set_mask_of_read(encoder_.get("attention_mask"));
  }
  texts_ = std::move(grown);
  ++rounds_;
  is_finished_ = decision.is_last;
  if (is_finished_)
    caches_ = nn::LayerCaches();
  else if (is_cached_)
    make_context();
}

}  // namespace gantry::generation
