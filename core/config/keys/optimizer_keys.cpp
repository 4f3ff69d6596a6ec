// The keys of the optimizer, its rates and the precision.
#include "gantry/core/config/keys/key_lists.h"
#include "gantry/core/config/keys/shared_conditions.h"

namespace gantry {
namespace {

std::string with_optimizer(const Config& c) { return "with optimizer " + c.optimizer.name; }
std::string with_rates(const Config& c) {
  return "with schedule " + c.lr_schedule.name + (c.lr_schedule.name == "wsd" ? " without decay_steps" : "");
}
const KeyContext kBetas = {"optimizer.name adamw, adamw8bit, adamw_bf16, lion or muon",
                           [](const Config& c) { return c.optimizer.name != "sgd" && c.optimizer.name != "adafactor"; },
                           with_optimizer,
                           "remove the key; adafactor has no such averages, and sgd has optimizer.momentum"};
// Muon updates parameters that are not matrices of a layer like AdamW.
const KeyContext kAdamW = {
    "optimizer.name adamw, adamw8bit, adamw_bf16 or muon",
    [](const Config& c) { return c.optimizer.name.starts_with("adamw") || c.optimizer.name == "muon"; },
    with_optimizer};
const KeyContext kMomentum = {"optimizer.name sgd or muon",
                              [](const Config& c) { return c.optimizer.name == "sgd" || c.optimizer.name == "muon"; },
                              with_optimizer,
                              "remove the key; adamw, adamw8bit, adamw_bf16 and lion have optimizer.betas"};
const KeyContext kDecaying = {"optimizer.weight_decay above 0",
                              [](const Config& c) { return c.optimizer.weight_decay > 0; },
                              [](const Config&) { return std::string("with weight_decay 0"); }};
const KeyContext kDecayingRate = {
    "a schedule that decreases to a lowest rate: linear, cosine, cosine_with_restarts, polynomial, or wsd with "
    "decay_steps",
    [](const Config& c) {
      const std::string& name = c.lr_schedule.name;
      return name == "wsd" ? c.lr_schedule.decay_steps > 0
                           : name != "constant" && name != "inverse_sqrt" && name != "piecewise";
    },
    with_rates};
const KeyContext kPolynomial = {"lr_schedule.name polynomial",
                                [](const Config& c) { return c.lr_schedule.name == "polynomial"; }, with_rates};
const KeyContext kRestarts = {"lr_schedule.name cosine_with_restarts",
                              [](const Config& c) { return c.lr_schedule.name == "cosine_with_restarts"; }, with_rates};
const KeyContext kPiecewise = {"lr_schedule.name piecewise",
                               [](const Config& c) { return c.lr_schedule.name == "piecewise"; }, with_rates};
const KeyContext kWsd = {"lr_schedule.name wsd", [](const Config& c) { return c.lr_schedule.name == "wsd"; },
                         with_rates};
const KeyContext kFloat16 = {"precision float16", is_float16, with_precision};

}  // namespace

std::vector<ConfigKey> optimizer_keys() {
  return {
      {"optimizer.name", "adamw",
       "optimizer: `adamw`, `adamw8bit`, `adamw_bf16`, `adafactor`, `sgd`, `lion` or `muon` "
       "([docs/data_parallelism.md](data_parallelism.md#optimizers))"},
      {"optimizer.lr", "3e-4", "base learning rate, which `lr_schedule` scales"},
      {"optimizer.betas", "[0.9, 0.999]", "decay rates beta1 and beta2 of the optimizer's running averages", &kBetas},
      {"optimizer.eps", "1e-8", "constant in the denominator of Adam's update, for numerical stability", &kAdamW},
      {"optimizer.weight_decay", "0.01",
       "weight decay of all parameters, except those that match `no_decay` or an entry of `groups` with a value of its "
       "own; if both match, the group's value is used"},
      {"optimizer.momentum", "0.9", "momentum of SGD or Muon; the default for Muon is 0.95", &kMomentum},
      {"optimizer.clip_grad_norm", "",
       "maximum global norm of the gradients, which are scaled down to it; without it there is no clipping"},
      {"optimizer.no_decay", "[]", "patterns of the names of parameters without weight decay; `*` matches any text",
       &kDecaying},
      {"optimizer.groups", "[]",
       "list of `{match, lr, weight_decay}`: values for groups of parameters. A parameter belongs to the first entry "
       "that matches its name"},
      {"optimizer.groups[].match", "", "patterns of names, as in `no_decay`"},
      {"optimizer.groups[].lr", "`optimizer.lr`", "base learning rate of the group"},
      {"optimizer.groups[].weight_decay", "`optimizer.weight_decay`",
       "weight decay of the group; takes precedence over `no_decay`"},

      {"lr_schedule.name", "constant",
       "learning-rate schedule: `constant`, `linear`, `cosine`, `cosine_with_restarts`, `wsd` (warm-up, stable, "
       "decay), "
       "`polynomial`, `inverse_sqrt` or `piecewise`"},
      {"lr_schedule.warmup_steps", "0", "number of steps over which the learning rate increases linearly from 0"},
      {"lr_schedule.warmup_ratio", "0",
       "warm-up as a share of `train.steps`, rounded up to full steps, as an alternative to `warmup_steps`"},
      {"lr_schedule.decay_steps", "0",
       "number of steps at the end of the run over which the learning rate decreases to `min_lr`", &kWsd},
      {"lr_schedule.min_lr", "0", "learning rate at the end of the decay", &kDecayingRate},
      {"lr_schedule.min_lr_ratio", "0",
       "learning rate at the end of the decay, as a share of the peak; an alternative to "
       "`min_lr`",
       &kDecayingRate},
      {"lr_schedule.power", "1", "exponent of the polynomial decay", &kPolynomial},
      {"lr_schedule.cycles", "1", "number of cosine cycles, each of which begins at the peak", &kRestarts},
      {"lr_schedule.milestones", "[]",
       "ascending numbers of steps; after each of them the learning rate is the peak times the entry of `factors`",
       &kPiecewise},
      {"lr_schedule.factors", "[]", "factors of the peak, one for each entry of `milestones`", &kPiecewise},

      {"precision", "float32",
       "type of the model's parameters and activations: `float32`, `float64`, `bfloat16` or `float16`. The last two "
       "have master weights and gradients in float32. `fp32`, `fp64`, `bf16` and `fp16` mean the same"},
      {"loss_scale.initial", "65536", "initial factor by which the loss is multiplied", &kFloat16},
      {"loss_scale.growth_interval", "2000",
       "number of consecutive steps without overflow after which the factor is doubled", &kFloat16},
      {"loss_scale.hysteresis", "2", "number of consecutive overflows after which the factor is halved", &kFloat16},
  };
}

}  // namespace gantry
