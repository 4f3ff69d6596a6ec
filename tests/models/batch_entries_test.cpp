// Names, types and shapes of the entries of a batch, by family and task.
#include "gantry/models/batch_entries.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gantry/core/error.h"
#include "gantry/tensors/libtorch.h"

namespace gantry::testing {
namespace {

using ::testing::HasSubstr;

torch::Tensor whole_entry(at::IntArrayRef shape) { return torch::ones(shape, torch::kInt64); }
torch::Tensor real_entry(at::IntArrayRef shape) { return torch::ones(shape, torch::kFloat32); }

struct EntryCase {
  std::string family, task;
  TensorDict batch;
  std::string error = {};
};

std::string refusal_of(const EntryCase& what) {
  try {
    models::check_batch_entries(what.batch, models::families().at(what.family), what.task, "file");
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

TEST(BatchEntries, OfEveryTaskAreAccepted) {
  const torch::Tensor ids = whole_entry({2, 8});
  const EntryCase cases[] = {
      {"llama", "tokens", {{"input_ids", ids}, {"labels", ids}}},
      {"llama", "tokens", {{"input_ids", ids}, {"labels", ids}, {"attention_mask", real_entry({2, 8})}}},
      {"llama", "tokens", {{"input_ids", ids}, {"labels", ids}, {"attention_mask", ids != 0}, {"document_ids", ids}}},
      {"llama", "classes", {{"input_ids", ids}, {"labels", real_entry({2, 3})}}},
      {"llama", "contrast", {{"input_ids", whole_entry({2, 3, 8})}, {"attention_mask", whole_entry({2, 3, 8})}}},
      {"qwen2_5_vl", "tokens", {{"input_ids", ids}, {"labels", ids}, {"position_ids", whole_entry({3, 2, 8})}}},
      {"qwen2_5_vl", "tokens", {{"input_ids", ids}, {"labels", ids}, {"position_ids", whole_entry({2, 8, 3})}}},
      {"bert", "classes", {{"input_ids", whole_entry({2, 3, 8})}, {"labels", whole_entry({2})}}},
      {"bert", "spans", {{"input_ids", ids}, {"start_positions", whole_entry({2})}}},
      {"t5", "pairs", {{"input_ids", ids}, {"labels", whole_entry({2, 5})}}},
      {"t5", "pairs", {{"input_ids", ids}, {"decoder_input_ids", whole_entry({2, 5})}}},
      {"whisper", "pairs", {{"input_features", real_entry({2, 4, 6})}, {"labels", whole_entry({2, 5})}}},
      {"vit", "images", {{"pixel_values", real_entry({2, 3, 8, 8})}, {"labels", whole_entry({2})}}},
      {"clip", "contrast", {{"input_ids", ids}, {"pixel_values", real_entry({2, 3, 8, 8})}}},
  };
  for (const EntryCase& what : cases) EXPECT_EQ(refusal_of(what), "") << what.family << describe(what.batch);
}

TEST(BatchEntries, OfOtherFormsAreRefused) {
  const torch::Tensor ids = whole_entry({2, 8});
  const auto text = [&](const std::string& name, const torch::Tensor& tensor, const std::string& error) {
    TensorDict batch{{"input_ids", ids}, {"labels", ids}};
    batch.set(name, tensor);
    return EntryCase{"llama", "tokens", batch, error};
  };
  const EntryCase cases[] = {
      text("attention_mask", whole_entry({2, 9}),
           "file: attention_mask is int64 [2, 9], but input_ids is int64 [2, 8]"),
      text("attention_mask", whole_entry({2, 7}), "attention_mask is int64 [2, 7]"),
      text("attention_mask", whole_entry({2, 8, 8}), "attention_mask is int64 [2, 8, 8]"),
      text("attention_mask", whole_entry({2, 1, 8, 8}), "expected the shape [2, 8]"),
      text("document_ids", whole_entry({2, 7}), "document_ids is int64 [2, 7]"),
      text("position_ids", whole_entry({2, 1}), "position_ids is int64 [2, 1]"),
      text("position_ids", real_entry({2, 8}), "position_ids is float32 [2, 8]; expected integers"),
      text("input_ids", whole_entry({2, 8, 1}), "input_ids is int64 [2, 8, 1]; expected [samples, tokens]"),
      text("input_ids", real_entry({2, 8}), "input_ids is float32 [2, 8]; expected integers"),
      text("labels", whole_entry({2}), "labels is int64 [2]"),
      text("labels", whole_entry({2, 7}), "labels is int64 [2, 7]"),
      text("labels", real_entry({2, 8}), "labels is float32 [2, 8]; expected integers"),
      text("loss_mask", ids, "the file has an entry 'loss_mask' that the model does not read"),
      {"bert", "classes", {{"input_ids", ids}, {"labels", whole_entry({3})}}, "labels is int64 [3]"},
      {"bert", "spans", {{"input_ids", ids}, {"end_positions", ids}}, "end_positions is int64 [2, 8]"},
      {"t5", "pairs", {{"input_ids", ids}, {"labels", whole_entry({2})}}, "labels is int64 [2]"},
      {"t5",
       "pairs",
       {{"input_ids", ids}, {"labels", whole_entry({2, 5})}, {"decoder_attention_mask", ids}},
       "expected the shape [2, 5]"},
      {"vit", "images", {{"pixel_values", whole_entry({2, 3, 8, 8})}}, "expected real numbers"},
  };
  for (const EntryCase& what : cases) EXPECT_THAT(refusal_of(what), HasSubstr(what.error)) << describe(what.batch);
}

}  // namespace
}  // namespace gantry::testing
