// Runs every command of the pages verbatim: the sh blocks of a page in a directory with small models, texts and runs
// under the names that the pages use. Scripts run three pages from start to end. Commands that are not run are listed
// here, with the reasons.
#include <algorithm>
#include <atomic>
#include <filesystem>
#include <fmt/format.h>
#include <future>
#include <set>

#include "documents.h"

namespace gantry::testing {
namespace {

namespace fs = std::filesystem;

// Pages that a script runs from start to end.
constexpr std::pair<const char*, const char*> kScripted[] = {
    {"docs/quick_start.md", "tests/consumer/quick_start.sh"},
    {"docs/tutorials/own_model.md", "tests/consumer/quick_start.sh"},
    {"docs/install.md", "tests/consumer/install_page.sh"},
};

struct Unrun {
  const char* page;
  const char* line;
  const char* why;
};

constexpr Unrun kUnrun[] = {
    {"README.md", "./dev demo", "makes the build that this test is of"},
    {"README.md", "./dev test", "runs this test"},
    {"docs/quick_start.md", "./dev demo", "as above"},
    {"docs/install.md", "./dev build", "makes the build that this test is of, and one for CUDA"},
    {"docs/install.md", "./dev setup --cuda", "downloads CUDA and a LibTorch for it"},
    {"docs/install.md", "build/cuda/bin/gantry --version", "a program of the build for CUDA"},
    {"docs/install.md", "./dev gpu pack", "tests/gpu/CMakeLists.txt has a test of it"},
    {"docs/install.md", "./dev gpu build", "builds everything once more; the test of pack configures it"},
    {"docs/install.md", "./dev gpu check", "the test gpu/rehearsal runs it on the CPU"},
    {"docs/install.md", "./dev gpu bench", "the test gpu/bench runs it on the CPU"},
    {"docs/install.md", "./dev package", "tests/consumer/package.sh makes the package, and installs it"},
    {"docs/install.md", "python3 -m venv ~/torch", "downloads LibTorch, as ./dev setup does for every build"},
    {"docs/install.md", "~/torch/bin/pip install torch==2.13.0", "the same"},
    {"docs/install.md", "export GANTRY_TORCH=~/torch", "names the downloaded LibTorch; front_init_test sets it"},
    {"docs/gpu.md", "./dev setup --cuda", "downloads CUDA and a LibTorch for it"},
    {"docs/gpu.md", "./dev build cuda", "builds everything once more"},
    {"docs/gpu.md", "build/cuda/bin/gantry --version", "a program of that build"},
    {"docs/gpu.md", "./dev gpu pack", "tests/gpu/CMakeLists.txt has a test of it"},
    {"docs/gpu.md", "./dev gpu build", "builds everything once more; the test of pack configures it"},
    {"docs/gpu.md", "./dev gpu check", "the test gpu/rehearsal runs it on the CPU"},
    {"docs/gpu.md", "./dev gpu bench", "the test gpu/bench runs it on the CPU"},
    {"docs/clusters.md", "gantry launch --backend tcp -n 4 -- gantry train CONFIG",
     "a configuration of the reader's; faults/elastic runs such jobs"},
    {"docs/clusters.md", "gantry launch --hosts a:2,b:2", "two hosts: tests/faults has them in network namespaces"},
    {"docs/clusters.md", "torchrun ", "PyTorch's program: front_launch_train_test starts copies with its variables"},
    {"docs/tutorials/multi_host.md", "gantry launch --hosts a:2,b:2", "needs two hosts, as in docs/clusters.md"},
    {"docs/tutorials/fine_tune_chat.md", "hf download ", "downloads a model; kPreparation makes a small models/chat"},
    {"docs/clusters.md", "sbatch ", "Slurm: cluster_files_test runs the script with a stand-in"},
    {"docs/clusters.md", "kubectl ", "Kubernetes: cluster_files_test reads the file"},
    {"docs/troubleshooting.md", "$ gantry doctor runs/demo/recorder", "a hang's record: tests/faults has such runs"},
};

// A fixed port may be taken, and a chat reads a terminal.
constexpr std::pair<const char*, const char*> kInstead[] = {
    {"--status 8080", "--status 0"},
    {"gantry chat --model models/chat", "echo hi | gantry chat --model models/chat --max-new-tokens 4"}};

bool is_unrun(const std::string& page, const std::string& line) {
  return std::any_of(std::begin(kUnrun), std::end(kUnrun),
                     [&](const Unrun& each) { return page == each.page && line.starts_with(each.line); });
}

bool is_scripted(const std::string& page) {
  return std::any_of(std::begin(kScripted), std::end(kScripted), [&](const auto& each) { return page == each.first; });
}

Outcome shell(const std::string& folder, const ScratchFolder& scratch, const std::string& commands) {
  const std::string script = scratch.write("commands", commands);
  const std::string bin = fs::path(gantry_program()).parent_path().string();
  return run_program(
      fmt::format("cd '{}' && HOME={} PATH={}:$PATH bash -euo pipefail {}", folder, scratch.path(), bin, script), 400);
}

// The files that the pages expect. The models are small, and runs short, but their names, files and kinds are the
// pages'.
constexpr const char* kPreparation = R"(
golden=$source/tests/golden
mkdir -p build models corpus
ln -s "$build" build/release
cp -r "$source/examples" "$source/README.md" .
cp "$source/docs/design.md" notes.txt
printf '{"text": "one"}\n{"text": "two"}\n' >articles.jsonl
echo '[{"role": "user", "content": "Why?"}]' >question.json
chat='{"messages": [{"role": "user", "content": "Why?"}, {"role": "assistant", "content": "So."}]}'
printf '%s\n%s\n' "$chat" "$chat" >chats.jsonl

# The demo: the same keys, a smaller model, one text.
sed -i -e 's/n_embd: 128/n_embd: 16/' -e 's/microbatches: 8/microbatches: 2/' \
  -e 's/sequence_length: 128, batch_size: 16/sequence_length: 16, batch_size: 4/' examples/demo.yaml
grep -q 'n_embd: 16.*n_positions: 128' examples/demo.yaml
grep -q 'sequence_length: 16' examples/demo.yaml
gantry train examples/demo.yaml --set train.log_every=100
sed -i -e 's/steps: 700/steps: 4/' -e 's/every: 350/every: 2/' examples/demo.yaml
ln -s runs/demo/checkpoints/step-000350 A
ln -s runs/demo/checkpoints/step-000700 B

# Hugging Face directories: GPT-2's and Llama's kind, with as many tokens as the pages' numbers ask for.
pretrained() { # NAME TOKENIZER CONFIGURATION
  gantry train "$3" --set checkpoint.path=imported_$1
  gantry checkpoint export imported_$1 models/$1
  rm -r imported_$1
  cp "$golden/tokenizers/$2"/* models/$1
}
cat >first.yaml <<END
model: {policy: gpt2, config: {n_embd: 8, n_layer: 2, n_head: 2, vocab_size: 50257, n_positions: 128}}
data: {format: text, tokenizer: bytes, path: README.md, sequence_length: 8, batch_size: 2}
train: {steps: 1}
END
cat >second.yaml <<END
model:
  policy: llama
  config: {hidden_size: 16, intermediate_size: 24, num_hidden_layers: 2, num_attention_heads: 4, num_key_value_heads: 2,
           vocab_size: 640, max_position_embeddings: 128}
data: {format: text, tokenizer: bytes, path: README.md, sequence_length: 8, batch_size: 2}
train: {steps: 1}
END
pretrained gpt2 gpt2 first.yaml
pretrained llama llama3 second.yaml

# A chat model: longer sequences, a chat template, and its own end token.
sed 's/max_position_embeddings: 128/max_position_embeddings: 1024/' second.yaml >third.yaml
pretrained chat llama3 third.yaml
cp "$golden/chat/chatml.jinja" models/chat/chat_template.jinja
echo '{"eos_token_id": 624}' >models/chat/generation_config.json
mkdir models/llama3
cp "$golden"/tokenizers/llama3/* models/llama3
cp -r "$golden/families/gemma3_image" models/gemma-3-4b-it
cp "$golden/images/processors/gemma3"/*.json models/gemma-3-4b-it
cp "$golden/images/rgb.jpg" cat.jpg
cp -r "$golden/families/whisper" models/whisper
cp "$golden/families/whisper/inputs.safetensors" sounds.safetensors
echo '{"lang_to_id": {"<|en|>": 33}, "no_timestamps_token_id": 39, "eos_token_id": 30}' >models/whisper/generation_config.json
ln -s "$golden/gpt2" DIR
cp "$golden/gpt2/batch.safetensors" .
mkdir tests
ln -s "$golden" tests/golden

gantry schedule show zb_h1 -p 4 -m 8 --csv >FILE.csv
echo 'localhost slots=8' >hosts.txt
printf '#!/bin/sh\n[ "$*" = "its arguments" ]\n' >my_program
chmod +x my_program
)";

class Commands : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    prepared_ = new ScratchFolder;
    const ScratchFolder scratch;
    const Outcome run = shell(prepared_->path(), scratch,
                              fmt::format("source={} build={}\n{}", kRoot.string(), GANTRY_BUILD_DIR, kPreparation));
    ASSERT_EQ(run.exit_code, 0) << run.out << run.err;
  }
  static void TearDownTestSuite() { delete std::exchange(prepared_, nullptr); }

  // Runs the sh blocks of a page in a fresh copy of the prepared folder, one after the other in one shell.
  static int run_page(const Document& document) {
    const std::string page = fs::relative(document.path, kRoot).string();
    std::string commands;
    int count = 0;
#ifndef GANTRY_MPIRUN
    if (page == "docs/tutorials/multi_host.md") return 0;  // its later commands read what processes have written
#endif
    for (const auto& block : document.blocks) {
      if (block.language != "sh") continue;
      for (std::string line : lines_of(block.text)) {
        if (is_unrun(page, line)) continue;
#ifndef GANTRY_MPIRUN
        if (line.starts_with("mpirun") || line.starts_with("gantry launch")) continue;
#endif
        for (const auto& [there, here] : kInstead)
          if (const auto at = line.find(there); at != std::string::npos)
            line.replace(at, std::string(there).size(), here);
        commands += line + "\n";
        ++count;
      }
    }
    if (commands.empty()) return 0;
    const ScratchFolder folder, scratch;
    fs::copy(prepared_->path(), folder.path(), fs::copy_options::recursive | fs::copy_options::copy_symlinks);
    const Outcome run = shell(folder.path(), scratch, "set -x\n" + commands);
    EXPECT_EQ(run.exit_code, 0) << page << "\n" << run.out << run.err;
    return count;
  }

  static ScratchFolder* prepared_;
};

ScratchFolder* Commands::prepared_ = nullptr;

TEST_F(Commands, OfEveryPageRunAsTheyStand) {
  // Two pages at a time: ctest counts on two cores for this test.
  const std::vector<Document> pages = documents();
  std::atomic<std::size_t> next = 0;
  std::atomic<int> count = 0;
  const auto run_pages = [&] {
    for (std::size_t i = next++; i < pages.size(); i = next++)
      if (!is_scripted(fs::relative(pages[i].path, kRoot).string())) count += run_page(pages[i]);
  };
  auto second = std::async(std::launch::async, run_pages);
  run_pages();
  second.get();
  EXPECT_GT(count, 30);
}

TEST(CommandLists, HaveNothingThatThePagesLack) {
  std::set<std::string> missing;
  for (const auto& each : kUnrun) missing.insert(fmt::format("{}: {}", each.page, each.line));
  for (const auto& document : documents()) {
    const std::string page = fs::relative(document.path, kRoot).string();
    for (const auto& block : document.blocks)
      for (const auto& line : lines_of(block.text))
        for (const auto& each : kUnrun)
          if (page == each.page && line.starts_with(each.line))
            missing.erase(fmt::format("{}: {}", each.page, each.line));
  }
  EXPECT_TRUE(missing.empty()) << *missing.begin();
  for (const auto& [page, script] : kScripted)
    EXPECT_NE(read_file((kRoot / script).string()).find(page), std::string::npos) << script;
}

// A command in a block of another kind would not be run.
TEST(CommandLists, CommandsAreInShBlocks) {
  const std::set<std::string> programs = {"gantry", "./dev",  "mpirun", "srun",   "sbatch",  "cmake", "c++",
                                          "g++",    "export", "cd",     "python", "python3", "pip",   "apt"};
  for (const auto& document : documents()) {
    const std::string page = fs::relative(document.path, kRoot).string();
    for (const auto& block : document.blocks) {
      if (block.language == "sh" || block.language == "cpp" || block.language == "yaml") continue;
      for (const auto& line : lines_of(block.text)) {
        const bool compared = line.starts_with("$ gantry schedule ") || line.starts_with("$ gantry config ");
        if (compared || is_unrun(page, line)) continue;  // snippets_test compares what these print
        const std::string word = line.substr(line.starts_with("$ ") ? 2 : 0);
        EXPECT_FALSE(programs.contains(word.substr(0, word.find(' '))))
            << place(document, block.line) << ": " << line << " stands in no sh block";
      }
    }
  }
}

}  // namespace
}  // namespace gantry::testing
