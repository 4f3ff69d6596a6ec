#include "case_batch.h"

#include <algorithm>
#include <set>

#include "gantry/tensors/libtorch.h"

namespace gantry::testing {
namespace {

// The samples have 0, 1 and 2 padding tokens in turn.
torch::Tensor padding_mask(const torch::Tensor& ids, bool is_before) {
  torch::Tensor mask = torch::ones_like(ids);
  for (std::int64_t sample = 0; sample < ids.size(0); ++sample) {
    const std::int64_t padding = std::min<std::int64_t>(sample % 3, ids.size(1) - 1);
    mask[sample].narrow(0, is_before ? 0 : ids.size(1) - padding, padding).zero_();
  }
  return mask;
}

// An encoder text with padding at the end, and a decoder text of another length, which is given only as
// labels.
TensorDict pairs_of(const TensorDict& batch) {
  const torch::Tensor &ids = batch.at("input_ids"), &labels = batch.at("labels");
  return {{"input_ids", ids},
          {"attention_mask", padding_mask(ids, /*is_before=*/false)},
          {"labels", labels.narrow(1, 2, labels.size(1) - 2).contiguous()}};
}

// Audio features and a transcript with fewer tokens, which is given only as labels.
TensorDict sounds_of(const TensorDict& batch) {
  const torch::Tensor &ids = batch.at("input_ids"), &labels = batch.at("labels");
  const torch::Tensor places = torch::arange(2 * kMelBins * kSoundTokens, torch::kFloat64);
  return {{"input_features",
           torch::sin(ids.select(1, 0).unsqueeze(1) + 0.7 * places).view({ids.size(0), kMelBins, 2 * kSoundTokens})},
          {"labels", labels.narrow(1, 1, labels.size(1) - 1).contiguous()}};
}

TensorDict images_of(const TensorDict& batch) {
  const torch::Tensor& ids = batch.at("input_ids");
  const torch::Tensor places = torch::arange(2 * kImage * kImage, torch::kFloat64);
  const torch::Tensor first = ids.select(1, 0);
  return {{"pixel_values", torch::sin(first.unsqueeze(1) + 0.7 * places).view({ids.size(0), 2, kImage, kImage})},
          {"labels", first % 3}};
}

std::int64_t picture_token(const ModelCase& what) {
  return what.family == "llava" ? what.vocabulary + 3 : what.vocabulary - 1;
}

// Images of 4 x 2 and of 2 x 4 patches, in squares of 2 x 2.
void add_grids(const ModelCase& what, TensorDict& batch) {
  const torch::Tensor ids = batch.at("input_ids");  // no reference: set() may move the entries
  const torch::Tensor counts = (ids == picture_token(what)).sum(1).view({-1, 1, 1});
  const torch::Tensor grids = torch::tensor({{1, 4, 2}, {1, 2, 4}}, torch::kInt64);
  const torch::Tensor has_image = counts > torch::tensor({0, 2}, torch::kInt64).view({1, 2, 1});
  const torch::Tensor places = torch::arange(16 * 2 * 2 * 2 * 2, torch::kFloat64);
  batch.set("pixel_values", torch::sin(ids.select(1, 0).unsqueeze(1) + 0.7 * places).view({ids.size(0), 16, 16}));
  batch.set("image_grid_thw", grids.unsqueeze(0) * has_image);
  const torch::Tensor row = torch::arange(what.tokens).expand({ids.size(0), what.tokens});
  batch.set("position_ids", torch::stack({row, row + row % 2, row + row % 3}));
}

// Images of 1 x 2 and of 2 x 1 squares of 4 x 4 pixels.
void add_sized_images(const ModelCase& what, TensorDict& batch) {
  const torch::Tensor ids = batch.at("input_ids");  // no reference: set() may move the entries
  const torch::Tensor counts = (ids == picture_token(what)).sum(1).view({-1, 1, 1});
  const torch::Tensor sizes = torch::tensor({{4, 8}, {8, 4}}, torch::kInt64);
  const torch::Tensor has_image = counts > torch::tensor({0, 2}, torch::kInt64).view({1, 2, 1});
  const torch::Tensor places = torch::arange(2 * 2 * 8 * 8, torch::kFloat64);
  batch.set("pixel_values", torch::sin(ids.select(1, 0).unsqueeze(1) + 0.7 * places).view({ids.size(0), 2, 2, 8, 8}));
  batch.set("image_sizes", sizes.unsqueeze(0) * has_image);
}

// The first half of the samples has one or two images each: one from the second token on, the other at the
// end.
void add_pictures(const ModelCase& what, TensorDict& batch) {
  torch::Tensor ids = batch.at("input_ids");
  ids.masked_fill_(ids == picture_token(what), 0);
  const std::int64_t samples = ids.size(0), side = what.family == "gemma3" ? 2 * kPictureSide : kPictureSide;
  const bool has_two = what.family == "qwen2_5_vl" || what.family == "mistral3";
  const std::int64_t tokens = has_two ? 2 : kPictureTokens;
  for (std::int64_t sample = 0; sample < samples / 2; ++sample) {
    ids[sample].narrow(0, 1, tokens).fill_(picture_token(what));
    if (sample % 2 == 1) ids[sample].narrow(0, what.tokens - tokens, tokens).fill_(picture_token(what));
  }
  if (what.family == "qwen2_5_vl") return add_grids(what, batch);
  if (what.family == "mistral3") return add_sized_images(what, batch);
  const torch::Tensor places = torch::arange(2 * 2 * side * side, torch::kFloat64);
  batch.set("pixel_values", torch::sin(ids.select(1, 0).unsqueeze(1) + 0.7 * places).view({samples, 2, 2, side, side}));
  batch.set("token_type_ids", (ids == picture_token(what)).to(torch::kInt64));
}

// Images, and texts with an end token at different positions.
TensorDict contrasts_of(const ModelCase& what, const TensorDict& batch) {
  torch::Tensor ids = batch.at("input_ids").clone();
  for (std::int64_t sample = 0; sample < ids.size(0); ++sample)
    ids[sample][ids.size(1) - 1 - sample % 3] = what.vocabulary - 1;
  const torch::Tensor places = torch::arange(2 * kPictureSide * kPictureSide, torch::kFloat64);
  return {
      {"input_ids", ids},
      {"attention_mask", padding_mask(ids, /*is_before=*/false)},
      {"pixel_values",
       torch::sin(ids.select(1, 0).unsqueeze(1) + 0.7 * places).view({ids.size(0), 2, kPictureSide, kPictureSide})}};
}

// Three choices or texts per sample: its own text and texts of other samples, each with its own padding.
void set_choices(TensorDict& batch) {
  const torch::Tensor labels = batch.at("input_ids").select(1, 0) % 3;
  for (const char* name : {"input_ids", "attention_mask", "token_type_ids"}) {
    if (!batch.contains(name)) continue;
    const torch::Tensor texts = batch.at(name);
    batch.set(name, torch::stack({texts, texts.roll(1, 0), texts.flip(0)}, 1));
  }
  batch.set("labels", labels);
}

// Document ids for documents of these lengths. Each sample begins with the next length of the list.
torch::Tensor document_ids_of(std::int64_t samples, const std::vector<int>& lengths) {
  std::vector<torch::Tensor> rows;
  for (std::int64_t sample = 0; sample < samples; ++sample) {
    std::vector<torch::Tensor> documents;
    for (std::size_t i = 0; i < lengths.size(); ++i)
      documents.push_back(
          torch::full({lengths[(sample + i) % lengths.size()]}, static_cast<std::int64_t>(i), torch::kInt64));
    rows.push_back(torch::cat(documents));
  }
  return torch::stack(rows);
}

// Adds the other inputs of BERT: a mask for padding after the text, two token types, and the labels of the
// head.
void add_bert_entries(const ModelCase& what, TensorDict& batch) {
  const torch::Tensor ids = batch.at("input_ids");
  torch::Tensor types = torch::zeros_like(ids);
  types.narrow(1, ids.size(1) / 2, ids.size(1) - ids.size(1) / 2).fill_(1);
  batch.set("attention_mask", padding_mask(ids, /*is_before=*/false));
  const bool has_types = what.family != "distilbert" && what.family != "modernbert";
  if (has_types) batch.set("token_type_ids", types);
  const torch::Tensor first = ids.select(1, 0);
  // RoBERTa has one token type. Its padding token may also be in the middle of a text.
  if (what.family == "roberta" || what.family == "xlm-roberta") {
    batch.set("token_type_ids", torch::zeros_like(types));
    batch.set("input_ids", ids.masked_fill(batch.at("attention_mask") == 0, 1));
  }
  if (what.head == "ForSequenceClassification") batch.set("labels", first % 3);
  if (what.head == "ForTokenClassification") batch.set("labels", batch.at("labels").remainder(3));
  if (what.head == "ForMultipleChoice") return set_choices(batch);
  if (what.head != "ForQuestionAnswering") return;
  batch.set("start_positions", first % ids.size(1));
  batch.set("end_positions", ids.select(1, ids.size(1) - 1) % (ids.size(1) + 1));  // may be outside
}

}  // namespace

bool reads_pictures(const std::string& family) {
  return family == "gemma3" || family == "llava" || family == "mistral3" || family == "qwen2_5_vl";
}

bool is_contrastive(const std::string& family) { return family == "clip" || family == "siglip"; }

TensorDict without_unused_pictures(const ModelCase& what, TensorDict batch) {
  const bool has_any = (batch.at("input_ids") == picture_token(what)).any().item<bool>();
  for (const char* name : {"pixel_values", "image_grid_thw", "image_sizes"})
    if (!has_any && batch.contains(name)) batch.take(name);
  return batch;
}

bool is_bert(const std::string& family) {
  static const std::set<std::string> families = {"bert",       "distilbert", "modernbert", "electra",
                                                 "nomic_bert", "roberta",    "xlm-roberta"};
  return families.contains(family);
}

bool is_text_pair(const std::string& family) {
  return family == "t5" || family == "mt5" || family == "umt5" || family == "bart" || family == "pegasus";
}

TensorDict full_batch(const ModelCase& what, std::size_t step) {
  const std::int64_t samples = what.batches[step];
  if (what.distinct > 0) step %= what.distinct;
  torch::Tensor ids = torch::empty({samples, what.tokens}, torch::kInt64), labels = torch::empty_like(ids);
  std::uint64_t state = 1000 + step;
  auto draw = [&](std::uint64_t bound) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (state >> 33) % bound;
  };
  for (std::int64_t i = 0; i < ids.numel(); ++i) {
    ids.data_ptr<std::int64_t>()[i] = static_cast<std::int64_t>(draw(what.vocabulary));
    labels.data_ptr<std::int64_t>()[i] = static_cast<std::int64_t>(draw(what.vocabulary));
    // The first samples lose more labels, so that replicas and microbatches count differently.
    if (static_cast<double>(draw(1000)) < 1000 * what.ignored * (i < ids.numel() / 2 ? 2 : 0.5))
      labels.data_ptr<std::int64_t>()[i] = -100;
  }
  labels.narrow(1, 0, what.first_counted).fill_(-100);
  for (std::int64_t sample = 0; what.irregular && sample < samples; ++sample) {
    const std::int64_t length = 2 + (3 * sample + static_cast<std::int64_t>(step)) % (what.tokens - 1);
    ids[sample].narrow(0, length, what.tokens - length).zero_();
    const std::int64_t counted = sample % 3 == 1 ? 0 : length;
    labels[sample].narrow(0, counted, what.tokens - counted).fill_(-100);
  }
  TensorDict batch{{"input_ids", ids}, {"labels", labels}};
  if (is_text_pair(what.family)) return pairs_of(batch);
  if (what.family == "vit") return images_of(batch);
  if (is_contrastive(what.family)) return contrasts_of(what, batch);
  if (what.family == "whisper") return sounds_of(batch);
  if (reads_pictures(what.family)) add_pictures(what, batch);
  const bool is_text_encoder = is_bert(what.family);
  if (is_text_encoder) add_bert_entries(what, batch);
  if (!is_text_encoder && what.labels > 0) batch.set("labels", ids.select(1, 0) % what.labels);
  if (!is_text_encoder && what.padded) batch.set("attention_mask", padding_mask(ids, /*is_before=*/true));
  if (what.head == "Model") {  // texts whose embeddings are compared
    set_choices(batch);
    batch.take("labels");
  }
  if (!what.documents.empty())
    batch.set("document_ids", document_ids_of(samples, what.documents));
  else if (what.packed)
    batch.set("document_ids", (torch::arange(what.tokens) + torch::arange(samples).unsqueeze(1)).div(3, "floor"));
  return batch;
}

}  // namespace gantry::testing
