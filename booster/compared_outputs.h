// Records the outputs of the modules of one rank's model, by name, and compares them with the outputs of a
// rank in another layout. Each rank compares its own outputs during its forward, without communication.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "gantry/core/sharding/sequence_shard.h"
#include "gantry/nn/output_observer.h"
#include "gantry/policies/sharder.h"

namespace gantry {

// The largest absolute difference of two entries; infinity if it is NaN. Requires equal shapes.
double largest_difference(const torch::Tensor& a, const torch::Tensor& b);
double largest_entry(const torch::Tensor& tensor);

// The outputs of a step on one rank, which runs the full batch as one microbatch.
struct FullOutputs {
  std::int64_t samples = 0;
  std::vector<std::string> order;                             // in the order of their first computation
  std::map<std::string, std::vector<torch::Tensor>> outputs;  // one per call
  std::map<std::string, std::vector<std::string>> losses;     // added losses, with the layers that add them
};

// Names outputs: the path of a module, "<list>.<index>" for a layer, "<name> (output)" for an output of the
// model.
class NamedOutputs : public nn::OutputObserver {
 public:
  explicit NamedOutputs(const StageModule& model);
  void begin(std::int64_t first, std::int64_t samples) override;
  void end() override { samples_ = 0; }
  void module_output(const torch::nn::Module& module, const torch::Tensor& output) override;
  void layer_output(int layer, const torch::Tensor& output) override;
  void model_output(const std::string& name, const torch::Tensor& output) override;

 protected:
  std::string path_of(int layer) const;
  std::int64_t first() const { return first_; }
  std::int64_t samples() const { return samples_; }
  // `module` is null for a layer and an output of the model.
  virtual void take(const std::string& name, const torch::nn::Module* module, const torch::Tensor& output) = 0;

 private:
  std::map<const torch::nn::Module*, std::string> paths_;
  const StageModule& model_;
  std::int64_t first_ = 0, samples_ = 0;  // 0 samples: no forward is running
};

// Keeps the outputs of one rank.
class OutputKeeper final : public NamedOutputs {
 public:
  OutputKeeper(const StageModule& model, FullOutputs& kept) : NamedOutputs(model), kept_(kept) {}
  void added_loss(const std::string& name, int layer, const std::string& part) override;

 protected:
  void take(const std::string& name, const torch::nn::Module* module, const torch::Tensor& output) override;

 private:
  FullOutputs& kept_;
};

// Compares the outputs of a rank with the corresponding parts of the full outputs.
class OutputComparer final : public NamedOutputs {
 public:
  // For sequences that are sharded over ranks: the shard of each list of layers, and this rank.
  struct Tokens {
    std::vector<SequenceShard> shards;
    int rank = 0;
  };
  // `full` and `tensor_group` are not owned. Without `tokens` ranks have full sequences.
  OutputComparer(const StageModule& model, const FullOutputs& full, const ProcessGroup& tensor_group,
                 const std::optional<Tokens>& tokens)
      : NamedOutputs(model), full_(full), tensor_group_(tensor_group), tokens_(tokens) {}

  // The largest difference of each compared output; 0 if its shape fits no part of the full output.
  const std::map<std::string, double>& differences() const { return differences_; }

 protected:
  void take(const std::string& name, const torch::nn::Module* module, const torch::Tensor& output) override;

 private:
  std::vector<torch::Tensor> parts_like(const torch::Tensor& output, const torch::Tensor& full,
                                        const torch::nn::Module* module) const;
  void add_parts_like(const torch::Tensor& output, const torch::Tensor& candidate, const torch::nn::Module* module,
                      std::vector<torch::Tensor>& parts) const;
  std::vector<torch::Tensor> of_tokens(const torch::Tensor& full, const torch::Tensor& output) const;

  const FullOutputs& full_;
  const ProcessGroup& tensor_group_;
  std::optional<Tokens> tokens_;
  std::map<std::string, double> differences_;
};

}  // namespace gantry
