// The keys of data.
#include <algorithm>
#include <initializer_list>

#include "gantry/core/config/keys/key_lists.h"

namespace gantry {
namespace {

std::string with_format(const Config& c) { return "with format " + c.data.format; }
bool has_format(const Config& c, std::initializer_list<const char*> formats) {
  return std::any_of(formats.begin(), formats.end(), [&](const char* one) { return c.data.format == one; });
}
const KeyContext kVocabulary = {"data.format text, jsonl or squad, or data.objective mlm",
                                [](const Config& c) {
                                  return has_format(c, {"text", "jsonl", "squad"}) || c.data.objective == "mlm";
                                },
                                with_format, "remove the key; gantry data build applies a tokenizer to text"};
const KeyContext kPackedDocuments = {"data.format text, tokens or megatron",
                                     [](const Config& c) {
                                       return has_format(c, {"text", "tokens", "megatron"});
                                     },
                                     with_format};
const KeyContext kTexts = {"data.format text or jsonl",
                           [](const Config& c) { return c.data.format == "text" || c.data.format == "jsonl"; },
                           with_format};
bool has_chats(const Config& c) {
  return c.data.format == "jsonl" || std::ranges::any_of(c.evaluation.prompts, &EvaluationPrompt::is_chat);
}
const KeyContext kChats = {"data.format jsonl, or chats in evaluation.prompts", has_chats, with_format};
const KeyContext kLines = {"data.format jsonl", [](const Config& c) { return c.data.format == "jsonl"; }, with_format};
const KeyContext kMaskedTokens = {"data.objective mlm", [](const Config& c) { return c.data.objective == "mlm"; },
                                  [](const Config&) { return std::string("without data.objective mlm"); }};
const KeyContext kImages = {"data.format images", [](const Config& c) { return c.data.format == "images"; },
                            with_format};
const KeyContext kRandomCrops = {
    "data.format images and data.crop random",
    [](const Config& c) { return c.data.format == "images" && c.data.pictures.crop == "random"; },
    [](const Config& c) { return c.data.format == "images" ? "with crop " + c.data.pictures.crop : with_format(c); }};

}  // namespace

std::vector<ConfigKey> data_keys() {
  return {
      {"data.format", "",
       "format of the data. `text`. `tokens`: little-endian uint16. `megatron`: .bin and .idx. `jsonl`: JSON objects, "
       "one per line. `squad`. `tensors`: a safetensors file of batch entries. `images`: a directory of images per "
       "class. See [docs/data.md](data.md) and [docs/data_labelled.md](data_labelled.md)"},
      {"data.path", "",
       "path of the data: a file. For `text`, `tokens` and `jsonl` also a directory or a glob pattern. For `megatron` "
       "the common prefix of both files. For `images` the parent directory of the class directories"},
      {"data.sources", "", "list of `{path, weight}`, as an alternative to `path`; all have the same format"},
      {"data.sources[].path", "", "path of the source, as in `data.path`"},
      {"data.sources[].weight", "1",
       "relative share of the samples; the weights of all sources are normalized to sum to 1"},
      {"data.tokenizer", "from `model.path`",
       "directory or file with the tokenizer. For `text` and `jsonl` also `bytes`: tokens 0 to 255 are the bytes; this "
       "is the default for models without a tokenizer whose vocabulary is at most 256",
       &kVocabulary},
      {"data.chat_template", "from the tokenizer",
       "name of the template that renders `messages`: `chatml`, `gemma`, `gemma3`, `llama2`, `llama3`, `mistral`, "
       "`phi3` or `zephyr` ([docs/fine_tuning.md](fine_tuning.md#chats))",
       &kChats},
      {"data.template_kwargs", "{}",
       "variables that the chat template reads, as a mapping such as `{enable_thinking: false}`; the "
       "`chat_template_kwargs` of a line replace them",
       &kChats},
      {"data.objective", "",
       "origin of the labels. `causal`: the next token, for decoders and encoder-decoders. `mlm`: the tokens that are "
       "masked in each row of text, for encoders such as BERT with a masked language model head. `labels`: those of "
       "the "
       "data. Without the key, the model's head and `data.format` decide, but `mlm` must be set"},
      {"data.mlm_probability", "0.15",
       "share of the tokens that are chosen for the loss. 80 % of them become the mask token, 10 % a random token, and "
       "10 % stay. Special tokens are never chosen",
       &kMaskedTokens},
      {"data.bos", "auto",
       "beginning-of-sequence token before each line or file of text. `auto`: as the tokenizer puts it before a text; "
       "for messages, as the chat template writes it. `always` and `never`: also for messages. It is never doubled",
       &kTexts},
      {"data.eos", "auto",
       "end-of-sequence token after each line or file of text. `auto`: the tokens that the tokenizer puts after a "
       "text, "
       "otherwise the end-of-sequence token; for messages, as the chat template writes it. `always` and `never`: also "
       "for messages. It is never doubled",
       &kTexts},
      {"data.loss_on", "completions",
       "tokens with a loss in lines with prompts or messages. `completions`: the completion, or the assistant's "
       "messages. `last`: the completion, or the assistant's last message. `all`: every token",
       &kLines},
      {"data.bad_lines", "stop",
       "handling of lines that cannot be used: `stop` ends the run and names the first one (exit code 4), `skip` omits "
       "and counts them, `cut` also truncates lines that are too long",
       &kLines},
      {"data.sequence_length", "128", "number of tokens per sample"},
      {"data.target_length", "0",
       "maximum number of tokens of a completion, for models with encoder and decoder; 0: `data.sequence_length`, "
       "which is the maximum of the prompt",
       &kLines},
      {"data.document_mask", "false",
       "true: tokens attend only to their own document, positions restart in each document, and no loss is computed on "
       "the token after a document's last one. A document is a file, or an entry of an index file. `jsonl` is always "
       "masked",
       &kPackedDocuments},
      {"data.batch_size", "32", "number of samples per step, over all replicas"},
      {"data.shuffle", "true",
       "true: each pass through the data has its own random order; false: the order of the data"},
      {"data.prefetch", "2", "number of batches that a thread prepares ahead; 0: none"},
      {"data.workers", "auto",
       "number of threads that encode text when the data are opened (`auto`: the cores that the process may use), and "
       "that decode the images of a batch (`auto`: the threads of the rank, `comm.threads_per_rank`). The samples and "
       "their order do not depend on it"},
      {"data.cache", "auto",
       "directory of encoded text. Later runs and other processes find there the tokens of equal files, tokenizers and "
       "keys; files below 1 MiB are encoded each time. `auto`: `gantry/data` below `$XDG_CACHE_HOME` or `~/.cache`. "
       "`never`: the tokens are in memory",
       &kTexts},
      {"data.image_size", "from the model",
       "side length in pixels of the model's input ([docs/data_labelled.md](data_labelled.md#images))", &kImages},
      {"data.resize", "from the processor",
       "images in evaluation: length in pixels to which the shorter side is resized before the centre crop; 0: the "
       "full image is resized to the model's size",
       &kImages},
      {"data.interpolation", "from the processor", "interpolation of a resize: `bilinear` or `bicubic`", &kImages},
      {"data.mean", "from the processor",
       "mean of red, green and blue that is subtracted from the pixels, which are from 0 to 1", &kImages},
      {"data.std", "from the processor", "standard deviation of red, green and blue by which the pixels are divided",
       &kImages},
      {"data.crop", "random",
       "images in training: `random` for a random crop, `center` for the transformation of the evaluation", &kImages},
      {"data.crop_scale", "[0.08, 1]", "bounds of the random crop's share of the image area", &kRandomCrops},
      {"data.crop_ratio", "[0.75, 1.3333]", "bounds of the random crop's width divided by its height", &kRandomCrops},
      {"data.flip", "0.5", "probability of mirroring an image in training", &kImages},
  };
}

}  // namespace gantry
