// Megatron's .bin and .idx files: written data are read back unchanged, and inconsistent files are rejected.
#include <array>
#include <cstring>
#include <filesystem>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <limits>

#include "gantry/core/error.h"
#include "gantry/data/corpus/megatron.h"
#include "gantry/data/corpus/megatron_dataset.h"
#include "gantry/data/corpus/megatron_writer.h"
#include "program.h"
#include "thrown_by.h"

namespace gantry {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using testing::read_file;
using testing::ScratchFolder;
using TokenIds = std::vector<std::int64_t>;

constexpr TokenType kTypes[] = {TokenType::kUint8, TokenType::kInt8,    TokenType::kInt16,   TokenType::kInt32,
                                TokenType::kInt64, TokenType::kFloat64, TokenType::kFloat32, TokenType::kUint16};

void write(const std::string& prefix, TokenType type, const std::vector<std::vector<TokenIds>>& documents) {
  MegatronWriter writer(prefix, type);
  for (const auto& document : documents) {
    for (const auto& sequence : document) writer.append_sequence(sequence);
    writer.end_document();
  }
  writer.finish();
}

TokenIds read(const MegatronFiles& files, std::int64_t sequence) {
  TokenIds tokens(static_cast<std::size_t>(files.length(sequence)));
  files.read(sequence, 0, files.length(sequence), tokens.data());
  return tokens;
}

const std::vector<std::vector<TokenIds>> kDocuments{{{1, 2, 3}}, {{}, {4}}, {{100, 0, 127, 5}, {6, 7}}};

TEST(Megatron, EveryTypeIsReadAsItWasWritten) {
  for (const TokenType type : kTypes) {
    const ScratchFolder scratch;
    write(scratch / "x", type, kDocuments);
    EXPECT_FALSE(fs::exists(scratch / "x.bin.partial") || fs::exists(scratch / "x.idx.partial"));
    for (const char* name : {"x", "x.bin", "x.idx"}) {
      const MegatronFiles files(scratch / name);
      EXPECT_EQ(files.type(), type);
      EXPECT_EQ(files.sequences(), 5);
      EXPECT_EQ(files.documents(), 3);
      EXPECT_EQ(files.tokens(), 10);
      EXPECT_EQ(files.document_begin(1), 1);
      EXPECT_EQ(files.document_begin(2), 3);
      EXPECT_EQ(files.document_begin(3), 5);
      EXPECT_EQ(read(files, 3), (TokenIds{100, 0, 127, 5}));
      EXPECT_EQ(read(files, 1), TokenIds{});
    }
  }
}

// The bytes that megatron.core's IndexedDatasetBuilder writes for the same documents.
TEST(Megatron, BytesAreMegatrons) {
  const ScratchFolder scratch;
  write(scratch / "x", TokenType::kUint16, {{{1, 2, 3}}, {{258}}});
  EXPECT_EQ(read_file(scratch / "x.bin"), std::string("\1\0\2\0\3\0\2\1", 8));
  const std::string index(
      "MMIDIDX\0\0"
      "\1\0\0\0\0\0\0\0"
      "\10"
      "\2\0\0\0\0\0\0\0"
      "\3\0\0\0\0\0\0\0"
      "\3\0\0\0"
      "\1\0\0\0"
      "\0\0\0\0\0\0\0\0"
      "\6\0\0\0\0\0\0\0"
      "\0\0\0\0\0\0\0\0"
      "\1\0\0\0\0\0\0\0"
      "\2\0\0\0\0\0\0\0",
      82);
  EXPECT_EQ(read_file(scratch / "x.idx"), index);
}

TEST(Megatron, NegativeAndLargeTokensKeepTheirValue) {
  const ScratchFolder scratch;
  write(scratch / "x", TokenType::kInt64, {{{-1, std::numeric_limits<std::int64_t>::max()}}});
  EXPECT_EQ(read(MegatronFiles(scratch / "x"), 0), (TokenIds{-1, std::numeric_limits<std::int64_t>::max()}));
  for (const auto& [type, token] :
       {std::pair(TokenType::kUint16, std::int64_t{65536}), std::pair(TokenType::kUint8, std::int64_t{-1}),
        std::pair(TokenType::kFloat32, std::int64_t{(1 << 24) + 1})}) {
    MegatronWriter writer(scratch / "y", type);
    EXPECT_THROW(writer.append_sequence(TokenIds{token}), InputError) << token;
  }
  EXPECT_EQ(token_type_for(65499), TokenType::kUint16);
  EXPECT_EQ(token_type_for(65500), TokenType::kInt32);
}

TEST(Megatron, ReadingOutsideASequenceIsRefused) {
  const ScratchFolder scratch;
  write(scratch / "x", TokenType::kUint16, kDocuments);
  const MegatronFiles files(scratch / "x");
  TokenIds tokens(10);
  files.read(3, 1, 3, tokens.data());
  EXPECT_EQ(tokens[2], 5);
  constexpr std::int64_t kHuge = std::numeric_limits<std::int64_t>::max();
  for (const auto& [sequence, offset, count] : std::vector<std::array<std::int64_t, 3>>{
           {3, 1, 4}, {3, -1, 1}, {3, 0, -1}, {3, 5, 0}, {5, 0, 0}, {-1, 0, 0}, {3, 1, kHuge}, {3, kHuge, 1}})
    EXPECT_THROW(files.read(sequence, offset, count, tokens.data()), UsageError);
}

template <class T>
std::string with(std::string bytes, std::size_t at, T value) {
  std::memcpy(bytes.data() + at, &value, sizeof value);
  return bytes;
}

std::string megatron_fault(const std::string& prefix) {
  return testing::thrown_by<InputError>([&] { const MegatronFiles files(prefix); });
}

TEST(Megatron, FilesThatLieAreRefused) {
  const ScratchFolder scratch;
  write(scratch / "x", TokenType::kUint16, kDocuments);  // 5 sequences, 4 document indices
  const std::string good = read_file(scratch / "x.idx");
  constexpr std::size_t kLengths = 34, kPlaces = kLengths + 20, kDocumentIndices = kPlaces + 40;
  const auto fault_of = [&](const std::string& index) {
    scratch.write("x.idx", index);
    return megatron_fault(scratch / "x");
  };
  EXPECT_EQ(fault_of(good), "no error");
  EXPECT_EQ(fault_of(good + std::string(5, '\1')), "no error");  // the sequences' modes of multimodal data
  EXPECT_THAT(fault_of(""), HasSubstr("has 0 bytes and does not begin with MMIDIDX"));
  EXPECT_THAT(fault_of(good.substr(0, 17)), HasSubstr("the file ends after 17 of the 34 bytes of its header"));
  EXPECT_THAT(fault_of(with(good, 0, 'X')), HasSubstr("does not begin with MMIDIDX"));
  EXPECT_THAT(fault_of(with(good, 9, std::uint64_t{2})), HasSubstr("the file has version 2; expected 1"));
  EXPECT_THAT(fault_of(with(good, 17, '\0')), HasSubstr("the token type is 0; expected 1 to 8"));
  EXPECT_THAT(fault_of(with(good, 17, '\x9')), HasSubstr("the token type is 9"));
  for (const std::uint64_t count :
       {std::uint64_t{6}, std::uint64_t{1} << 60, ~std::uint64_t{0}, ~std::uint64_t{0} / 12 + 1}) {
    EXPECT_THAT(fault_of(with(good, 18, count)), HasSubstr("sequences and"));
    EXPECT_THAT(fault_of(with(good, 26, count)), HasSubstr("sequences and"));
  }
  EXPECT_THAT(fault_of(good.substr(0, good.size() - 1)), HasSubstr("sequences and"));
  EXPECT_THAT(fault_of(with(good, kLengths, -1)), HasSubstr("sequence 0 has -1 tokens"));
  EXPECT_THAT(fault_of(with(good, kLengths, 2'000'000'000)), HasSubstr("x.bin has 20 bytes"));
  EXPECT_THAT(fault_of(with(good, kPlaces + 8, std::int64_t{-2})),
              HasSubstr("sequence 1 has 0 tokens of uint16 at byte -2"));
  EXPECT_THAT(fault_of(with(good, kPlaces, std::numeric_limits<std::int64_t>::max())), HasSubstr("sequence 0"));
  EXPECT_THAT(fault_of(with(good, kPlaces + 24, std::int64_t{14})), HasSubstr("sequence 3"));
  EXPECT_THAT(fault_of(with(good, kDocumentIndices, std::int64_t{1})), HasSubstr("document index 0 is 1; expected 0"));
  EXPECT_THAT(fault_of(with(good, kDocumentIndices + 8, std::int64_t{4})),
              HasSubstr("document index 2 is 3; expected 4 to 5"));
  EXPECT_THAT(fault_of(with(good, kDocumentIndices + 16, std::int64_t{-1})), HasSubstr("document index 2 is -1"));
  EXPECT_THAT(fault_of(with(good, kDocumentIndices + 24, std::int64_t{4})), HasSubstr("the last document index is 4"));
  EXPECT_THAT(fault_of(with(good, kDocumentIndices + 24, std::int64_t{6})), HasSubstr("document index 3 is 6"));
  scratch.write("x.idx", good);
  scratch.write("x.bin", read_file(scratch / "x.bin").substr(0, 18));
  EXPECT_THAT(megatron_fault(scratch / "x"),
              HasSubstr("sequence 4 has 2 tokens of uint16 at byte 16, but x.bin has 18 bytes"));
  fs::remove(scratch / "x.bin");
  EXPECT_THAT(megatron_fault(scratch / "x"), HasSubstr("x.bin: No such file or directory"));
  fs::create_directory(scratch / "x.bin");
  EXPECT_THAT(megatron_fault(scratch / "x"), HasSubstr("x.bin: the path is not a regular file"));
}

TEST(Megatron, FloatsMustBeWholeNumbers) {
  const ScratchFolder scratch;
  write(scratch / "x", TokenType::kFloat32, {{{1, 2, 3}}});
  TokenIds tokens(3);
  for (const float value : {1.5f, std::numeric_limits<float>::quiet_NaN(), 1e30f}) {
    scratch.write("x.bin", with(read_file(scratch / "x.bin"), 4, value));
    EXPECT_THROW(MegatronFiles(scratch / "x").read(0, 0, 3, tokens.data()), InputError) << value;
  }
}

TEST(MegatronWriter, ASecondOneOfThePrefixIsRefused) {
  const ScratchFolder scratch;
  MegatronWriter first(scratch / "x", TokenType::kUint16);
  first.append_sequence(TokenIds{1, 2, 3});
  try {
    MegatronWriter(scratch / "x", TokenType::kUint16);
    FAIL();
  } catch (const UsageError& error) {
    EXPECT_THAT(error.what(), HasSubstr("another `gantry data build` is writing this file"));
  }
  first.end_document();
  first.finish();
  EXPECT_EQ(read(MegatronFiles(scratch / "x"), 0), (TokenIds{1, 2, 3}));
  write(scratch / "x", TokenType::kUint16, kDocuments);  // the next .partial file is not locked
  EXPECT_EQ(MegatronFiles(scratch / "x").documents(), 3);
}

TEST(MegatronWriter, UnfinishedFilesLeaveTheOldOnes) {
  const ScratchFolder scratch;
  write(scratch / "x", TokenType::kUint16, {{{1, 2, 3}}});
  {
    MegatronWriter writer(scratch / "x", TokenType::kUint16);
    writer.append_sequence(TokenIds{9});
    EXPECT_TRUE(fs::exists(scratch / "x.bin.partial"));
  }
  EXPECT_FALSE(fs::exists(scratch / "x.bin.partial"));
  EXPECT_EQ(read(MegatronFiles(scratch / "x"), 0), (TokenIds{1, 2, 3}));
  write(scratch / "x", TokenType::kInt32, {{{9}}});
  EXPECT_EQ(read(MegatronFiles(scratch / "x"), 0), TokenIds{9});
  EXPECT_THROW(MegatronWriter(scratch / "none/x", TokenType::kInt32), ResourceError);
}

TEST(MegatronDataset, DocumentsAreMaskedWhateverSequencesTheyHave) {
  const ScratchFolder scratch;
  write(scratch / "x", TokenType::kUint16, {{}, {{1, 2}, {3}}, {}, {{4}}, {{5, 6}, {7, 8}}});
  const MegatronFiles files(scratch / "x");
  EXPECT_EQ(files.document_of(1), 1);
  EXPECT_EQ(files.document_of(2), 3);
  EXPECT_EQ(files.document_of(4), 4);
  const auto dataset = open_megatron_dataset(scratch / "x", 3, 128, /*document_mask=*/true);
  ASSERT_EQ(dataset->size(), 2);
  TokenIds numbers(9);
  dataset->read(0, numbers.data());
  EXPECT_EQ(numbers, (TokenIds{1, 2, 3, 2, 3, -100, 0, 0, 0}));
  dataset->read(1, numbers.data());
  EXPECT_EQ(numbers, (TokenIds{4, 5, 6, -100, 6, 7, 0, 1, 1}));
}

TEST(MegatronDataset, SamplesArePackedOverDocuments) {
  const ScratchFolder scratch;
  write(scratch / "x", TokenType::kUint16, kDocuments);  // 1 2 3 4 100 0 127 5 6 7
  const auto dataset = open_megatron_dataset(scratch / "x", 4, 128);
  ASSERT_EQ(dataset->size(), 2);
  TokenIds tokens(5);
  dataset->read(1, tokens.data());
  EXPECT_EQ(tokens, (TokenIds{100, 0, 127, 5, 6}));
  EXPECT_THROW(open_megatron_dataset(scratch / "x", 10, 128), InputError);
  try {
    open_megatron_dataset(scratch / "x", 4, 127)->read(1, tokens.data());
    FAIL();
  } catch (const InputError& error) {
    EXPECT_THAT(error.what(),
                HasSubstr("token 127 at position 2 of sequence 3 is outside the model's vocabulary of 127"));
  }
}

}  // namespace
}  // namespace gantry
