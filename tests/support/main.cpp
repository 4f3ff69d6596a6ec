// The main of every test program. `--source=grid_test` runs only the tests of <folder>/grid_test.cpp, like
// the entries of ctest do. Under a launcher every rank runs the tests, and only rank 0 prints results of
// passed tests.
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <map>
#include <string>
#include <string_view>

#include "gantry/core/host/process_end.h"

#ifdef __SANITIZE_ADDRESS__
// Open MPI unloads modules without freeing their memory, so the origin of leaks is unknown. In programs
// started by mpirun, only the leak check is off.
extern "C" int __lsan_is_turned_off() { return std::getenv("OMPI_COMM_WORLD_SIZE") ? 1 : 0; }
#endif

#ifdef __SANITIZE_THREAD__
// LibTorch, oneDNN and Open MPI are not instrumented, so the sanitizer does not see how these functions are
// ordered. Each name is the nearest symbol that the library exports.
extern "C" const char* __tsan_default_suppressions() {
  return
      // The last owner frees a tensor. LibTorch's reference count ensures that all other threads have
      // released it.
      "race:c10::TensorImpl::~TensorImpl\n"
      "race:c10::intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>::reset_not_null_\n"
      "race:c10::intrusive_ptr<c10::StorageImpl\n"
      "race:std::vector<at::Tensor, std::allocator<at::Tensor> >::~vector\n"
      // The same for autograd metadata of a tensor, and for nodes of the autograd graph.
      "race:torch::autograd::AutogradMeta::~AutogradMeta\n"
      "race:torch::autograd::DifferentiableViewMeta::~DifferentiableViewMeta\n"
      "race:torch::autograd::AccumulateGrad::release_resources\n"
      "race:torch::autograd::Node::release_resources\n"
      "race:torch::autograd::Node::~Node\n"
      // The same for events of a profile, which hold tensors.
      "race:torch::profiler::impl::ExtraFields\n"
      // Objects that the first thread creates, under a lock inside the library: LibTorch's default generator,
      // and oneDNN's kernel cache with its lock.
      "race:at::detail::createCPUGenerator\n"
      "race:dnnl::impl::malloc\n"
      "race:dnnl::impl::utils::rw_mutex_t::rw_mutex_t\n"
      // During MPI's initialisation, one thread takes two locks of Open MPI in both orders.
      "deadlock:mca_btl_tcp_add_procs\n";
}
#endif

namespace {

using ::testing::TestInfo;
using ::testing::TestPartResult;

constexpr int kLeftOut = 77;  // exit code that ctest counts as "skipped"

// Full name of each test in this program -> its source file, without directory and extension.
std::multimap<std::string, std::string> all_tests() {
  std::multimap<std::string, std::string> tests;
  const auto& program = *::testing::UnitTest::GetInstance();
  for (int s = 0; s < program.total_test_suite_count(); ++s) {
    const auto& suite = *program.GetTestSuite(s);
    for (int t = 0; t < suite.total_test_count(); ++t) {
      const TestInfo& test = *suite.GetTestInfo(t);
      tests.emplace(std::string(suite.name()) + "." + test.name(), std::filesystem::path(test.file()).stem().string());
    }
  }
  return tests;
}

// Selects the tests of a source. Prints an error and returns false if this fails.
bool choose(const std::string& source) {
  const auto tests = all_tests();
  std::string chosen;
  for (auto test = tests.begin(); test != tests.end(); ++test) {
    if (const auto next = std::next(test); next != tests.end() && next->first == test->first) {
      std::fprintf(stderr, "two tests of this program are named %s\n", test->first.c_str());
      return false;
    }
    if (!test->second.ends_with("_test")) {
      std::fprintf(stderr, "%s stands in %s, which no entry runs; expected a source <name>_test.cpp\n",
                   test->first.c_str(), test->second.c_str());
      return false;
    }
    if (test->second == source) chosen += test->first + ":";
  }
  if (chosen.empty()) std::fprintf(stderr, "%s.cpp has no test in this program\n", source.c_str());
  GTEST_FLAG_SET(filter, chosen);
  return !chosen.empty();
}

// Prints only failures. For all ranks except the first.
class FailuresOnly : public ::testing::EmptyTestEventListener {
  void OnTestPartResult(const TestPartResult& result) override {
    if (result.failed())
      std::fprintf(stderr, "%s:%d: %s\n", result.file_name(), result.line_number(), result.message());
  }
};

// Writes skipped tests and their reasons into the file named by GANTRY_LEFT_OUT, which `./dev test` prints. A
// skip without a reason counts as a failure.
class LeftOut : public ::testing::EmptyTestEventListener {
 public:
  bool has_bare() const { return has_bare_; }

 private:
  // Notes the test, because OnTestPartResult is called with gtest's mutex held and must not query gtest for
  // it.
  void OnTestStart(const TestInfo& test) override { test_ = std::string(test.test_suite_name()) + "." + test.name(); }
  void OnTestPartResult(const TestPartResult& result) override {
    if (!result.skipped()) return;
    if (std::string_view(result.message()).empty()) {
      std::fprintf(stderr, "%s is skipped without a reason\n", test_.c_str());
      has_bare_ = true;
    }
    if (const char* path = std::getenv("GANTRY_LEFT_OUT"))
      std::ofstream(path, std::ios::app) << "left out: " + test_ + ": " + result.message() + "\n";
  }

  std::string test_;
  bool has_bare_ = false;
};

bool is_first_rank() {
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "GANTRY_RANK", "RANK"})
    if (const char* rank = std::getenv(name)) return std::string_view(rank) == "0";
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  gantry::skip_library_destructors();
  ::testing::InitGoogleTest(&argc, argv);
  constexpr std::string_view kSource = "--source=";
  for (int i = 1; i < argc; ++i)
    if (!std::string_view(argv[i]).starts_with(kSource) || !choose(argv[i] + kSource.size())) return 2;
  const auto& program = *::testing::UnitTest::GetInstance();
  auto& listeners = ::testing::UnitTest::GetInstance()->listeners();
  auto* left_out = is_first_rank() ? new LeftOut : nullptr;
  if (left_out) {
    listeners.Append(left_out);
  } else {
    delete listeners.Release(listeners.default_result_printer());
    listeners.Append(new FailuresOnly);
  }
  const int code = RUN_ALL_TESTS();
  if (code != 0 || (left_out && left_out->has_bare())) return 1;
  const int skipped = program.skipped_test_count();
  return skipped > 0 && skipped == program.test_to_run_count() ? kLeftOut : 0;
}
