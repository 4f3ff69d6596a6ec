// Simulates vocabulary parallelism over the pipeline and compares it with the tables of Yeung et al. (arXiv
// 2411.05288): 1f1b on 8, 16 and 32 ranks with the paper's models. Only ratios of speeds are compared, so no
// device speed is needed: they depend on work and order alone.
//   vocabulary_bench
// The unit of work is the forward of a layer; a backward is two units. The paper's measurements also contain
// the cost of messages and of small matrix multiplications, which the simulation omits.
#include <algorithm>
#include <array>
#include <fmt/format.h>
#include <numeric>
#include <string>
#include <vector>

#include "gantry/schedule/simulate.h"
#include "gantry/schedule/vocabulary_actions.h"

namespace {

using gantry::schedule::Costs;
using gantry::schedule::Schedule;
using gantry::schedule::Simulation;

constexpr int kMicrobatches = 128;
constexpr std::array<int, 4> kWords = {32, 64, 128, 256};  // times 1024

struct Setup {
  int ranks, layers, hidden, tokens;
  // Percent of the device's peak throughput that the paper measured, one value per entry of kWords.
  std::array<double, 4> plain, redistributed, first, second;
};

const Setup kSetups[] = {
    {8,
     32,
     3072,
     2048,
     {46.16, 40.48, 33.11, 25.23},
     {46.01, 46.37, 44.22, 38.91},
     {50.42, 50.28, 49.93, 50.12},
     {50.23, 50.18, 49.82, 49.69}},
    {8,
     32,
     3072,
     4096,
     {47.05, 41.87, 35.00, 26.75},
     {46.93, 46.78, 47.44, 43.01},
     {50.98, 50.98, 50.83, 50.66},
     {50.93, 50.75, 50.56, 50.40}},
    {16,
     48,
     4096,
     2048,
     {45.66, 40.09, 32.44, 24.21},
     {45.56, 42.82, 38.65, 36.98},
     {49.02, 50.62, 50.54, 50.66},
     {48.90, 50.49, 50.46, 50.46}},
    {16,
     48,
     4096,
     4096,
     {47.56, 41.21, 33.88, 25.33},
     {47.41, 43.07, 43.15, 40.15},
     {50.93, 50.97, 50.71, 51.22},
     {50.97, 50.80, 50.68, 50.90}},
    {32,
     64,
     5120,
     2048,
     {42.81, 37.28, 28.97, 20.86},
     {43.48, 37.29, 36.32, 29.16},
     {45.85, 45.92, 45.90, 46.11},
     {45.54, 45.86, 45.86, 46.16}},
    {32,
     64,
     5120,
     4096,
     {43.68, 38.11, 30.05, 21.63},
     {44.01, 38.12, 37.87, 31.03},
     {46.41, 46.44, 46.68, 46.83},
     {46.23, 46.35, 46.55, 46.84}},
};

// Costs of stages with these numbers of layers. The head
// is included in the last stage as a fraction of a layer.
Costs costs_of(const std::vector<double>& layers) {
  Costs costs;
  for (const double of_stage : layers)
    costs.stages.push_back({.forward = of_stage, .input_gradient = of_stage, .weight_gradient = of_stage});
  return costs;
}

double head_in_layers(const Setup& setup, int words) {
  return 1024.0 * words / (12.0 * setup.hidden + 2.0 * setup.tokens);
}

Simulation stages_alone(const Setup& setup, const std::vector<double>& layers) {
  return simulate(gantry::schedule::generate("1f1b", setup.ranks, kMicrobatches), costs_of(layers));
}

// Layers per stage. The last stage gets the number of layers that minimizes the longest stage; the others
// share the rest evenly.
std::vector<double> redistributed(const Setup& setup, double head) {
  std::vector<double> best;
  for (int last = 0; last <= setup.layers / setup.ranks; ++last) {
    std::vector<double> layers(setup.ranks, 0);
    for (int i = 0; i < setup.layers - last; ++i) layers[i % (setup.ranks - 1)] += 1;
    layers.back() = last + head;
    if (best.empty() || std::ranges::max(layers) < std::ranges::max(best)) best = layers;
  }
  return best;
}

Simulation shared(const Setup& setup, double head, int algorithm) {
  Costs costs = costs_of(std::vector<double>(setup.ranks, static_cast<double>(setup.layers) / setup.ranks));
  const double product = head / setup.ranks;
  costs.vocabulary = {.embedding_forward = 0.01, .embedding_backward = 0.01};
  costs.vocabulary.head_forward = algorithm * product;
  costs.vocabulary.head_backward = (3 - algorithm) * product;
  costs.vocabulary.head_combine = algorithm == 1 ? 0 : 0.01;
  const Schedule plain = gantry::schedule::generate("1f1b", setup.ranks, kMicrobatches);
  return simulate(with_vocabulary(plain, costs, algorithm), costs);
}

struct Errors {
  double sum = 0, largest = 0;
  int count = 0;
  std::string extra(double simulated, double published) {
    const double error = simulated / published - 1;
    sum += std::abs(error), largest = std::max(largest, std::abs(error)), ++count;
    return fmt::format("{:.2f} / {:.2f} ({:+.0f}%)", simulated, published, 100 * error);
  }
};

}  // namespace

int main() {
  Errors errors;
  fmt::print(
      "Speed beside algorithm 2, simulated / published, and activations of the first rank in microbatches\n\n"
      "| ranks | tokens | words | head in layers | head on the last stage | layers moved | algorithm 1 | held: plain, "
      "1, 2 "
      "|\n|---|---|---|---|---|---|---|---|\n");
  for (const Setup& setup : kSetups)
    for (std::size_t i = 0; i < kWords.size(); ++i) {
      const double head = head_in_layers(setup, kWords[i]);
      std::vector<double> even(setup.ranks, static_cast<double>(setup.layers) / setup.ranks);
      even.back() += head;
      const Simulation plain = stages_alone(setup, even), moved = stages_alone(setup, redistributed(setup, head));
      const Simulation first = shared(setup, head, 1), second = shared(setup, head, 2);
      const auto speed = [&](const Simulation& of) { return second.makespan_max_rank / of.makespan_max_rank; };
      fmt::print("| {} | {} | {}k | {:.2f} | {} | {} | {} | {}, {}, {} |\n", setup.ranks, setup.tokens, kWords[i], head,
                 errors.extra(speed(plain), setup.plain[i] / setup.second[i]),
                 errors.extra(speed(moved), setup.redistributed[i] / setup.second[i]),
                 errors.extra(speed(first), setup.first[i] / setup.second[i]), plain.peak_activations[0],
                 first.peak_activations[0], second.peak_activations[0]);
    }
  fmt::print("\nMean error {:.1f}%, largest {:.1f}%\n", 100 * errors.sum / errors.count, 100 * errors.largest);
}
