// The main of tests that use LibTorch. Under mpirun every rank runs all tests; only rank 0 prints what passed.
#include <cstdlib>
#include <gtest/gtest.h>
#include <string>

#ifdef __SANITIZE_THREAD__
// LibTorch is not instrumented: that all who read a tensor on other threads have dropped it before its memory is freed
// is counted inside of it, where the sanitizer does not look. A profile's events hold tensors too.
extern "C" const char* __tsan_default_suppressions() {
  return "race:c10::TensorImpl::~TensorImpl\nrace:c10::intrusive_ptr<c10::StorageImpl\n"
         "race:torch::profiler::impl::ExtraFields\n";
}
#endif

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  const char* rank = std::getenv("OMPI_COMM_WORLD_RANK");
  if (rank && std::string(rank) != "0") {
    auto& listeners = ::testing::UnitTest::GetInstance()->listeners();
    class FailuresOnly : public ::testing::EmptyTestEventListener {
      void OnTestPartResult(const ::testing::TestPartResult& result) override {
        if (result.failed())
          std::fprintf(stderr, "%s:%d: %s\n", result.file_name(), result.line_number(), result.message());
      }
    };
    delete listeners.Release(listeners.default_result_printer());
    listeners.Append(new FailuresOnly);
  }
  return RUN_ALL_TESTS();
}
