#include "gantry/generation/plan.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <limits>

#include "gantry/core/error.h"
#include "gantry/tensors/libtorch.h"

namespace gantry::generation {
namespace {

constexpr std::int64_t kDefaultNewTokens = 20;
constexpr std::int64_t kMostTokens = std::numeric_limits<std::int32_t>::max();
constexpr double kLeastDivisor = 1e-6;  // logits divided by less may become infinite

void require(bool holds, const std::string& option, const std::string& what, const std::string& expected,
             const std::string& remedy = "") {
  if (!holds) throw UsageError({option, what, expected, remedy});
}

bool is_divisor(double value) { return std::isfinite(value) && value >= kLeastDivisor; }

void check_sampling(const GenerationOptions& options) {
  require(is_divisor(options.temperature), "temperature", fmt::format("the value is {}", options.temperature),
          fmt::format("at least {}", kLeastDivisor), "remove sample for greedy decoding");
  require(options.top_k >= 0, "top_k", fmt::format("the value is {}", options.top_k), "1 or more, or 0 for all", "");
  require(options.top_p > 0 && options.top_p <= 1, "top_p", fmt::format("the value is {}", options.top_p),
          "above 0 and at most 1", "");
  require(options.min_p >= 0 && options.min_p <= 1, "min_p", fmt::format("the value is {}", options.min_p),
          "0 to 1, where 0 keeps all tokens");
  require(options.typical_p > 0 && options.typical_p <= 1, "typical_p",
          fmt::format("the value is {}", options.typical_p), "above 0 and at most 1, where 1 keeps all tokens");
}

void check_words(const GenerationOptions& options) {
  require(options.no_repeat_ngram_size >= 0, "no_repeat_ngram_size",
          fmt::format("the value is {}", options.no_repeat_ngram_size), "0 or more, where 0 allows all repetitions");
  for (const auto& word : options.bad_words) require(!word.empty(), "bad_words", "a word has no tokens", "tokens");
  for (const auto& [tokens, bias] : options.sequence_bias) {
    require(!tokens.empty(), "sequence_bias", "a sequence has no tokens", "tokens");
    require(std::isfinite(bias), "sequence_bias", fmt::format("the bias is {}", bias), "a finite number",
            "use bad_words for a sequence that must not occur");
  }
}

void check_counts(const GenerationOptions& options) {
  require(options.num_beams >= 1, "num_beams", fmt::format("the value is {}", options.num_beams), "1 or more", "");
  require(options.num_return_sequences >= 1, "num_return_sequences",
          fmt::format("the value is {}", options.num_return_sequences), "1 or more", "");
  require(!options.sample || options.num_beams == 1, "num_beams",
          fmt::format("the value is {} with sample", options.num_beams), "either beam search or sampling",
          "remove one of the two");
  require(options.sample || options.num_return_sequences <= options.num_beams, "num_return_sequences",
          fmt::format("the value is {}, but there are {} beams", options.num_return_sequences, options.num_beams),
          fmt::format("at most {}", options.num_beams), "increase num_beams, or set sample");
}

void check_options(const GenerationOptions& options) {
  check_counts(options);
  if (options.sample) check_sampling(options);
  check_words(options);
  require(is_divisor(options.repetition_penalty), "repetition_penalty",
          fmt::format("the value is {}", options.repetition_penalty),
          fmt::format("at least {}, where 1 means no penalty", kLeastDivisor));
  require(std::isfinite(options.length_penalty), "length_penalty",
          fmt::format("the value is {}", options.length_penalty), "a number, where 0 means no penalty");
  require(options.max_new_tokens.value_or(1) > 0 && options.max_new_tokens.value_or(1) <= kMostTokens, "max_new_tokens",
          fmt::format("the value is {}", options.max_new_tokens.value_or(0)), fmt::format("1 to {}", kMostTokens));
  require(options.max_length.value_or(1) <= kMostTokens, "max_length",
          fmt::format("the value is {}", options.max_length.value_or(0)), fmt::format("at most {}", kMostTokens));
  require(options.min_new_tokens >= 0 && options.min_length >= 0, "min_new_tokens and min_length",
          fmt::format("the values are {} and {}", options.min_new_tokens, options.min_length), "0 or more", "");
}

std::int64_t longest_of(const std::vector<TokenIds>& prompts) {
  if (prompts.empty()) throw UsageError({"generate", "there is no prompt", "at least one prompt", ""});
  std::size_t longest = 0;
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    if (prompts[i].empty())
      throw InputError({fmt::format("prompt {}", i + 1), "the prompt is empty", "at least one token",
                        "begin with the model's beginning-of-sequence token, if it has one"});
    longest = std::max(longest, prompts[i].size());
  }
  return static_cast<std::int64_t>(longest);
}

std::int64_t new_tokens(const GenerationOptions& options, std::int64_t longest, std::int64_t positions) {
  if (positions > 0 && longest >= positions)
    throw InputError({"prompt", fmt::format("the prompt has {} tokens", longest),
                      fmt::format("fewer than the model's {} positions", positions), "shorten it"});
  if (!options.max_new_tokens && !options.max_length)
    return positions > 0 ? std::min(kDefaultNewTokens, positions - longest) : kDefaultNewTokens;
  const std::int64_t count = options.max_new_tokens ? *options.max_new_tokens : *options.max_length - longest;
  require(count > 0, "max_length",
          fmt::format("the value is {}, but the longest prompt has {} tokens", options.max_length.value_or(0), longest),
          fmt::format("more than {}", longest), "increase it, or set max_new_tokens");
  if (positions > 0 && longest + count > positions)
    throw InputError({"max_new_tokens",
                      fmt::format("{} tokens after a prompt of {} make {} tokens", count, longest, longest + count),
                      fmt::format("at most the model's {} positions", positions),
                      fmt::format("set it to at most {}, or shorten the prompt", positions - longest)});
  return count;
}

TokenIds begin_of(const GenerationOptions& options, const Continuation& continuation) {
  if (!continuation.start_token) return {};
  TokenIds begin = {*continuation.start_token};
  begin.insert(begin.end(), options.begin_tokens.begin(), options.begin_tokens.end());
  return begin;
}

// Throws InputError if a language that texts begin with is still to be detected.
void require_known(const TokenIds& begin) {
  if (std::find(begin.begin(), begin.end(), kUnknownToken) != begin.end())
    throw InputError({"begin_tokens", "the language is not set, and there are no languages for its detection",
                      "a language, or the tokens that each sequence begins with",
                      "set `language` in generation_config.json, or pass the tokens (gantry generate --tokens)"});
}

// Checks the encoder's input: it must have one row per prompt.
void check_encoder(const GenerationOptions& options, const std::vector<TokenIds>& prompts,
                   const Continuation& continuation) {
  if (!continuation.start_token)
    require(options.encoder.empty() && options.begin_tokens.empty() && !options.time_stamps,
            "encoder, begin_tokens and time_stamps", "the model has no encoder",
            "a model with an encoder and a decoder", "remove these options");
  for (const auto& [name, tensor] : options.encoder)
    if (tensor.dim() == 0 || tensor.size(0) != static_cast<std::int64_t>(prompts.size()))
      throw InputError(
          {name, fmt::format("the tensor is {}, but the number of prompts is {}", describe(tensor), prompts.size()),
           "a row for each prompt, [prompts, ...]", "pass the same number of prompts, or none"});
}

// Returns the prompts as a batch, padded on the left.
TensorDict batch_of(const std::vector<TokenIds>& prompts, std::int64_t longest) {
  const auto rows = static_cast<std::int64_t>(prompts.size());
  torch::Tensor ids = torch::zeros({rows, longest}, torch::kInt64), mask = ids.clone();
  for (std::int64_t row = 0; row < rows; ++row) {
    const TokenIds& prompt = prompts[static_cast<std::size_t>(row)];
    const auto size = static_cast<std::int64_t>(prompt.size());
    ids[row].narrow(0, longest - size, size).copy_(torch::tensor(prompt, torch::kInt64));
    mask[row].narrow(0, longest - size, size).fill_(1);
  }
  return {{"input_ids", ids}, {"attention_mask", mask}};
}

TensorDict images_of(const GenerationOptions& options, const std::vector<TokenIds>& prompts, std::int64_t longest,
                     const Continuation& continuation) {
  if (options.images.empty()) return {};
  require(continuation.with_images != nullptr, "images", "the model reads text only", "a model with its image encoder",
          "set model.config.image_encoder to true, or remove the images");
  require(options.use_cache, "use_cache", "the value is false, but the prompts have images", "true",
          "remove use_cache");
  TensorDict batch = batch_of(prompts, longest);
  require(options.images.contains("pixel_values"), "images", "there are no pixel_values",
          "the entries of the processor", "add pixel_values, or remove the images");
  for (const auto& [name, tensor] : options.images) {
    require(!batch.contains(name), "images", name + " is an entry of the prompts", "the entries of the images only",
            "remove " + name);
    batch.set(name, tensor);
  }
  batch = continuation.with_images(std::move(batch));
  for (const char* name : {"input_ids", "attention_mask"}) batch.take(name);
  return batch;
}

}  // namespace

