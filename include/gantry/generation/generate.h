// Generates sequences token by token: by greedy search, sampling or beam search. Works on a boosted model in any layout
// (pipeline stages process different prompts concurrently), and on a plain model. For a guide, see docs/generation.md.
//
// Lengths, penalties, filters and beam search have the semantics of Hugging Face's transformers 5: greedy and beam
// search give the same tokens for the same model and options. The tokens do not depend on the layout, also with
// sampling.
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

// When beam search ends for a prompt with num_beams finished sequences.
enum class EarlyStopping {
  kNo,     // if the best running beam, at its current length, cannot beat the worst finished one
  kYes,    // at once
  kNever,  // if no running beam of any length can beat the worst finished one
};

// A number that is added to the score of the last of `tokens` if the other ones are at the end of the text.
struct SequenceBias {
  std::vector<std::int64_t> tokens;
  double bias = 0;
};

// A language to detect, in begin_tokens.
inline constexpr std::int64_t kUnknownToken = -1;

// The time-stamp tokens of a Whisper model. If set, generation follows the rules of return_timestamps in transformers.
struct TimeStamps {
  // The token of 0.00 s. All tokens from it on are times, in steps of 0.02 s; the token before it disables time stamps.
  std::int64_t first = 0;
  std::int64_t text_end = 0;  // tokens below it are text: the stop token
  // A sequence's first time is at most this number of tokens after 0.00 s.
  std::optional<std::int64_t> most_initial = {};
};

// Options of generate(), with the names of transformers.
struct GenerationOptions {
  // Lengths in tokens. max_length and min_length include the longest prompt of the call.
  // max_new_tokens takes precedence over max_length. If neither is set: 20, limited by the model's positions.
  std::optional<std::int64_t> max_new_tokens;
  std::optional<std::int64_t> max_length;
  std::int64_t min_new_tokens = 0, min_length = 0;  // no stop token before this length
  std::vector<std::int64_t> stop_tokens;            // each of them ends a sequence and is its last token
  std::vector<SequenceBias> sequence_bias;          // several biases of a token add up
  // Scores of tokens that occur in the sequence are divided (negative scores: multiplied) by this value: Keskar et al.,
  // arXiv 1909.05858.
  double repetition_penalty = 1;
  // Above 0: no run of this number of tokens occurs twice in a text.
  std::int64_t no_repeat_ngram_size = 0;
  // Runs of tokens that are not generated: the last token of each is not chosen after the others. A run of one stop
  // token has no effect.
  std::vector<std::vector<std::int64_t>> bad_words;
  // The second token of texts that begin with one token, such as those of a decoder after an encoder.
  std::optional<std::int64_t> forced_bos_token;
  std::vector<std::int64_t> forced_eos_tokens;  // one of them is the last token of a text that was not stopped before
  // Tokens that are never chosen, and tokens that are not chosen as the first new token.
  std::vector<std::int64_t> suppress_tokens, begin_suppress_tokens;

  bool sample = false;      // sample tokens; the options up to `seed` are for sampling
  double temperature = 1;   // scores are divided by it; above 0
  std::int64_t top_k = 50;  // sample from the top_k most likely tokens; 0: all
  // Sample from the smallest set of most likely tokens with this total probability: Holtzman et al., arXiv 1904.09751.
  double top_p = 1;
  // Sample from tokens with at least min_p times the probability of the most likely one: Nguyen et al., arXiv
  // 2407.01082.
  double min_p = 0;
  // Sample from the smallest set of tokens with this total probability whose information is closest to the entropy:
  // Meister et al., arXiv 2202.00666.
  double typical_p = 1;
  // Random numbers depend on the seed, the number of the sequence and the number of the token.
  std::uint64_t seed = 1;

  int num_beams = 1;          // above 1: beam search
  double length_penalty = 1;  // scores are divided by length ^ length_penalty: above 0 favours long sequences
  EarlyStopping early_stopping = EarlyStopping::kNo;
  int num_return_sequences = 1;  // per prompt; with sampling, or for beam search at most num_beams

