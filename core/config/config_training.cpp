#include "gantry/core/config/config_training.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>

#include "gantry/core/config.h"
#include "gantry/core/config/otlp_endpoint.h"

namespace gantry {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

void read_betas(ConfigSection& section, OptimizerConfig& optimizer) {
  const YAML::Node betas = section.node("betas");
  if (!betas.IsDefined()) return;
  std::vector<double> read;
  if (betas.IsSequence())
    for (const auto& item : betas)
      if (const auto value = item.IsScalar() ? parse_number(item.Scalar()) : std::nullopt;
          value && *value >= 0 && *value < 1)
        read.push_back(*value);
  if (!betas.IsSequence() || betas.size() != 2 || read.size() != 2)
    return section.fault("betas", "the value is not a list of two numbers from 0 to below 1",
                         "a list such as [0.9, 0.95]");
  optimizer.beta1 = read[0];
  optimizer.beta2 = read[1];
}

void read_groups(ConfigFaults& faults, ConfigSection& section, OptimizerConfig& optimizer) {
  const YAML::Node groups = section.node("groups");
  if (!groups.IsDefined()) return;
  if (!groups.IsSequence())
    return section.fault("groups", "the value is not a list", "a list of {match, lr, weight_decay}",
                         "put the entry in brackets");
  for (std::size_t i = 0; i < groups.size(); ++i) {
    ConfigSection each(faults, fmt::format("optimizer.groups[{}]", i), groups[i]);
    OptimizerGroupConfig group;
    double lr = 0, decay = -1;
    each.texts("match", group.match);
    if (each.number("lr", lr, 0, kInfinity, /*open_below=*/true); lr > 0) group.lr = lr;
    if (each.number("weight_decay", decay, 0, kInfinity); decay >= 0) group.weight_decay = decay;
    if (!group.lr && !group.weight_decay && each.has("match"))
      each.fault("match", "the group has no effect, because it sets neither lr nor weight_decay",
                 "lr, weight_decay or both", "set the values of the group, or remove the group");
    if (group.match.empty())
      each.fault("match", "the list is empty", "a list of patterns", "add patterns such as [\"*.bias\"]");
    each.finish();
    optimizer.groups.push_back(std::move(group));
  }
}

void read_optimizer(ConfigFaults& faults, ConfigSection section, OptimizerConfig& optimizer) {
  section.text("name", optimizer.name);
  section.number("lr", optimizer.lr, 0, kInfinity, /*open_below=*/true);
  read_betas(section, optimizer);
  section.number("eps", optimizer.eps, 0, kInfinity, /*open_below=*/true);
  section.number("weight_decay", optimizer.weight_decay, 0, kInfinity);
  if (optimizer.name == "muon") optimizer.momentum = 0.95;  // the default of Muon's paper
  section.number("momentum", optimizer.momentum, 0, 1);
  double clip = 0;
  if (section.number("clip_grad_norm", clip, 0, kInfinity, /*open_below=*/true); clip > 0)
    optimizer.clip_grad_norm = clip;
  section.texts("no_decay", optimizer.no_decay);
  read_groups(faults, section, optimizer);
  section.finish();
}

void read_pieces(ConfigSection& section, LrScheduleConfig& schedule) {
  if (const auto steps = section.integers("milestones", 1)) schedule.milestones = *steps;
  const YAML::Node factors = section.node("factors");
  if (factors.IsDefined())
    read_numbers(section, "factors", schedule.milestones.size(), 0, /*ascends=*/false,
                 "one factor of the peak for each milestone, such as [0.1, 0.01]", schedule.factors);
  if (schedule.name == "piecewise" && schedule.milestones.empty())
    section.fault("milestones", "the list is missing", "numbers of steps such as [1000, 2000]",
                  "list the steps after which the learning rate changes, and its factors in lr_schedule.factors");
  else if (schedule.name == "piecewise" && !factors.IsDefined())
    section.fault("factors", "the list is missing", "one factor of the peak for each milestone, such as [0.1, 0.01]");
  if (!std::is_sorted(schedule.milestones.begin(), schedule.milestones.end()))
    section.fault("milestones", "the steps are not in ascending order", "an ascending list");
}

void read_lr_schedule(ConfigSection section, LrScheduleConfig& schedule, double lr) {
  section.text("name", schedule.name);
  section.integer("warmup_steps", schedule.warmup_steps, 0);
  section.number("warmup_ratio", schedule.warmup_ratio, 0, 1);
  if (section.has("warmup_ratio") && section.has("warmup_steps"))
    section.fault("warmup_ratio", "both warmup_ratio and warmup_steps are set", "", "remove one of them");
  section.integer("decay_steps", schedule.decay_steps, 0);
  section.number("min_lr", schedule.min_lr, 0, kInfinity);
  section.number("min_lr_ratio", schedule.min_lr_ratio, 0, 1);
  if (section.has("min_lr_ratio") && section.has("min_lr"))
    section.fault("min_lr_ratio", "both min_lr_ratio and min_lr are set", "", "remove one of them");
  section.number("power", schedule.power, 0, kInfinity, /*open_below=*/true);
  section.integer("cycles", schedule.cycles, 1);
  read_pieces(section, schedule);
  if (schedule.min_lr > lr)
    section.fault("min_lr", fmt::format("{} is above optimizer.lr {}", schedule.min_lr, lr),
                  "a value of at most the learning rate");
  section.finish();
}

void read_otlp(ConfigSection& train, std::string& otlp) {
  train.text("otlp", otlp);
  if (otlp.empty() || parse_otlp_endpoint(otlp)) return;
  if (otlp.starts_with("https://"))
    train.fault("otlp", fmt::format("'{}' needs TLS, which is not supported", otlp), "an address http://HOST:PORT",
                "run a collector on this host or network, which forwards the spans over TLS");
  else
    train.fault("otlp", fmt::format("'{}' is not the address of a collector", otlp), "an address http://HOST:PORT",
                "set an address such as http://127.0.0.1:4318");
}

}  // namespace