std::vector<TokenIds> prompts_of(const std::vector<TokenIds>& given, const GenerationOptions& options,
                                 const Continuation& continuation) {
  if (!given.empty() || options.encoder.empty()) return given;
  require_known(begin_of(options, continuation));
  const torch::Tensor& rows = options.encoder.begin()->second;
  return std::vector<TokenIds>(rows.dim() == 0 ? 0 : static_cast<std::size_t>(rows.size(0)),
                               begin_of(options, continuation));
}

bool Plan::is_stop(std::int64_t token) const {
  return std::find(options.stop_tokens.begin(), options.stop_tokens.end(), token) != options.stop_tokens.end();
}

Plan make_plan(const GenerationOptions& options, const std::vector<TokenIds>& prompts, const Continuation& continuation,
               const std::string& policy) {
  if (!continuation.is_possible)
    throw ConfigError({policy, "its model cannot generate text", "a causal model, such as gpt2 or llama",
                       "use `gantry forward` for the outputs of other models"});
  check_options(options);
  check_encoder(options, prompts, continuation);
  Plan plan{.options = options, .longest = longest_of(prompts), .begin = begin_of(options, continuation)};
  if (options.encoder.empty() && !plan.begin.empty()) {
    require_known(plan.begin);
    plan.longest = static_cast<std::int64_t>(plan.begin.size());
  }
  plan.images = images_of(options, prompts, plan.longest, continuation);
  std::sort(plan.options.stop_tokens.begin(), plan.options.stop_tokens.end());
  plan.options.stop_tokens.erase(std::unique(plan.options.stop_tokens.begin(), plan.options.stop_tokens.end()),
                                 plan.options.stop_tokens.end());
  plan.biases = options.sequence_bias;
  for (const auto& word : options.bad_words)
    if (word.size() > 1 || !plan.is_stop(word.front()))
      plan.biases.push_back({word, -std::numeric_limits<double>::infinity()});
  plan.max_new = new_tokens(options, plan.longest, continuation.positions);
  plan.width = plan.is_beams() ? options.num_beams : options.num_return_sequences;
  return plan;
}

}  // namespace gantry::generation