  // For encoder-decoder models. `encoder`: inputs of an encoder that does not read tokens (Whisper's input_features),
  // one row per prompt. The prompts are then the first tokens of the decoder. If the prompts are the encoder's input,
  // or if there are no prompts, each sequence starts with the model's start token and `begin_tokens`. If `begin_tokens`
  // starts with kUnknownToken and `encoder` is set, each sequence gets its most likely language out of `languages`
  // (name -> token).
  TensorDict encoder = {};
  std::vector<std::int64_t> begin_tokens;
  std::map<std::string, std::int64_t> languages = {};
  std::optional<TimeStamps> time_stamps = {};

  // For models that read images: pixel_values of all prompts, with the further entries of the model's processor such as
  // image_sizes and image_grid_thw. The image tokens of the prompts are in the order of the images. Requires the cache.
  TensorDict images = {};

  std::int64_t vocabulary = 0;  // only tokens below it are chosen, for models with padded columns; 0: all
  bool use_cache = true;        // false: recompute the full sequence for every token
  // Called for each chosen token of this replica's prompts, on ranks where it is set. Sequences are numbered as in the
  // result. Not supported with beam search.
  std::function<void(std::int64_t sequence, std::int64_t token)> on_token = {};
  // Called before each token on the ranks of the last stage that hold the sequence; all must return the same value.
  // True: every sequence ends with that token. Not supported with beam search.
  std::function<bool()> ends = {};
};

// A generated sequence.
struct GeneratedSequence {
  std::int64_t prompt = 0;           // index of the prompt
  std::vector<std::int64_t> tokens;  // without the prompt, including the stop token
  double score = 0;                  // for beam search: sum of log probabilities / length ^ length_penalty
  bool stopped = false;              // ended by a stop token
  std::string language = {};         // detected language, by its name in `languages`; empty: none
};

// Returns num_return_sequences sequences per prompt, in the order of the prompts, the best beam first; all ranks get
// all sequences. The model runs in evaluation mode. A policy whose Continuation has no cache recomputes the full
// sequence for each token.
// Throws UsageError for contradictory options. Throws InputError for an empty prompt, a token outside of the
// vocabulary, or lengths beyond the model's positions. Throws NumericalError for logits that are not finite, and
// ConfigError for a model that cannot generate (BERT) or has no policy.
//
// This overload is for a boosted model; prompts are distributed over dp. Collective over the world.
std::vector<GeneratedSequence> generate(Boosted& boosted, Plugin& plugin, const std::vector<TokenIds>& prompts,
                                        const GenerationOptions& options = {});

// The same for a plain model whose class has a registered policy. For a model that initialize() has boosted, use
// booster.generate().
std::vector<GeneratedSequence> generate(torch::nn::Module& model, const std::vector<TokenIds>& prompts,
                                        const GenerationOptions& options = {});
template <class Holder>
requires requires(const Holder& holder) { holder.ptr(); }
std::vector<GeneratedSequence> generate(const Holder& model, const std::vector<TokenIds>& prompts,
                                        const GenerationOptions& options = {}) {
  return generate(*model.ptr(), prompts, options);
}

// Options of a Whisper model's transcription that override its generation_config.json.
struct SpeechChoice {
  std::string language = {};  // "en", or "<|en|>" of its lang_to_id; empty: not set
  std::string task = {};      // transcribe or translate, of its task_to_id; empty: not set
  std::optional<bool> time_stamps = {};
};

// Returns the defaults of a model directory: from generation_config.json or, if that is missing, the stop token of
// config.json. For Whisper, begin_tokens follow from its language, task, forced_decoder_ids and no_timestamps_token_id,
// languages from its languages if none is set, and time_stamps from return_timestamps. For the step directory of a
// checkpoint, returns the stop token of its model configuration. Throws InputError for values of the wrong type, and
// for a speech option that the file has no token for. Throws CheckpointError for a damaged manifest.
GenerationOptions generation_defaults(const std::string& directory, const SpeechChoice& speech = {});

}  // namespace gantry
