// Overlapped pairs of a schedule: parts of a forward and of a backward alternate, so that expert rows of one
// are in flight while the other computes. The numbers equal one rank, and are bitwise identical to running
// the pair one after the other.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <mutex>
#include <sstream>
#include <thread>

#include <ATen/record_function.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include "expert_families.h"
#include "gantry/tensors/libtorch.h"
#include "model_case.h"
#include "program.h"

namespace gantry::testing {
namespace {

// Events of each rank in order, one letter each: an all-to-all starts (r), a matrix multiplication (p), a
// wait (w). Lower case: in a forward; capital letters: in a backward.
std::mutex letters_mutex;
std::map<std::string, std::string> letters_of_rank;
thread_local int backwards_of_thread = 0;

// A name for the rank of the calling thread. On a device two threads run a rank's forwards and backwards,
// with the same current device. On the CPU one thread runs both.
std::string this_rank() {
  std::ostringstream name;
  if (c10::impl::hasDeviceGuardImpl(torch::kPrivateUse1))
    name << c10::impl::getDeviceGuardImpl(torch::kPrivateUse1)->getDevice();
  else
    name << std::this_thread::get_id();
  return name.str();
}

struct InBackward : at::ObserverContext {
  InBackward() { ++backwards_of_thread; }
  ~InBackward() override { --backwards_of_thread; }
};

std::unique_ptr<at::ObserverContext> note_event(const at::RecordFunction& function) {
  if (function.scope() == at::RecordScope::BACKWARD_FUNCTION) return std::make_unique<InBackward>();
  const std::string name = function.name();
  char letter = 0;
  if (name == "gantry::all_to_all") letter = 'r';
  if (name == "gantry::wait") letter = 'w';
  if (name == "aten::mm" || name == "aten::addmm") letter = 'p';
  if (letter == 0) return nullptr;
  const std::lock_guard lock(letters_mutex);
  letters_of_rank[this_rank()] += static_cast<char>(backwards_of_thread > 0 ? std::toupper(letter) : letter);
  return nullptr;
}

// Number of all-to-alls during which the other pass of
// the pair computed, between the start and the next wait.
struct Hidden {
  int forwards = 0, backwards = 0;
};

Hidden hidden_in(const ModelCase& what, const Parallelism& how) {
  letters_of_rank.clear();
  const auto handle = at::addGlobalCallback(
      at::RecordFunctionCallback(&note_event).scopes({at::RecordScope::FUNCTION, at::RecordScope::BACKWARD_FUNCTION}));
  run_case(what, how);
  at::removeCallback(handle);
  Hidden hidden;
  for (const auto& [rank, letters] : letters_of_rank)
    for (std::size_t at = 0; at < letters.size(); ++at) {
      if (letters[at] != 'r' && letters[at] != 'R') continue;
      const bool is_forward = letters[at] == 'r';
      const std::size_t end = letters.find(is_forward ? 'w' : 'W', at);
      const std::string between = letters.substr(at, end - at);
      if (between.find(is_forward ? 'P' : 'p') != std::string::npos)
        ++(is_forward ? hidden.forwards : hidden.backwards);
    }
  return hidden;
}

ModelCase paired_mixtral() {
  ModelCase what{.family = "mixtral", .layers = 4, .heads = 4, .key_heads = 2, .vocabulary = 53, .batches = {12, 11}};
  what.keys = R"({"num_local_experts": 6, "num_experts_per_tok": 2, "intermediate_size": 11})";
  return what;
}

Parallelism paired(Layout layout, int microbatches = 6) {
  Parallelism how{.layout = layout, .schedule = "dualpipe_v", .microbatches = microbatches};
  how.chunks = 2;
  how.sequence_parallel = layout.tensor > 1;
  return how;
}

const Layout kPaired{.pipeline = 2, .data = 2, .expert = 2};

TEST(OverlappedPairs, RowsTravelWhileTheOtherComputes) {
  const Hidden hidden = hidden_in(paired_mixtral(), paired(kPaired));
  EXPECT_GT(hidden.forwards, 0);
  EXPECT_GT(hidden.backwards, 0);
  Parallelism apart = paired(kPaired);
  apart.schedule = "zb_v";
  const Hidden nothing = hidden_in(paired_mixtral(), apart);
  EXPECT_EQ(nothing.forwards, 0);
  EXPECT_EQ(nothing.backwards, 0);
}

// ZeRO 3 runs the passes of a pair one after the other.
TEST(OverlappedPairs, HaveTheBitsOfOneAfterTheOther) {
  for (const char* precision : {"float64", "bfloat16"}) {
    ModelCase what = paired_mixtral();
    what.clip = 1e9;
    what.precision = precision;
    what.experts = {.balance = "sequence", .aux_loss = 0.3, .z_loss = 0.05};
    Parallelism apart = paired(kPaired);
    apart.zero = 3;
    expect_identical(run_case(what, apart), run_case(what, paired(kPaired)), precision);
  }
}

TEST(OverlappedPairs, HaveTheNumbersOfOneRank) {
  ModelCase what = paired_mixtral();
  what.experts = {.balance = "sequence", .aux_loss = 0.3, .z_loss = 0.05};
  std::vector<Parallelism> layouts = {paired(kPaired), paired({.pipeline = 2, .tensor = 2, .expert = 2}, 5),
                                      paired({.pipeline = 2, .context = 2, .expert = 2}, 4),
                                      paired({.pipeline = 2, .data = 2}), paired({.pipeline = 2}, 7)};
  for (const char* recompute : {"full", "parts", "selective"}) {
    layouts.push_back(paired(kPaired));
    layouts.back().recompute = recompute;
    layouts.back().zero = 1;
  }
  layouts.push_back(paired(kPaired));
  layouts.back().zero = 2;
  layouts.push_back(paired(kPaired));
  layouts.back().dispatch = "all_gather";
  expect_layouts_equal(what, layouts);
}

// Shared experts with and without a gate, layers without experts, and a model without any.
TEST(OverlappedPairs, OfOtherFamilies) {
  const std::pair<const char*, const char*> families[] = {{"qwen2_moe", kQwen2MoeKeys}, {"deepseek_v3", kDeepseekKeys}};
  for (const auto& [family, keys] : families) {
    SCOPED_TRACE(family);
    ModelCase what = paired_mixtral();
    what.family = family;
    what.keys = keys;
    expect_layouts_equal(what, {paired(kPaired)});
  }
  ModelCase dense = paired_mixtral();
  dense.family = "gpt2";
  dense.keys = "{}";
  dense.dropout = 0.1;
  expect_layouts_equal(dense, {paired({.pipeline = 2, .data = 2})});
}

}  // namespace
}  // namespace gantry::testing
