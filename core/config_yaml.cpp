#include <fmt/format.h>
#include <fmt/ranges.h>

#include "gantry/core/config.h"
#include "gantry/core/yaml_document.h"
#include "gantry/core/yaml_json.h"

namespace gantry {
namespace {

// As JSON writes it, which YAML reads as the same text.
std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    if (static_cast<unsigned char>(c) < 32) {
      out += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    } else {
      out += c;
    }
  }
  return out + "\"";
}

std::string quoted(const std::vector<std::string>& texts) {
  std::vector<std::string> all;
  for (const auto& text : texts) all.push_back(quoted(text));
  return fmt::format("[{}]", fmt::join(all, ", "));
}

std::string groups_text(const std::vector<OptimizerGroupConfig>& groups) {
  std::vector<std::string> all;
  for (const auto& group : groups) {
    std::string text = "{match: " + quoted(group.match);
    if (group.lr) text += fmt::format(", lr: {}", *group.lr);
    if (group.weight_decay) text += fmt::format(", weight_decay: {}", *group.weight_decay);
    all.push_back(text + "}");
  }
  return fmt::format("[{}]", fmt::join(all, ", "));
}

std::string sources_text(const DataConfig& data) {
  if (data.sources.empty()) return "path: " + quoted(data.path);
  std::vector<std::string> all;
  for (const auto& source : data.sources)
    all.push_back(fmt::format("{{path: {}, weight: {}}}", quoted(source.path), source.weight));
  return fmt::format("sources: [{}]", fmt::join(all, ", "));
}

std::string layers_text(const ScheduleConfig& schedule) {
  if (const auto* list = std::get_if<std::vector<int>>(&schedule.layers))
    return fmt::format("[{}]", fmt::join(*list, ", "));
  return quoted(std::get<std::string>(schedule.layers));
}

std::string size_text(int value) { return value == 0 ? "auto" : std::to_string(value); }

}  // namespace

std::string Config::to_yaml() const {
  std::string out = "model:\n";
  if (!model.policy.empty()) out += fmt::format("  policy: {}\n", quoted(model.policy));
  if (!model.path.empty()) out += fmt::format("  path: {}\n", quoted(model.path));
  if (!model.config_json.empty()) out += fmt::format("  config: {}\n", model.config_json);
  out += fmt::format(
      "parallel: {{tensor: {}, pipeline: {}, data: {}, sequence_parallel: {}, zero: {}, bucket_mb: {}, "
      "order: [{}]}}\n",
      parallel.tensor, parallel.pipeline, size_text(parallel.data), parallel.sequence_parallel, parallel.zero,
      parallel.bucket_mb, fmt::join(parallel.order, ", "));
  out += fmt::format("schedule: {{name: {}, ", quoted(schedule.name));
  if (schedule.microbatches) out += fmt::format("microbatches: {}, ", *schedule.microbatches);
  if (schedule.microbatch_size) out += fmt::format("microbatch_size: {}, ", *schedule.microbatch_size);
  if (schedule.group_size > 0) out += fmt::format("group_size: {}, ", schedule.group_size);
  out +=
      fmt::format("chunks: {}, layers: {}, recompute: {}", schedule.chunks, layers_text(schedule), schedule.recompute);
  if (!schedule.recompute_layers.empty())
    out += fmt::format(", recompute_layers: [{}]", fmt::join(schedule.recompute_layers, ", "));
  out += "}\n";
  if (!data.format.empty()) {
    out += fmt::format("data: {{format: {}, {}, sequence_length: {}, batch_size: {}, shuffle: {}, prefetch: {}",
                       data.format, sources_text(data), data.sequence_length, data.batch_size, data.shuffle,
                       data.prefetch);
    if (!data.tokenizer.empty()) out += ", tokenizer: " + quoted(data.tokenizer);
    out += "}\n";
  }
  out += fmt::format("optimizer: {{name: {}, lr: {}, betas: [{}, {}], eps: {}, weight_decay: {}", optimizer.name,
                     optimizer.lr, optimizer.beta1, optimizer.beta2, optimizer.eps, optimizer.weight_decay);
  if (optimizer.clip_grad_norm) out += fmt::format(", clip_grad_norm: {}", *optimizer.clip_grad_norm);
  if (optimizer.name == "sgd") out += fmt::format(", momentum: {}", optimizer.momentum);
  if (!optimizer.no_decay.empty()) out += ", no_decay: " + quoted(optimizer.no_decay);
  if (!optimizer.groups.empty()) out += ", groups: " + groups_text(optimizer.groups);
  out += fmt::format("}}\nlr_schedule: {{name: {}, warmup_steps: {}, ", lr_schedule.name, lr_schedule.warmup_steps);
  if (lr_schedule.decay_steps > 0) out += fmt::format("decay_steps: {}, ", lr_schedule.decay_steps);
  out += fmt::format("min_lr: {}}}\nprecision: {}\n", lr_schedule.min_lr, precision);
  if (precision == "float16")
    out += fmt::format("loss_scale: {{initial: {}, growth_interval: {}, hysteresis: {}}}\n", loss_scale.initial,
                       loss_scale.growth_interval, loss_scale.hysteresis);
  if (!evaluation.path.empty())
    out += fmt::format("evaluation: {{path: {}, every: {}, batches: {}}}\n", quoted(evaluation.path), evaluation.every,
                       evaluation.batches);
  out += "train: {";
  if (train.steps > 0) out += fmt::format("steps: {}, ", train.steps);
  out += fmt::format("seed: {}, log_every: {}, audit_every: {}, non_finite: {}}}\n", train.seed, train.log_every,
                     train.audit_every, train.non_finite);
  out += "checkpoint: {";
  if (!checkpoint.path.empty()) out += fmt::format("path: {}, every: {}, ", quoted(checkpoint.path), checkpoint.every);
  if (checkpoint.keep > 0) out += fmt::format("keep: {}, ", checkpoint.keep);
  if (checkpoint.allow_changes) out += "allow_changes: true, ";
  out += fmt::format("async: {}, resume: {}}}\n", checkpoint.async, quoted(checkpoint.resume));
  if (!output.empty()) out += fmt::format("output: {}\n", quoted(output));
  if (profile.active > 0)
    out += fmt::format("profile: {{wait: {}, warmup: {}, active: {}, repeat: {}}}\n", profile.wait, profile.warmup,
                       profile.active, profile.repeat);
  out += fmt::format("comm: {{backend: {}, timeout_seconds: {}, threads_per_rank: {}, heartbeat_seconds: {}, ",
                     comm.backend, comm.timeout_seconds, size_text(comm.threads_per_rank), comm.heartbeat_seconds);
  out += fmt::format("lost_after_seconds: {}, ", comm.lost_after_seconds);
  if (!comm.interface.empty()) out += fmt::format("interface: {}, ", quoted(comm.interface));
  out += fmt::format("recorder: {}}}\nlibraries: {}\n", comm.recorder, quoted(libraries));
  return out;
}

std::string Config::to_json() const {
  ConfigFaults faults{.file = "config"};
  return yaml_to_json(parse_yaml(to_yaml(), faults.file), "", faults).dump();
}

}  // namespace gantry