void read_objective(ConfigFaults& faults, ConfigSection section, ObjectiveConfig& objective) {
  section.text("name", objective.name, {"dpo", "ipo", "simpo", "cpo", "orpo", "kto", "reward", "distill"});
  const bool distils = objective.name == "distill", is_cpo = objective.name == "cpo";
  if (distils) objective.beta = 0.5;
  objective.loss_type = distils ? "forward" : "sigmoid";
  if (is_cpo) objective.cpo_alpha = 1;
  section.number("beta", objective.beta, 0, distils ? 1 : kInfinity, /*open_below=*/true);
  section.number("label_smoothing", objective.label_smoothing, 0, 0.5);
  if (distils)
    section.text("loss_type", objective.loss_type, {"forward", "reverse", "jsd"});
  else if (is_cpo)
    section.text("loss_type", objective.loss_type, {"sigmoid", "hinge", "ipo"});
  else
    section.text("loss_type", objective.loss_type, {"sigmoid", "hinge", "robust"});
  section.number("gamma", objective.gamma, 0, kInfinity);
  section.number("cpo_alpha", objective.cpo_alpha, 0, kInfinity);
  section.number("desirable_weight", objective.desirable_weight, 0, kInfinity);
  section.number("undesirable_weight", objective.undesirable_weight, 0, kInfinity);
  section.number("center_rewards_coefficient", objective.center_rewards_coefficient, 0, kInfinity);
  section.text("teacher", objective.teacher);
  if (const YAML::Node node = section.node("teacher_parallel"); node.IsDefined()) {
    ConfigSection layout(faults, "train.objective.teacher_parallel", node);
    objective.teacher_parallel.emplace();
    layout.integer("tensor", objective.teacher_parallel->tensor, 1, 1'000'000);
    layout.integer("pipeline", objective.teacher_parallel->pipeline, 1, 1'000'000);
    layout.finish();
  }
  section.integer("top_k", objective.top_k, 0);
  section.text("teacher_cache", objective.teacher_cache);
  section.number("temperature", objective.temperature, 0, kInfinity, /*open_below=*/true);
  section.number("alpha", objective.alpha, 0, 1);
  section.number("hidden_weight", objective.hidden_weight, 0, kInfinity);
  section.text("reference", objective.reference);
  section.text("reference_cache", objective.reference_cache);
  if (objective.loss_type != "sigmoid" && objective.loss_type != "robust" && objective.label_smoothing > 0)
    section.fault("label_smoothing", "the key has no effect with loss_type " + objective.loss_type, "0",
                  "remove the key");
  if (distils && objective.teacher.empty())
    section.fault("teacher", "the key is missing", "the directory of the teacher, which distill needs");
  if (objective.top_k > 0 && objective.teacher_cache.empty())
    section.fault("teacher_cache", "the key is missing", "a directory for the log-probabilities of top_k");
  if (distils && objective.top_k > 0 && objective.hidden_weight > 0)
    section.fault(
        "hidden_weight",
        fmt::format("{} needs the hidden states of the teacher, but top_k stores none", objective.hidden_weight),
        "0 with top_k", "remove one of the two keys");
  if (distils && objective.top_k > 0 && objective.loss_type != "forward")
    section.fault("loss_type",
                  fmt::format("{} compares the probabilities of all tokens, but top_k keeps {}", objective.loss_type,
                              objective.top_k),
                  "forward with top_k", "remove one of the two keys");
  if (!section.has("name"))
    section.fault("name", "the key is missing", "dpo, ipo, simpo, cpo, orpo, kto, reward or distill");
  section.finish();
}

