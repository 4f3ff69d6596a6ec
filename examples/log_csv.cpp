// Writes the metrics of a run to a CSV file, by a custom MetricSink: log_csv CONFIG.yaml [KEY=VALUE...]
#include <fstream>

#include "gantry/booster/gantry.h"

namespace {

class CsvFile final : public gantry::MetricSink {
 public:
  explicit CsvFile(const std::string& path) : file_(path) { file_ << "step,loss,eval_loss\n"; }
  void write(const gantry::StepMetrics& step) override { file_ << step.step << ',' << step.loss << ",\n"; }
  void write(const gantry::EvaluationMetrics& evaluation) override {
    file_ << evaluation.step << ",," << evaluation.loss << '\n';
  }

 private:
  std::ofstream file_;
};

}  // namespace

int main(int argc, char** argv) {
  return gantry::run_main(argc, argv, [](const gantry::Config& config) {
    return gantry::train(config, [&](gantry::Trainer& trainer) {
      if (trainer.world().is_main()) trainer.add(std::make_unique<CsvFile>(config.output + ".csv"));
      trainer.run();
    });
  });
}
