// Text continued token by token: the likeliest token each time, a drawn one, or the best of several beams. Works on a
// boosted model in any layout (pipeline stages are busy with different prompts at once), and on a plain model.
// docs/generation.md is for users.
//
// Lengths, penalties, filters and beam search mean what they mean in Hugging Face's transformers 5: the same model and
// options give the same tokens for greedy and beam search. Every layout gives the same tokens, drawn ones too.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "gantry/data/tokenizers/tokenizer.h"
#include "gantry/plugins/plugin.h"
#include "gantry/tensors/tensor_dict.h"

namespace gantry {

// When beam search ends for a prompt that has num_beams finished sequences.
enum class EarlyStopping {
  kNo,     // when the best beam, as long as it is, can't be better than the worst of them
  kYes,    // at once
  kNever,  // when no beam of any length can be better
};

// In begin_tokens: a language that is to be detected.
inline constexpr std::int64_t kUnknownToken = -1;

// Which tokens of a Whisper are times. With them texts keep to what return_timestamps asks for in transformers.
struct TimeStamps {
  std::int64_t first = 0;     // the token of 0.00 s; all from it on are times, 0.02 s apart; the one before means none
  std::int64_t text_end = 0;  // tokens below it are text: the stop token
  std::optional<std::int64_t> most_initial = {};  // a text's first time is at most so many behind 0.00 s
};

struct GenerationOptions {
  // Lengths in tokens. max_length and min_length count the longest prompt of the call and the continuation.
  std::optional<std::int64_t> max_new_tokens;  // before max_length; neither: 20, as far as the model's positions go
  std::optional<std::int64_t> max_length;
  std::int64_t min_new_tokens = 0, min_length = 0;  // no stop token before
  std::vector<std::int64_t> stop_tokens;            // each ends a sequence, as its last token
  // Scores of tokens that the text has are divided (negative ones multiplied) by it: Keskar et al., arXiv 1909.05858.
  double repetition_penalty = 1;
  std::vector<std::int64_t> suppress_tokens, begin_suppress_tokens;  // never chosen; not as a text's first new token

  bool sample = false;      // draw the tokens; the rest of these is for drawn ones
  double temperature = 1;   // scores are divided by it; above 0
  std::int64_t top_k = 50;  // only the likeliest so many; 0: all
  double top_p = 1;         // only the likeliest that make up this probability: Holtzman et al., arXiv 1904.09751
  std::uint64_t seed = 1;   // a draw depends on it, the sequence's and the token's number

  int num_beams = 1;          // above 1: beam search
  double length_penalty = 1;  // scores are divided by length ^ this: above 0 favours long sequences
  EarlyStopping early_stopping = EarlyStopping::kNo;
  int num_return_sequences = 1;  // of each prompt; for drawn ones, and at most num_beams for beams

  // Of a model with an encoder and a decoder. `encoder`: what an encoder that reads no tokens is given (Whisper's
  // input_features), a row for each prompt; prompts are then how the decoder's texts begin. Without prompts every text
  // begins with the model's start token and `begin_tokens`, as it does where the prompts are the encoder's. Where these
  // begin with kUnknownToken and an encoder is given, each text gets that of the `languages`, token by name, which is
  // likeliest behind the start token.
  TensorDict encoder = {};
  std::vector<std::int64_t> begin_tokens;
  std::map<std::string, std::int64_t> languages = {};
  std::optional<TimeStamps> time_stamps = {};

  std::int64_t vocabulary = 0;  // only tokens below it are chosen: a padded model's further columns; 0: all
  bool use_cache = true;        // false: every token computes the whole text again
  // Called for each token of a sequence as it is chosen, on ranks where it is set, for this replica's prompts;
  // sequences are numbered as in the result. Not for beams.
  std::function<void(std::int64_t sequence, std::int64_t token)> on_token = {};
  // Asked before each token on the ranks of the last stage that hold the text, which must all answer alike. True: every
  // text ends with that token. Not for beams.
  std::function<bool()> ends = {};
};

struct GeneratedSequence {
  std::int64_t prompt = 0;           // its number
  std::vector<std::int64_t> tokens;  // without the prompt, with the stop token
  double score = 0;                  // of beams: sum of log probabilities / length ^ length_penalty
  bool stopped = false;              // by a stop token
  std::string language = {};         // that was detected, by its name in `languages`; empty: none was
};

// Every prompt's num_return_sequences sequences, in the order of the prompts, beams best first. All ranks get all of
// them. The model runs in evaluation mode. UsageError for options that don't fit each other; InputError for an empty
// prompt, a token outside the vocabulary, or lengths beyond the model's positions; NumericalError for logits that are
// not finite; ConfigError for a model that can't continue text (BERT) or has no policy. A policy whose Continuation has
// no cache computes whole texts for each token.

// A boosted model; prompts are partitioned over dp. Collective over the world.
std::vector<GeneratedSequence> generate(Boosted& boosted, Plugin& plugin, const std::vector<TokenIds>& prompts,
                                        const GenerationOptions& options = {});

// A plain model whose class has a registered policy. What initialize() has boosted is continued by booster.generate.
std::vector<GeneratedSequence> generate(torch::nn::Module& model, const std::vector<TokenIds>& prompts,
                                        const GenerationOptions& options = {});
template <class Holder>
requires requires(const Holder& holder) { holder.ptr(); }
std::vector<GeneratedSequence> generate(const Holder& model, const std::vector<TokenIds>& prompts,
                                        const GenerationOptions& options = {}) {
  return generate(*model.ptr(), prompts, options);
}

// How a Whisper's texts begin, where it is not as its generation_config.json says.
struct SpeechChoice {
  std::string language = {};  // "en" or "<|en|>" of its lang_to_id; empty: not chosen
  std::string task = {};      // transcribe or translate of its task_to_id; empty: not chosen
  std::optional<bool> time_stamps = {};
};

// What a model's directory sets as defaults: generation_config.json, or the stop token of config.json where there is
// none (begin_tokens: of Whisper's language, task, forced_decoder_ids and no_timestamps_token_id; languages where none
// is named; time_stamps of return_timestamps); of a checkpoint's step folder, the stop token of its model's
// configuration. InputError for values of wrong kinds, and for a choice of speech that the file has no tokens for;
// CheckpointError for a damaged manifest.
GenerationOptions generation_defaults(const std::string& directory, const SpeechChoice& speech = {});

}  // namespace gantry
