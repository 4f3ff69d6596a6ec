// data.format tensors: the entries of a safetensors file, and the errors for invalid files.
#include "gantry/data/tensor_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gantry/checkpoint/safetensors.h"
#include "gantry/data/loader.h"
#include "gantry/tensors/libtorch.h"
#include "program.h"

namespace gantry::testing {
namespace {

using ::testing::HasSubstr;

class TensorFiles : public ::testing::Test {
 protected:
  DataConfig written(const TensorDict& tensors) {
    write_safetensors(scratch_ / "samples", tensors);
    return {.format = "tensors", .path = scratch_ / "samples"};
  }
  std::string refusal(const TensorDict& tensors) {
    try {
      open_dataset(written(tensors), 100);
    } catch (const InputError& error) {
      return error.what();
    }
    return "none";
  }
  ScratchFolder scratch_;
};

TEST_F(TensorFiles, EntriesHaveTheirNamesTypesAndShapes) {
  const torch::Tensor pixels = torch::arange(24, torch::kFloat32).view({3, 2, 2, 2}),
                      classes = torch::tensor({5, 6, 7}), ids = torch::arange(12, torch::kInt32).view({3, 4});
  const DataConfig config = written({{"pixel_values", pixels}, {"labels", classes}, {"input_ids", ids}});
  const SampleSource source = sample_source(config, 100);
  EXPECT_EQ(source.sequence_length, 4);
  const Loader loader(source, {.shuffle = false});
  ASSERT_EQ(loader.samples(), 3);
  const Batch batch = loader.batch(1, 3);  // the last batch continues with the first sample
  const torch::Tensor order = torch::tensor({1, 2, 0});
  EXPECT_TRUE(torch::equal(batch.tensors.at("pixel_values"), pixels.index_select(0, order)));
  EXPECT_TRUE(torch::equal(batch.tensors.at("labels"), classes.index_select(0, order)));
  EXPECT_TRUE(torch::equal(batch.tensors.at("input_ids"), ids.index_select(0, order)));
  EXPECT_EQ(batch.tensors.at("input_ids").scalar_type(), torch::kInt32);
  EXPECT_EQ(batch.tokens_per_sample, 4);
}

TEST_F(TensorFiles, SourcesMustBeIdentical) {
  DataConfig config = written({{"labels", torch::arange(3)}});
  write_safetensors(scratch_ / "others", {{"labels", torch::arange(3).to(torch::kInt32)}});
  config.sources = {{.path = config.path}, {.path = scratch_ / "others"}};
  EXPECT_THROW(Loader(sample_source(config, 100), {}), UsageError);
  config.sources[1].path = config.path;
  EXPECT_EQ(Loader(sample_source(config, 100), {}).samples(), 6);
}

TEST_F(TensorFiles, FaultsNameTheTensor) {
  EXPECT_THAT(refusal({{"labels", torch::ones({2})}, {"pixel_values", torch::ones({3, 2})}}),
              HasSubstr("'pixel_values' is float32 [3, 2]; expected 2 samples along dim 0, like 'labels'"));
  EXPECT_THAT(refusal({{"labels", torch::ones({})}}), HasSubstr("'labels' is float32 []"));
  EXPECT_THAT(refusal({{"labels", torch::ones({2}, torch::kComplexFloat)}}), HasSubstr("[2]; expected one of bool"));
  EXPECT_THAT(refusal({}), HasSubstr("has no tensors"));
  EXPECT_THROW(open_dataset({.format = "tensors", .path = scratch_ / "none"}, 100), InputError);
  scratch_.write("text", "these are no tensors");
  EXPECT_THROW(open_dataset({.format = "tensors", .path = scratch_ / "text"}, 100), InputError);
}

}  // namespace
}  // namespace gantry::testing
