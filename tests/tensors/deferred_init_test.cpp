#include "gantry/tensors/deferred_init.h"

#include <fstream>
#include <gtest/gtest.h>

#include "gantry/core/error.h"
#include "gantry/tensors/libtorch.h"
#include "gantry/tensors/philox.h"

namespace gantry {
namespace {

torch::Tensor made(const std::function<void(torch::Tensor&)>& initialise) {
  const DeferredInit deferred;
  torch::Tensor tensor = torch::empty({10, 6}, torch::kFloat64);
  initialise(tensor);
  return tensor;
}

std::int64_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  std::int64_t total = 0, resident = 0;
  file >> total >> resident;
  return resident * 4096;
}

TEST(Philox, KnownAnswers) {
  EXPECT_EQ(philox({0, 0}, 0), (std::array<std::uint32_t, 4>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox({~0ull, ~0ull}, ~0ull),
            (std::array<std::uint32_t, 4>{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
}

TEST(Philox, ASliceEqualsThatOfTheFullTensor) {
  const PhiloxKey key{3, philox_stream("w")};
  std::vector<double> full(1000), part(77);
  philox_normal(key, 0, 1000, full.data());
  philox_normal(key, 123, 77, part.data());
  EXPECT_TRUE(std::equal(part.begin(), part.end(), full.begin() + 123));
  std::vector<float> uniform(1000), piece(5);
  philox_uniform(key, 0, 1000, uniform.data());
  philox_uniform(key, 7, 5, piece.data());
  EXPECT_TRUE(std::equal(piece.begin(), piece.end(), uniform.begin() + 7));
}

TEST(DeferredInit, SlicesOfEveryLayoutEqualTheFullTensor) {
  const std::vector<std::function<void(torch::Tensor&)>> ways = {
      [](torch::Tensor& t) { t.uniform_(-2, 3); },
      [](torch::Tensor& t) { t.normal_(1, 2); },
      [](torch::Tensor& t) { t.normal_().mul_(0.5).add_(3); },
      [](torch::Tensor& t) {
        t.fill_(1);
        t[3].zero_();
      },  // through a view: the full tensor is replayed
      [](torch::Tensor& t) {
        t.normal_();
        t.select(1, 2).uniform_(5, 6);
      },
      [](torch::Tensor& t) {
        t.zero_();
        t.copy_(torch::arange(60, torch::kFloat64).view({10, 6}));
      },
      [](torch::Tensor& t) { torch::nn::init::kaiming_uniform_(t); },
  };
  for (const auto& way : ways) {
    torch::Tensor full = made(way);
    ASSERT_TRUE(is_deferred(full));
    materialize(full, "w", 5);
    ASSERT_FALSE(is_deferred(full));
    for (const int dim : {0, 1})
      for (int ranks = 1; ranks <= 4; ++ranks)
        for (int rank = 0; rank < ranks; ++rank) {
          torch::Tensor part = made(way);
          const ShardSpec placement = shard(dim, full.size(dim), ranks);
          shard_tensor(part, placement, rank);
          materialize(part, "w", 5);
          const Range range = placement.ranges(rank).front();
          EXPECT_TRUE(torch::equal(part, full.narrow(dim, range.begin, range.size())));
        }
  }
}

TEST(DeferredInit, NamesAndSeedsGiveOtherValues) {
  const auto normal = [](torch::Tensor& t) { t.normal_(); };
  torch::Tensor a = made(normal), b = made(normal), c = made(normal);
  materialize(a, "a", 1), materialize(b, "b", 1), materialize(c, "a", 2);
  EXPECT_FALSE(torch::equal(a, b));
  EXPECT_FALSE(torch::equal(a, c));
  EXPECT_NEAR(a.std().item<double>(), 1, 0.3);
}

TEST(DeferredInit, ModulesKeepTheirDistributionAndIdentity) {
  std::shared_ptr<torch::nn::LinearImpl> linear;
  std::shared_ptr<torch::nn::LayerNormImpl> norm;
  {
    const DeferredInit deferred;
    linear = std::make_shared<torch::nn::LinearImpl>(400, 300);
    norm = std::make_shared<torch::nn::LayerNormImpl>(torch::nn::LayerNormOptions({50}));
  }
  auto* identity = linear->weight.unsafeGetTensorImpl();
  materialize(*linear, 1);
  materialize(*norm, 1);
  EXPECT_EQ(linear->weight.unsafeGetTensorImpl(), identity);
  EXPECT_LE(linear->weight.abs().max().item<float>(), 1 / std::sqrt(400.0f));
  EXPECT_GT(linear->weight.abs().max().item<float>(), 0.99f / std::sqrt(400.0f));
  EXPECT_TRUE(torch::equal(norm->weight, torch::ones({50})));
  EXPECT_TRUE(linear->weight.requires_grad() && linear->weight.is_leaf());
}

TEST(DeferredInit, DtypesDrawTheSameNumbers) {
  auto build = [] {
    const DeferredInit deferred;
    return std::make_shared<torch::nn::LinearImpl>(7, 5);
  };
  auto single = build(), twice = build();
  set_dtype(*twice, torch::kFloat64);
  materialize(*single, 1);
  materialize(*twice, 1);
  EXPECT_TRUE(torch::equal(single->weight, twice->weight.to(torch::kFloat32)));
}

TEST(DeferredInit, ReadingAndSharedGeneratorsAreRefusedByName) {
  const DeferredInit deferred;
  torch::Tensor tensor = torch::empty({3}).normal_();
  try {
    tensor.sum();
    FAIL();
  } catch (const UsageError& error) {
    EXPECT_NE(std::string(error.what()).find("aten::sum"), std::string::npos);
  }
  EXPECT_THROW(torch::randn({3}), UsageError);
  EXPECT_TRUE(torch::equal(torch::tril(torch::ones({2, 2})),
                           torch::tensor({{1.0f, 0.0f}, {1.0f, 1.0f}})));  // values are values
}

TEST(DeferredInit, TenGigabytesCostNothingUntilHeld) {
  const std::int64_t before = resident_bytes();
  const DeferredInit deferred;
  std::vector<std::shared_ptr<torch::nn::LinearImpl>> layers;
  for (int i = 0; i < 40; ++i) layers.push_back(std::make_shared<torch::nn::LinearImpl>(8192, 8192));  // 268 MB each
  EXPECT_LT(resident_bytes() - before, 200 << 20);
}

}  // namespace
}  // namespace gantry