void read_training(ConfigFaults& faults, ConfigSection& root, Config& config) {
  if (const YAML::Node data = root.node("data"); data.IsDefined())
    read_data(faults, {faults, "data", data}, config.data);
  read_optimizer(faults, {faults, "optimizer", root.node("optimizer")}, config.optimizer);
  read_lr_schedule({faults, "lr_schedule", root.node("lr_schedule")}, config.lr_schedule, config.optimizer.lr);
  root.text("precision", config.precision, {"float64", "float32", "bfloat16", "float16"},
            {{"fp64", "float64"}, {"fp32", "float32"}, {"bf16", "bfloat16"}, {"fp16", "float16"}});
  if (ConfigSection train(faults, "train", root.node("train")); true) {
    train.integer("steps", config.train.steps, 1);
    train.number("epochs", config.train.epochs, 0, 1e9, /*open_below=*/true);
    if (train.has("epochs") && train.has("steps"))
      train.fault("epochs", "both epochs and steps are set", "", "remove one of them");
    train.integer("seed", config.train.seed, 0, std::numeric_limits<long long>::max());
    train.integer("log_every", config.train.log_every, 1);
    train.texts("log_files", config.train.log_files, {"tensorboard", "events", "mlflow", "wandb"});
    read_otlp(train, config.train.otlp);
    train.integer("audit_every", config.train.audit_every, 0);
    train.text("non_finite", config.train.non_finite, {"stop", "skip"});
    train.number("label_smoothing", config.train.label_smoothing, 0, 1);
    if (const YAML::Node objective = train.node("objective"); objective.IsDefined())
      read_objective(faults, {faults, "train.objective", objective}, config.train.objective);
    train.number("max_minutes", config.train.max_minutes, 0, 1e9);
    train.number("neftune_alpha", config.train.neftune_alpha, 0, 1e9);
    train.number("ema", config.train.ema, 0, 1);
    train.integer("patience", config.train.patience, 0);
    train.texts("freeze", config.train.freeze);
    train.text("offload", config.train.offload, {"none", "optimizer", "activations", "both"});
    const bool moves_states = config.train.offload == "optimizer" || config.train.offload == "both";
    if (moves_states && config.optimizer.name == "adamw8bit")
      train.fault("offload", "the averages of optimizer.name adamw8bit are not moved to the host",
                  "none or activations", "remove train.offload, or use the optimizer adamw");
    train.flag("device_graphs", config.train.device_graphs);
    if (!config.train.freeze.empty() && config.lora.is_on())
      train.fault(
          "freeze",
          "train.freeze and lora cannot be combined, because lora freezes all parameters that it does not train", "",
          "remove one of them; to train modules in addition to adapters, list them in lora.modules_to_save");
    train.finish();
  }
  if (ConfigSection checkpoint(faults, "checkpoint", root.node("checkpoint")); true) {
    checkpoint.text("path", config.checkpoint.path);
    checkpoint.integer("every", config.checkpoint.every, 0);
    checkpoint.integer("keep", config.checkpoint.keep, 0);
    checkpoint.flag("keep_best", config.checkpoint.keep_best);
    checkpoint.flag("async", config.checkpoint.async);
    checkpoint.text("load", config.checkpoint.load);
    checkpoint.text("resume", config.checkpoint.resume);
    if (!config.checkpoint.load.empty() && config.lora.is_on())
      checkpoint.fault(
          "load", "checkpoint.load and lora cannot be combined, because the base model is loaded from model.path", "",
          "remove checkpoint.load; to start from an adapter, export it with gantry checkpoint export and set "
          "lora.path");
    if (config.checkpoint.resume == "auto" && config.checkpoint.path.empty())
      checkpoint.fault("resume", "the value auto needs checkpoint.path", "checkpoint.path", "set checkpoint.path");
    checkpoint.flag("allow_changes", config.checkpoint.allow_changes);
    checkpoint.finish();
  }
  if (ConfigSection scale(faults, "loss_scale", root.node("loss_scale")); true) {
    scale.number("initial", config.loss_scale.initial, 1, 1e30);
    scale.integer("growth_interval", config.loss_scale.growth_interval, 1);
    scale.integer("hysteresis", config.loss_scale.hysteresis, 1);
    scale.finish();
  }
  if (ConfigSection evaluation(faults, "evaluation", root.node("evaluation")); true) {
    evaluation.text("path", config.evaluation.path);
    evaluation.integer("every", config.evaluation.every, 0);
    evaluation.integer("batches", config.evaluation.batches, 0);
    evaluation.text("choices", config.evaluation.choices);
    read_prompts(faults, evaluation, config.evaluation.prompts);
    evaluation.integer("prompt_tokens", config.evaluation.prompt_tokens, 1);
    evaluation.flag("only", config.evaluation.only);
    evaluation.flag("ema", config.evaluation.ema);
    evaluation.finish();
  }
  if (const YAML::Node node = root.node("profile"); node.IsDefined()) {
    ConfigSection profile(faults, "profile", node);
    config.profile.active = 1;
    profile.integer("wait", config.profile.wait, 0);
    profile.integer("warmup", config.profile.warmup, 0);
    profile.integer("active", config.profile.active, 1);
    profile.integer("repeat", config.profile.repeat, 0);
    profile.finish();
  }
  if (ConfigSection comm(faults, "comm", root.node("comm")); true) {
    comm.text("backend", config.comm.backend, {"auto", "local", "mpi", "tcp", "nccl", "ipc"});
    comm.number("timeout_seconds", config.comm.timeout_seconds, 0, 1e6, /*open_below=*/true);
    const YAML::Node threads = comm.node("threads_per_rank");
    if (!(threads.IsScalar() && threads.Scalar() == "auto"))
      comm.integer("threads_per_rank", config.comm.threads_per_rank, 1, 4096);
    comm.number("heartbeat_seconds", config.comm.heartbeat_seconds, 0, 1e6);
    comm.number("lost_after_seconds", config.comm.lost_after_seconds, 0, 1e6, /*open_below=*/true);
    comm.text("interface", config.comm.interface);
    comm.integer("recorder", config.comm.recorder, 0, 1000000);
    comm.flag("registered_buffers", config.comm.registered_buffers);
    comm.flag("sums_by_rank", config.comm.sums_by_rank);
    if (config.comm.lost_after_seconds < 2 * config.comm.heartbeat_seconds)
      comm.fault("lost_after_seconds",
                 fmt::format("{} seconds are less than two heartbeats of {} s = {}", config.comm.lost_after_seconds,
                             config.comm.heartbeat_seconds, 2 * config.comm.heartbeat_seconds),
                 "at least two heartbeats", "raise it, or lower comm.heartbeat_seconds");
    comm.finish();
  }
  if (const YAML::Node node = root.node("elastic"); node.IsDefined()) {
    ConfigSection elastic(faults, "elastic", node);
    config.elastic.min_replicas = 1;
    elastic.integer("min_replicas", config.elastic.min_replicas, 1, 1'000'000);
    const YAML::Node most = elastic.node("max_replicas");
    if (!(most.IsScalar() && most.Scalar() == "auto"))
      elastic.integer("max_replicas", config.elastic.max_replicas, 1, 1'000'000);
    elastic.flag("rejoin", config.elastic.rejoin);
    elastic.number("heartbeat", config.elastic.heartbeat, 0, 1e6, /*open_below=*/true);
    elastic.finish();
  }
}

}  // namespace gantry
