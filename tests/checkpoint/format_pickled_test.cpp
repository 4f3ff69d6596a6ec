// Files of torch.save: their tensors, and files that are rejected.
#include <filesystem>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "../fuzz/stored_zip.h"
#include "gantry/checkpoint/format/catalog.h"
#include "gantry/checkpoint/format/pickled_tensors.h"
#include "gantry/core/error.h"
#include "program.h"

namespace gantry::testing {
namespace {

using fuzz::stored_zip;
using fuzz::torch_file;
using ::testing::HasSubstr;
using ::testing::Not;

const std::string kPickled = GANTRY_SOURCE_DIR "/tests/golden/pickled/";

TEST(PickledTensors, HaveTheValuesThatTorchSaved) {
  TensorCatalog pickled = TensorCatalog::open(kPickled + "kinds.bin"),
                expected = TensorCatalog::open(kPickled + "kinds.safetensors");
  ASSERT_EQ(pickled.tensors().size(), expected.tensors().size());
  for (const auto& [name, tensor] : expected.tensors()) {
    ASSERT_TRUE(pickled.tensors().contains(name)) << name;
    const ManifestTensor& found = pickled.tensors().at(name);
    EXPECT_EQ(found.type, tensor.type) << name;
    EXPECT_EQ(found.shape, tensor.shape) << name;
    EXPECT_EQ(pickled.read(name), expected.read(name)) << name;
  }
}

std::string refusal_of(const std::string& bytes) {
  try {
    parse_pickled_tensors(bytes, "model.bin");
    return "accepted";
  } catch (const InputError& error) {
    EXPECT_THAT(error.what(), Not(HasSubstr("\n")));
    return error.what();
  }
}

std::string refusal_of_golden(const std::string& name) { return refusal_of(read_file(kPickled + name)); }

TEST(PickledTensors, OtherFilesOfTorchAreRefusedByName) {
  EXPECT_EQ(refusal_of_golden("kinds.bin"), "accepted");
  EXPECT_THAT(refusal_of_golden("legacy.bin"), HasSubstr("in the format of PyTorch before 1.6"));
  EXPECT_THAT(refusal_of_golden("legacy.bin"), HasSubstr("torch.save(torch.load(path, weights_only=True), path)"));
  EXPECT_THAT(refusal_of_golden("nested.bin"), HasSubstr("its entry 'state_dict' is not a tensor"));
  EXPECT_THAT(refusal_of_golden("number.bin"), HasSubstr("its entry 'epoch' is not a tensor"));
  EXPECT_THAT(refusal_of_golden("module.bin"), HasSubstr("its pickle uses torch.nn.modules.linear.Linear"));
}

// The text of a pickle that maps "a" to a tensor. `arguments` are the tensor's arguments after its storage.
std::string pickle_of_tensor(const std::string& arguments, const std::string& storage = "0", char elements = 16) {
  std::string text = "\x80\x02}X";
  fuzz::append_number(text, 1, 4);
  text += "actorch._utils\n_rebuild_tensor_v2\n((X";
  fuzz::append_number(text, 7, 4);
  text += "storagectorch\nFloatStorage\nX";
  fuzz::append_number(text, storage.size(), 4);
  text += storage + "X";
  fuzz::append_number(text, 3, 4);
  text += std::string("cpuK") + elements + "tQ" + arguments + "\x89}tRs.";
  return text;
}

TEST(PickledTensors, PositionsAreWithinTheirStorages) {
  const auto refusal = [](const std::string& arguments, const std::string& storage = "0", char elements = 16) {
    return refusal_of(torch_file(pickle_of_tensor(arguments, storage, elements)));
  };
  const std::string one_to_15 = "K\1K\x0f\x85K\1\x85", all = std::string("K\0", 2) + "K\x10\x85K\1\x85";
  EXPECT_EQ(refusal(one_to_15), "accepted");
  EXPECT_EQ(refusal(all), "accepted");
  EXPECT_THAT(refusal("K\1K\x10\x85K\1\x85"), HasSubstr("'a' leaves its storage of 16 elements"));
  EXPECT_THAT(refusal(std::string("K\0", 2) + "K\x06\x85K\x04\x85"), HasSubstr("leaves its storage"));
  EXPECT_THAT(refusal("J\xff\xff\xff\xffK\1\x85K\1\x85"), HasSubstr("leaves its storage"));
  EXPECT_THAT(refusal(std::string("K\0", 2) + "J\xff\xff\xff\xff\x85K\1\x85"), HasSubstr("has the shape [-1]"));
  EXPECT_THAT(refusal(std::string("K\0", 2) + "K\2\x85J\xff\xff\xff\xff\x85"), HasSubstr("with strides [-1]"));
  EXPECT_THAT(refusal(std::string("K\0", 2) + "K\2\x85K\1K\1\x86"), HasSubstr("has the shape [2] with strides [1, 1]"));
  // An expanded tensor of 2^62 elements.
  const std::string huge = "\x8a\x08" + std::string(7, '\0') + "\x40";
  EXPECT_THAT(refusal(std::string("K\0", 2) + huge + std::string("\x85K\0\x85", 4)), HasSubstr("has the shape"));
  EXPECT_THAT(refusal(std::string("K\0", 2) + "J" + std::string("\0\0\0\1", 4) + std::string("\x85K\0\x85", 4)),
              HasSubstr("leaves its storage"));
  EXPECT_THAT(refusal(all, "2"), HasSubstr("the storage of 'a' is missing"));
  EXPECT_THAT(refusal(all, "../../0"), HasSubstr("the storage of 'a' is missing"));
  EXPECT_THAT(refusal(all, "1"), HasSubstr("has 16 elements, but 0 are stored"));
  EXPECT_THAT(refusal(all, "0", 17), HasSubstr("has 17 elements, but 16 are stored"));
}

TEST(PickledTensors, HostilePicklesRunNothing) {
  const ScratchFolder scratch;
  const std::string command = "touch " + (scratch / "ran");
  std::string system =
      "\x80\x02"
      "cos\nsystem\nX";
  fuzz::append_number(system, command.size(), 4);
  system += command + "\x85R.";
  EXPECT_THAT(refusal_of(torch_file(system)), HasSubstr("its pickle uses os.system"));
  EXPECT_FALSE(std::filesystem::exists(scratch / "ran"));
  const std::pair<std::string, const char*> hostile[] = {
      {"", "its pickle ends early"},
      {"\x80\x02", "its pickle ends early"},
      {"\x80\x05}.", "has the protocol 5"},
      {"\x80\x02.", "takes more values than it has"},
      {"\x80\x02}(K\1.", "is not a mapping"},
      {"\x80\x02}(K\1u.", "something that is not a mapping"},
      {"\x80\x02N.", "its pickle is not a mapping"},
      {"\x80\x02"
       "c__builtin__\neval\n.",
       "uses __builtin__.eval"},
      {"\x80\x02"
       "ctorch.hub\nload\n.",
       "uses torch.hub.load"},
      {"\x80\x02"
       "cbuiltins\n\x1b[2Jeval\n.",
       "uses builtins.?[2Jeval"},
      {"\x80\x02"
       "ctorch._utils\n_rebuild_tensor_v2\n)R.",
       "a tensor without a storage"},
      {"\x80\x02"
       "ctorch\nFloatStorage\n)R.",
       "not a function"},
      {"\x80\x02)Q.", "a persistent id"},
      {"\x80\x02K\1K\1\x85R.", "calls something"},
      {"\x80\x02}(K\1K\2u.", "a key that is not a name"},
      {"\x80\x02i", "the opcode 0x69"},
      {"\x80\x02o", "the opcode 0x6f"},
      {"\x80\x02\x81", "the opcode 0x81"},
      {"\x80\x02\x92", "the opcode 0x92"},
      {"\x80\x02h\1.", "recalls a value"},
      {"\x80\x02}N}b.", "sets the state"},
      {"\x80\x02"
       "t.",
       "no mark"},
      {std::string("\x80\x02X\xff\xff\xff\xff", 7), "ends early"},
      {"\x80\x02" + std::string(2'000'000, '('), "too many marks"},
      {"\x80\x02" + std::string(2'000'000, ')'), "too many values"},
      {"\x80\x02" + std::string(9'000'000, '}') + "0", "too many values"}};
  for (const auto& [pickle, said] : hostile)
    EXPECT_THAT(refusal_of(torch_file(pickle)), HasSubstr(said)) << pickle.substr(0, 40);
  std::string dropped = "\x80\x02";
  for (int i = 0; i < 5'000'000; ++i) dropped += "}0";
  EXPECT_THAT(refusal_of(torch_file(dropped + ".")), HasSubstr("more than 4194304 values"));
}

TEST(PickledTensors, DamagedZipFilesAreRefused) {
  const std::string sound = torch_file("\x80\x02}.");
  EXPECT_EQ(refusal_of(sound), "accepted");
  for (std::size_t length : {std::size_t{4}, std::size_t{40}, sound.size() / 2, sound.size() - 1})
    EXPECT_THAT(refusal_of(sound.substr(0, length)), HasSubstr("model.bin: ")) << length;
  const std::size_t directory = sound.find("PK\1\2"), end = sound.rfind("PK\5\6");
  const auto changed = [&](std::size_t at, const std::string& bytes) {
    return refusal_of(std::string(sound).replace(at, bytes.size(), bytes));
  };
  EXPECT_THAT(changed(directory + 10, std::string("\x08\0", 2)), HasSubstr("'f/data.pkl' is compressed"));
  EXPECT_THAT(changed(directory + 8, std::string("\x01\0", 2)), HasSubstr("'f/data.pkl' is encrypted"));
  EXPECT_THAT(changed(directory + 24, "\xff\xff\xff"), HasSubstr("two sizes"));
  EXPECT_THAT(changed(directory + 42, "\xff\xff\xff"), HasSubstr("refers to the bytes"));
  EXPECT_THAT(changed(end + 16, "\xff\xff\xff"), HasSubstr("refers to the bytes"));
  EXPECT_THAT(changed(end + 10, "\xff"), HasSubstr("refers to the bytes"));
  EXPECT_THAT(refusal_of(stored_zip({{"f/data.pkl", ""}, {"f/data.pkl", ""}})), HasSubstr("two entries"));
  EXPECT_THAT(refusal_of(stored_zip({{"f/version", "3"}})), HasSubstr("has no data.pkl"));
  EXPECT_THAT(refusal_of(stored_zip({{"f/data.pkl", "\x80\x02}."}, {"f/byteorder", "big"}})), HasSubstr("big-endian"));
}

}  // namespace
}  // namespace gantry::testing
