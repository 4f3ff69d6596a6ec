// tokenizer_bench TOKENIZER FILE.jsonl THREADS IDS: encodes the documents ("text" of each line), three times, prints
// {"tokens", "seconds"} of the fastest, and writes all ids as int64, so that they can be compared.
#include <atomic>
#include <chrono>
#include <cstdio>
#include <exception>
#include <fmt/format.h>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "gantry/data/corpus/documents.h"
#include "gantry/data/tokenizers/tokenizer.h"

namespace {

double encode(const gantry::Tokenizer& tokenizer, const std::vector<std::string>& documents, int threads,
              std::vector<gantry::TokenIds>& ids) {
  ids.assign(documents.size(), {});
  const auto started = std::chrono::steady_clock::now();
  std::atomic<std::size_t> next = 0;
  std::vector<std::jthread> workers;
  for (int t = 0; t < threads; ++t)
    workers.emplace_back([&] {
      for (std::size_t i = next++; i < documents.size(); i = next++) tokenizer.append(documents[i], ids[i]);
    });
  workers.clear();  // joins
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count();
}

void run(char** argv) {
  const auto tokenizer = gantry::load_tokenizer(argv[1]);
  gantry::DocumentReader reader({argv[2]}, {});
  std::vector<std::string> documents;
  for (std::string text; reader.next(text);) documents.push_back(text);
  std::vector<gantry::TokenIds> ids;
  double seconds = 1e9;
  for (int round = 0; round < 3; ++round)
    seconds = std::min(seconds, encode(*tokenizer, documents, std::stoi(argv[3]), ids));
  std::size_t tokens = 0;
  std::ofstream file(argv[4], std::ios::binary);
  for (const auto& each : ids) {
    tokens += each.size();
    file.write(reinterpret_cast<const char*>(each.data()), static_cast<std::streamsize>(each.size() * sizeof(each[0])));
  }
  fmt::print("{{\"tokens\": {}, \"seconds\": {}}}\n", tokens, seconds);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    if (argc != 5) throw std::invalid_argument("usage: tokenizer_bench TOKENIZER FILE.jsonl THREADS IDS");
    run(argv);
  } catch (const std::exception& error) {
    fmt::print(stderr, "error: {}\n", error.what());
    return 1;
  }
}
