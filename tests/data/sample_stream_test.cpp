// Loaders of streams: batches for any number of replicas, ends of streams, saved places, and errors.
#include "gantry/data/sample_stream.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "counted_stream.h"
#include "gantry/data/data_loader.h"
#include "gantry/tensors/libtorch.h"
#include "thrown_by.h"

namespace gantry::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const std::vector<std::int64_t> kStreamLengths{5, 9, 2, 7};

DataLoader stream_loader(const DataLoaderOptions& options) {
  return {StreamSource{.open = counted_streams(kStreamLengths), .streams = 4}, options};
}

// The numbers of the samples: 100 * stream + index.
std::string samples_of(const Batch& batch) {
  std::string text;
  const torch::Tensor first = batch.tensors.at("input_ids").select(1, 0).contiguous();
  for (std::int64_t i = 0; i < batch.samples; ++i) text += std::to_string(first[i].item<std::int64_t>()) + " ";
  return text;
}

// The batches of all replicas up to the end, step by step.
std::vector<std::string> batches_of(int replicas, const DataLoaderOptions& options) {
  std::vector<std::string> steps;
  for (int replica = 0; replica < replicas; ++replica) {
    DataLoader loader = stream_loader(options);
    loader.distribute(replicas, replica);
    for (std::size_t step = 0; step < 8; ++step) {
      if (steps.size() <= step) steps.emplace_back();
      steps[step] += samples_of(loader.next());
    }
    EXPECT_TRUE(loader.is_at_end());
  }
  return steps;
}

TEST(SampleStreams, GiveTheSameBatchesToEveryNumberOfReplicas) {
  const auto expected = batches_of(1, {.global_batch = 6});
  EXPECT_THAT(expected, ElementsAre("0 1 100 101 200 300 ", "2 3 102 103 201 301 ", "4 104 105 302 ", "106 107 303 ",
                                    "108 304 ", "305 ", "306 ", ""));
  EXPECT_EQ(batches_of(2, {.global_batch = 6}), expected);
  EXPECT_EQ(batches_of(4, {.global_batch = 6, .prefetch = 3}), expected);
  EXPECT_EQ(batches_of(1, {.global_batch = 6, .workers = 4}), expected);
}

TEST(SampleStreams, ContinueAtAPlaceWithOtherBatchesAndReplicas) {
  for (const int prefetch : {0, 2}) {
    DataLoader first = stream_loader({.global_batch = 6, .prefetch = prefetch});
    EXPECT_FALSE(first.is_at_end());
    EXPECT_EQ(first.place().position, 0);
    (void)first.next();
    const LoaderPlace place = first.place();
    EXPECT_EQ(samples_of(first.next()), "2 3 102 103 201 301 ");
    EXPECT_FALSE(first.is_at_end());  // the saved place excludes the prefetched batch
    EXPECT_EQ(place.position, 6);
    EXPECT_EQ(first.place().position, 12);
    first.seek(place);
    EXPECT_EQ(samples_of(first.next()), "2 3 102 103 201 301 ");
    DataLoader second = stream_loader({.global_batch = 4, .prefetch = prefetch});
    second.distribute(2, 1);
    second.seek(place);
    EXPECT_EQ(second.position(), 2);  // in the streams of this replica
    EXPECT_EQ(samples_of(second.next()), "201 301 ");
    second.seek(LoaderPlace{});
    EXPECT_EQ(samples_of(second.next()), "200 300 ");
  }
}

TEST(SampleStreams, ResumeAtTheirEndAndAfterIt) {
  DataLoader loader = stream_loader({.global_batch = 4});
  while (!loader.is_at_end()) (void)loader.next();
  const LoaderPlace end = loader.place();
  EXPECT_EQ(end.position, 23);
  DataLoader resumed = stream_loader({.global_batch = 4});
  resumed.seek(end);
  EXPECT_TRUE(resumed.is_at_end());
  const Batch none = resumed.next();
  EXPECT_EQ(none.samples, 0);
  EXPECT_EQ(none.tensors.at("labels").sizes(), (std::vector<std::int64_t>{0, kStreamTokens}));
  DataLoader grown(StreamSource{.open = counted_streams({5, 9, 4, 7}), .streams = 4}, {.global_batch = 4});
  grown.seek(end);
  EXPECT_EQ(samples_of(grown.next()), "202 ");
}

TEST(SampleStreams, ThrowTheErrorOfAStreamAgain) {
  for (const int prefetch : {0, 2}) {
    DataLoader loader(StreamSource{.open = [](int) { return std::make_unique<CountedStream>(0, 9, /*fails_at=*/3); }},
                      {.global_batch = 2, .prefetch = prefetch});
    (void)loader.next();
    for (int call = 0; call < 2; ++call)
      EXPECT_THROW((void)loader.next(), std::runtime_error) << "prefetch " << prefetch;
  }
}

TEST(SampleStreams, RefuseWhatNeedsALength) {
  DataLoader loader = stream_loader({.global_batch = 6});
  EXPECT_EQ(loader.samples(), 0);
  EXPECT_THAT(thrown_by([&] { (void)loader.steps(); }), HasSubstr("the length of streams is not known"));
  EXPECT_THAT(thrown_by([&] { (void)loader.batch(1); }), HasSubstr("DataLoader::batch"));
  EXPECT_THAT(thrown_by([&] { loader.seek(6); }), HasSubstr("pass a result of place()"));
  EXPECT_THAT(thrown_by([&] { loader.distribute(3, 0); }), HasSubstr("4 streams can't be split over 3 replicas"));
  EXPECT_THAT(thrown_by([&] { stream_loader({.global_batch = 3}).open(); }), HasSubstr("3 samples of 4 streams"));
  EXPECT_THAT(thrown_by([&] { DataLoader(StreamSource{}, {}); }), HasSubstr("StreamSource::open is not set"));
  DataLoader part = stream_loader({.global_batch = 6});
  part.distribute(4, 1);
  DataLoader other = stream_loader({.global_batch = 6});
  other.distribute(4, 2);
  EXPECT_THAT(thrown_by([&] { other.seek(part.place()); }), HasSubstr("no state of stream 2"));
  DataLoader empty(StreamSource{.open = counted_streams({0})}, {.global_batch = 2});
  EXPECT_THAT(thrown_by([&] { (void)empty.next(); }), HasSubstr("the streams of replica 0 have no samples"));
}

}  // namespace
}  // namespace gantry::testing
