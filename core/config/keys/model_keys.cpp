// The keys of the model: model and lora.
#include "gantry/core/config/keys/key_lists.h"

namespace gantry {
namespace {

const KeyContext kWithPath = {"model.path", [](const Config& c) { return !c.model.path.empty(); },
                              [](const Config&) { return std::string("without model.path"); },
                              "set model.path, or remove the key"};

const KeyContext kWithFourBits = {
    "model.quantize nf4 or fp4", [](const Config& c) { return c.model.quantize == "nf4" || c.model.quantize == "fp4"; },
    [](const Config& c) {
      return c.model.quantize.empty() ? "without model.quantize" : "with model.quantize " + c.model.quantize;
    }};

}  // namespace

std::vector<ConfigKey> model_keys() {
  return {
      {"model.policy", "from `path`", "model family: `gpt2`, `llama`, `bert`, or another registered name"},
      {"model.path", "",
       "directory of a Hugging Face model: `config.json` and safetensors weights ([docs/models.md](models.md))"},
      {"model.config", "",
       "mapping of keys of the model's `config.json`; with `path`, they override the values of the file"},
      {"model.unknown_keys", "warn",
       "treatment of unknown keys in the `config.json` at `path`, which neither Gantry nor transformers defines for "
       "this family. `warn`: they have no effect, and one warning lists them. `refuse`: the first unknown key is an "
       "error",
       &kWithPath},
      {"model.quantize", "",
       "`nf4`, `fp4` or `int8`: linear layers that are not trained are in memory in 4 or 8 bits, all of them except "
       "output layers and heads for labels. `fp8`: the same and stacks of experts, with the codes of fp8 files. "
       "`mxfp4`: only the experts, whose files must have these codes (gpt-oss). Values are computed again at each "
       "use. Training needs `lora` ([docs/fine_tuning.md](fine_tuning.md#a-base-model-in-4-or-8-bits))",
       &kWithPath},
      {"model.quantize_double", "false",
       "double quantization: the scales of `nf4` and `fp4` are in 8 bits instead of 32, as with bitsandbytes' "
       "`bnb_4bit_use_double_quant`",
       &kWithFourBits},

      {"lora.r", "8",
       "rank of the adapters, which are trained instead of the model ([docs/fine_tuning.md](fine_tuning.md))"},
      {"lora.alpha", "8", "scale of the adapters: their output is multiplied by alpha / r"},
      {"lora.dropout", "0",
       "dropout probability on the adapter's input, in training only; must be 0 for adapters of routers and experts"},
      {"lora.target_modules", "",
       "layers that get an adapter: a list of module names or paths as in the Hugging Face model (`q_proj`), or "
       "`all-linear` for every linear layer except the output layer. Embeddings, routers and expert weights "
       "(`experts.down_proj`) can be listed by name. Required without `lora.path`"},
      {"lora.modules_to_save", "[]",
       "modules that are trained in full in addition to the adapters: a list of module names or paths as in "
       "`target_modules`. The head for labels of a model is added, unless `target_modules` lists it"},
      {"lora.trainable_token_indices", "[]",
       "token ids whose rows of the embedding are trained in addition to the adapters, and with them those of a tied "
       "output layer. For decoders; needs base weights from `model.path`"},
      {"lora.rslora", "false", "true: the scale is alpha / sqrt(r) instead of alpha / r"},
      {"lora.use_dora", "false",
       "true: DoRA. The norm of each row of an adapted weight is a trained value of its own, and the adapter changes "
       "the direction of the row. For linear layers; needs base weights from `model.path`"},
      {"lora.init_lora_weights", "default",
       "initial values of the adapters. `default`: PEFT's, `A` Kaiming-uniform and `B` zero. `gaussian`: `A` normal "
       "with the standard deviation 1 / r. `pissa`: the largest singular values and vectors of the weight, which are "
       "subtracted from the base. `pissa_niter_N`: an approximation of these with N power iterations. `loftq`: those "
       "of the errors of `model.quantize`. PiSSA and LoftQ are for linear layers, and need base weights from "
       "`model.path`"},
      {"lora.loraplus_lr_ratio", "1",
       "LoRA+ (arXiv 2402.12354): learning rate of the factors B and of DoRA's norms, as a multiple of `optimizer.lr`, "
       "which that of A is. A rate of `optimizer.groups` is not multiplied"},
      {"lora.rank_pattern", "{}",
       "ranks of individual layers: a mapping from a regular expression to a rank. An expression matches the full path "
       "of a layer, or a suffix of it that starts after a dot"},
      {"lora.alpha_pattern", "{}", "values of alpha for individual layers: a mapping as in `rank_pattern`"},
      {"lora.path", "",
       "directory of a PEFT adapter to start from. It sets every key of `lora` except `dropout`, `init_lora_weights` "
       "and `loraplus_lr_ratio`; a key that is set to a different value is an error"},
  };
}

}  // namespace gantry
