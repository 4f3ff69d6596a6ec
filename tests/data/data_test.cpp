#include <filesystem>
#include <fstream>
#include <functional>
#include <gtest/gtest.h>
#include <set>
#include <unistd.h>

#include "gantry/core/error.h"
#include "gantry/data/corpus/megatron_writer.h"
#include "gantry/data/data_loader.h"
#include "gantry/data/encoded_text.h"
#include "gantry/data/token_files.h"
#include "gantry/data/tokenizers/tokenizer.h"
#include "gantry/tensors/libtorch.h"
#include "thrown_by.h"

namespace gantry {
namespace {

class Files : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::path(::testing::TempDir()) / ("gantry_data_" + std::to_string(::getpid()));
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string write(const std::string& name, const std::string& bytes) {
    std::ofstream(folder_ / name, std::ios::binary) << bytes;
    return (folder_ / name).string();
  }
  std::filesystem::path folder_;
};

std::string fault_of(const DataConfig& config, std::int64_t vocabulary) {
  return testing::thrown_by<InputError>([&] {
    const auto data = open_dataset(config, vocabulary);
    std::vector<std::int64_t> tokens(static_cast<std::size_t>(config.sequence_length) + 1);
    data->read(data->size() - 1, tokens.data());
  });
}

TEST_F(Files, TextReadsBytesOfFilesFoldersAndGlobs) {
  write("b.txt", "defgh");
  write("aa.txt", "");
  write("a.txt", "abc");
  for (const std::string& path : {folder_.string(), (folder_ / "*.txt").string()}) {
    const auto data = open_dataset({.format = "text", .path = path, .sequence_length = 3}, 256);
    ASSERT_EQ(data->size(), 2);
    std::int64_t tokens[4];
    data->read(0, tokens);  // over the end of a file
    EXPECT_EQ(std::vector<std::int64_t>(tokens, tokens + 4), (std::vector<std::int64_t>{'a', 'b', 'c', 'd'}));
    data->read(1, tokens);
    EXPECT_EQ(std::vector<std::int64_t>(tokens, tokens + 4), (std::vector<std::int64_t>{'d', 'e', 'f', 'g'}));
  }
}

TEST_F(Files, FilesAreTheDocumentsOfTextAndTokens) {
  write("a.txt", "abc");
  write("b.txt", "");
  write("c.txt", "defgh");
  DataConfig config{.format = "text", .path = folder_.string(), .document_mask = true, .sequence_length = 4};
  const auto data = open_dataset(config, 256);
  ASSERT_EQ(data->size(), 1);
  std::vector<std::int64_t> numbers(12);
  data->read(0, numbers.data());
  EXPECT_EQ(numbers, (std::vector<std::int64_t>{'a', 'b', 'c', 'd', 'b', 'c', -100, 'e', 0, 0, 0, 1}));
  EXPECT_EQ(sample_source(config, 256).entries.size(), 3u);
  config.format = "tokens";
  config.path = (folder_ / "?.bin").string();
  write("1.bin", std::string("\x01\0\x02\0", 4));
  write("2.bin", std::string("\x03\0\x04\0\x05\0", 6));
  open_dataset(config, 256)->read(0, numbers.data());
  EXPECT_EQ(numbers, (std::vector<std::int64_t>{1, 2, 3, 4, 2, -100, 4, 5, 0, 0, 1, 1}));
}

// A process can have about 65,530 mappings. In this test the limit is 3.
TEST_F(Files, MoreThanCanBeMappedAreReadIdentically) {
  std::vector<std::filesystem::path> files;
  for (int i = 0; i < 20; ++i)
    files.emplace_back(write(std::to_string(100 + i), std::string("\x01\0\x02\0\x03", 5) + static_cast<char>(i % 2)));
  const auto mapped = open_token_files(files, 2, 4, 512, "data"),
             opened = open_token_files(files, 2, 4, 512, "data", 3);
  ASSERT_EQ(opened->size(), mapped->size());
  for (std::int64_t i = 0; i < mapped->size(); ++i) {
    std::vector<std::int64_t> a(5), b(5);
    mapped->read(i, a.data());
    opened->read(i, b.data());
    EXPECT_EQ(a, b) << i;
  }
  std::filesystem::resize_file(files.front(), 0);
  std::vector<std::int64_t> tokens(5);
  EXPECT_THROW(opened->read(0, tokens.data()), InputError);
}

TEST_F(Files, BadDataIsRefusedWithTheArithmetic) {
  const std::string odd = write("odd.bin", "abc"), tokens = write("tokens.bin", std::string("\x01\x00\x33\x01", 4)),
                    text = write("text.txt", "abc");
  EXPECT_NE(fault_of({.format = "tokens", .path = odd}, 256).find("has 3 bytes"), std::string::npos);
  EXPECT_NE(fault_of({.format = "tokens", .path = tokens, .sequence_length = 1}, 256)
                .find("token 307 at position 1 is outside the model's vocabulary of 256"),
            std::string::npos);
  EXPECT_NE(fault_of({.format = "text", .path = text, .sequence_length = 8}, 256)
                .find("there are 3 tokens; expected at least sequence_length 8 + 1 = 9"),
            std::string::npos);
  EXPECT_NE(fault_of({.format = "text", .path = text, .sequence_length = 2}, 100).find("vocabulary is 100"),
            std::string::npos);
  EXPECT_NE(fault_of({.format = "text", .path = (folder_ / "none*").string()}, 256).find("matches no file"),
            std::string::npos);
}

// Each file is encoded on its own and ended by the end token; the tokens form one row.
TEST_F(Files, TextIsEncodedByATokenizer) {
  const std::string golden = std::string(GANTRY_SOURCE_DIR) + "/tests/golden/tokenizers/gpt2";
  const auto tokenizer = load_tokenizer(golden);
  TokenIds row;
  for (const char* text : {"The quick brown fox", "", " and the <|endoftext|> dogs"}) {
    write("t" + std::to_string(row.size()) + ".txt", text);
    tokenizer->append(text, row);
    if (*text != '\0') row.push_back(tokenizer->special().end.value());
  }
  const DataConfig config{.format = "text", .path = folder_.string(), .tokenizer = golden, .sequence_length = 3};
  const auto data = open_dataset(config, tokenizer->size());
  const auto again = open_dataset(config, tokenizer->size());  // another rank of the process
  ASSERT_EQ(data->size(), static_cast<std::int64_t>(row.size() - 1) / 3);
  for (std::int64_t sample = 0; sample < data->size(); ++sample) {
    std::int64_t tokens[4], others[4];
    data->read(sample, tokens);
    again->read(sample, others);
    EXPECT_EQ(std::vector<std::int64_t>(tokens, tokens + 4),
              std::vector<std::int64_t>(row.begin() + 3 * sample, row.begin() + 3 * sample + 4));
    EXPECT_TRUE(std::equal(tokens, tokens + 4, others));
  }
  EXPECT_NE(fault_of(config, 20).find("outside the model's vocabulary of 20; expected 0 to 19"), std::string::npos);
}

TEST_F(Files, TheTokenizerOfTextIsStatedOrTheModelsOrBytes) {
  EXPECT_EQ(choose_text_tokenizer("", "", 256), "bytes");
  EXPECT_EQ(choose_text_tokenizer("mine", folder_.string(), 1000), "mine");
  EXPECT_EQ(choose_text_tokenizer("bytes", folder_.string(), 1000), "bytes");
  for (const std::string& model : {folder_.string(), std::string()})
    EXPECT_THROW(choose_text_tokenizer("", model, 1000), ConfigError);
  EXPECT_EQ(choose_text_tokenizer("", folder_.string(), 256), "bytes");
  write("vocab.txt", "[UNK]\n");
  EXPECT_EQ(choose_text_tokenizer("", folder_.string(), 1000), folder_.string());
}

// Three sources of 12 tokens, made of 1, 2 and 3.
TEST_F(Files, SourcesAreBlendedByWeightInEveryTokenFormat) {
  DataConfig config{.sequence_length = 3};
  const auto add = [&](const std::string& format, int source) {
    const std::string name = format + std::to_string(source);
    const auto token = static_cast<char>(source);
    std::string path = write(name, std::string(12, token));
    if (format == "tokens") {
      std::string wide;
      for (int i = 0; i < 12; ++i) wide += {token, '\0'};
      path = write(name, wide);
    }
    if (format == "megatron") {
      MegatronWriter writer(path, TokenType::kUint16);
      writer.append_sequence(std::vector<std::int64_t>(12, source));
      writer.end_document();
      writer.finish();
    }
    config.sources.push_back({path, source == 1 ? 0.5 : 0.25});
  };
  for (const std::string format : {"text", "tokens", "megatron"}) {
    config.format = format;
    config.sources.clear();
    for (int source = 1; source <= 3; ++source) add(format, source);
    DataLoader loader(sample_source(config, 256), {.global_batch = 16});
    EXPECT_EQ(loader.samples(), 9);
    const torch::Tensor ids = loader.next().tensors.at("input_ids").select(1, 0);
    for (int source = 1; source <= 3; ++source)
      EXPECT_EQ((ids == source).sum().item<std::int64_t>(), source == 1 ? 8 : 4) << format << source;
  }
}

TEST_F(Files, BadSourcesAreNamed) {
  const auto fault = [&](const std::string& format, const std::string& path, std::int64_t vocabulary) -> std::string {
    const DataConfig config{
        .format = format, .sources = {{write("good", "some text"), 1}, {path, 1}}, .sequence_length = 3};
    return testing::thrown_by<InputError>(
        [&] { DataLoader(sample_source(config, vocabulary), {.global_batch = 4}).next(); });
  };
  EXPECT_NE(fault("text", (folder_ / "none").string(), 256).find("data.sources[1].path: '"), std::string::npos);
  EXPECT_NE(
      fault("text", write("short", "abc"), 256).find("short: there are 3 tokens; expected at least sequence_length 3"),
      std::string::npos);
  MegatronWriter writer((folder_ / "m").string(), TokenType::kUint16);
  writer.append_sequence(std::vector<std::int64_t>{1, 2, 300, 4, 5, 6, 7});
  writer.end_document();
  writer.finish();
  DataConfig config{.format = "megatron", .path = (folder_ / "m").string(), .sequence_length = 3};
  EXPECT_NO_THROW(DataLoader(sample_source(config, 301), {.global_batch = 4}).next());
  for (const int prefetch : {0, 2}) {
    DataLoader loader(sample_source(config, 300), {.global_batch = 4, .prefetch = prefetch});
    try {
      loader.next();
      ADD_FAILURE();
    } catch (const InputError& error) {
      EXPECT_NE(std::string(error.what()).find("token 300 at position 2 of sequence 0 is outside"), std::string::npos)
          << error.what();
    }
  }
  config.sequence_length = 7;
  EXPECT_NE(fault_of(config, 400).find("there are 7 tokens; expected at least sequence_length 7 + 1 = 8"),
            std::string::npos);
  config.path = (folder_ / "nothing").string();
  EXPECT_NE(fault_of(config, 400).find("nothing.idx"), std::string::npos);
}

TEST(Acceptance, A4SamplerIsDisjointOverReplicasAndCoversTheDataset) {
  for (const int replicas : {1, 2, 3})
    for (const bool drop : {false, true}) {
      std::multiset<std::int64_t> all;
      std::size_t each = 0;
      for (int replica = 0; replica < replicas; ++replica) {
        DistributedSampler sampler(
            {.dataset_size = 20, .replicas = replicas, .replica = replica, .seed = 4, .drop_last = drop});
        const auto epoch = sampler.indices();
        EXPECT_EQ(epoch,
                  DistributedSampler(
                      {.dataset_size = 20, .replicas = replicas, .replica = replica, .seed = 4, .drop_last = drop})
                      .indices());
        each = epoch.size();
        all.insert(epoch.begin(), epoch.end());
        sampler.set_epoch(1);
        EXPECT_NE(sampler.indices(), epoch);
      }
      EXPECT_EQ(each, static_cast<std::size_t>(drop ? 20 / replicas : (20 + replicas - 1) / replicas));
      if (!drop) EXPECT_EQ(std::set(all.begin(), all.end()).size(), 20u);
      if (drop) EXPECT_EQ(std::set(all.begin(), all.end()).size(), all.size());
    }
}

TEST_F(Files, ReplicasBatchesJoinToTheGlobalOne) {
  std::string bytes;
  for (int i = 0; i < 256; ++i) bytes += static_cast<char>(i);
  const std::shared_ptr<const Dataset> data =
      open_dataset({.format = "text", .path = write("t", bytes), .sequence_length = 4}, 256);
  DataLoader full(data, {.global_batch = 7});
  for (int step = 0; step < 20; ++step) {
    std::vector<torch::Tensor> parts;
    for (int replica = 0; replica < 3; ++replica) {
      DataLoader loader(data, {.global_batch = 7});
      loader.distribute(3, replica);
      const Batch batch = loader.batch(step);
      EXPECT_EQ(batch.global_samples, 7);
      parts.push_back(batch.tensors.at("input_ids"));
    }
    EXPECT_TRUE(torch::equal(torch::cat(parts), full.batch(step).tensors.at("input_ids")));
  }
  std::int64_t seen = 0;
  for (auto& batch : full) seen += batch.samples;
  EXPECT_EQ(seen, full.steps() * 7);
}

}  // namespace
}  // namespace gantry
