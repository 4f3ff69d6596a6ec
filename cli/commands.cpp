#include "gantry/cli/commands.h"

namespace gantry::cli {

namespace {

constexpr const char* kNoStatusPlace = "is no port from 0 to 65535, and no HOST:PORT";

void add_adapter(CLI::App& command, std::string& adapter) {
  command.add_option("--adapter", adapter, "A directory of PEFT's whose adapter the model gets")->type_name("DIR");
}

void add_libraries(CLI::App& command, std::vector<std::string>& libraries) {
  command
      .add_option("--library", libraries,
                  "A shared library that registers the model's family, in place of those that the checkpoint names; "
                  "several times for more")
      ->type_name("FILE")
      ->allow_extra_args(false);
}

}  // namespace

void add_sets(CLI::App& command, std::vector<std::string>& sets) {
  command.add_option("--set", sets, "Override a key: --set parallel.tensor=2")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false);
}

CLI::App* add_train_command(CLI::App& app, TrainArguments& arguments) {
  auto* train = app.add_subcommand("train", "Train a model as a configuration says");
  train->add_option("config", arguments.config, "The configuration, a YAML file")->required();
  add_sets(*train, arguments.sets);
  train
      ->add_option("--cluster", arguments.cluster,
                   "The machine, as for `gantry plan`: keys that say auto are chosen for it, and the report has what "
                   "is predicted beside what was measured")
      ->type_name("NAME");
  train->add_option("--sample", arguments.sample, "A prompt that the trained model continues at the end")
      ->type_name("TEXT");
  train
      ->add_option_function<std::string>(
          "--status", [&arguments](const std::string& text) { arguments.status = parse_status_place(text); },
          "Serve live status over HTTP on this port (0: any free one) of loopback, or of HOST")
      ->type_name("[HOST:]PORT")
      ->check(CLI::Validator([](std::string& text) { return parse_status_place(text) ? "" : kNoStatusPlace; }, ""));
  return train;
}

CLI::App* add_forward_command(CLI::App& app, ForwardArguments& arguments) {
  auto* forward =
      app.add_subcommand("forward", "One forward (and backward) of a batch in any layout, to compare numerics");
  forward->add_option("--model", arguments.model, "A Hugging Face directory")->required()->type_name("DIR");
  forward
      ->add_option("--batch", arguments.batch,
                   "What the model reads, and labels (-100 is ignored): input_ids [B, S], labels [B, S]")
      ->required()
      ->type_name("FILE");
  forward->add_option("--output", arguments.output, "Gets logits [B, S, V] and loss []")->required()->type_name("FILE");
  forward->add_option("--grads", arguments.grads, "Gets every gradient under Hugging Face's names")->type_name("FILE");
  add_adapter(*forward, arguments.adapter);
  add_sets(*forward, arguments.sets);
  return forward;
}

CLI::App* add_compare_command(CLI::App& app, CompareArguments& arguments) {
  auto* compare = app.add_subcommand(
      "compare", "One step in several layouts beside one rank's, in float64: whether a policy is right");
  compare->add_option("config", arguments.config, "The configuration, a YAML file")->required();
  compare
      ->add_option("--with", arguments.layouts,
                   "A layout: keys of parallel and schedule to override, with commas between: "
                   "--with parallel.tensor=2,parallel.pipeline=2; several times for more; the configuration's own if "
                   "left out")
      ->type_name("KEY=VALUE,...")
      ->allow_extra_args(false);
  compare->add_option("--tolerance", arguments.tolerance, "Of a difference, beside the tensor's largest entry")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  add_sets(*compare, arguments.sets);
  compare->add_flag("--json", arguments.json, "As JSON");
  return compare;
}

void add_measure_command(CLI::App& plan, PlanMeasureArguments& arguments, const std::function<void()>& run_measure) {
  auto* measure = plan.add_subcommand(
      "measure", "Measure this machine (under mpirun: the hosts of the job) and write it as a cluster's file");
  measure->add_option("--output", arguments.output, "The YAML file to write; printed if left out")->type_name("FILE");
  measure->add_option("--ranks", arguments.ranks, "Ranks that work at once; as many as cores, at most 8, if left out")
      ->type_name("N")
      ->check(CLI::Range(1, 1024));
  measure->callback(run_measure);
}

void add_diff_command(CLI::App& checkpoint, CheckpointDiffArguments& arguments, const std::function<void()>& run_diff) {
  auto* diff = checkpoint.add_subcommand("diff", "Show how the tensors of two differ, the largest difference first");
  diff->add_option("a", arguments.a, "A step folder or its parent, a Hugging Face directory, or a safetensors file")
      ->required();
  diff->add_option("b", arguments.b, "Another one")->required();
  diff->add_option("--most", arguments.most, "Lines to show; 0: all")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  add_libraries(*diff, arguments.libraries);
  diff->add_flag("--json", arguments.json, "As JSON, with every tensor");
  diff->callback(run_diff);
}

namespace {

constexpr const char* kOutcome = "The outcome as JSON";

void add_dtype(CLI::App& command, std::string& dtype, const std::string& left_out) {
  command.add_option("--dtype", dtype, "Of floating tensors; " + left_out + " if left out")
      ->check(CLI::IsMember({"float32", "bfloat16", "float16", "float64"}));
}

void add_shard_size(CLI::App& command, double& most_gb) {
  command.add_option("--shard-gb", most_gb, "A larger model is written in shards of this size")
      ->check(CLI::Range(1e-6, 1e6))
      ->capture_default_str();
}

CLI::App* add_export_command(CLI::App& checkpoint, CheckpointExportArguments& arguments) {
  auto* command = checkpoint.add_subcommand(
      "export", "Write a checkpoint as a Hugging Face directory; of adapters, as a directory of PEFT's");
  command
      ->add_option("checkpoint", arguments.checkpoint,
                   "A step folder, its parent for the newest one, or a directory of save_parallelized")
      ->required();
  command->add_option("output", arguments.output, "The directory to write")->required();
  add_dtype(*command, arguments.dtype, "as stored");
  add_shard_size(*command, arguments.most_shard_gb);
  add_libraries(*command, arguments.libraries);
  command->add_flag("--json", arguments.json, kOutcome);
  return command;
}

CLI::App* add_import_command(CLI::App& checkpoint, CheckpointImportArguments& arguments) {
  auto* command = checkpoint.add_subcommand("import", "Write a Hugging Face directory as a checkpoint of step 0");
  command->add_option("model", arguments.model, "The Hugging Face directory")->required();
  command->add_option("output", arguments.output, "The parent of the step folder to write")->required();
  add_sets(*command, arguments.sets);
  command->add_flag("--json", arguments.json, kOutcome);
  return command;
}

CLI::App* add_reshard_command(CLI::App& checkpoint, CheckpointReshardArguments& arguments) {
  auto* command =
      checkpoint.add_subcommand("reshard", "Write a checkpoint as another layout would: --set parallel.tensor=4");
  command->add_option("checkpoint", arguments.checkpoint, "A step folder, or its parent for the newest one")
      ->required();
  command->add_option("output", arguments.output, "The parent of the step folder to write")->required();
  add_sets(*command, arguments.sets);
  command->add_flag("--json", arguments.json, kOutcome);
  return command;
}

CLI::App* add_merge_command(CLI::App& checkpoint, CheckpointMergeArguments& arguments) {
  auto* command =
      checkpoint.add_subcommand("merge", "Write a Hugging Face directory of a base with its adapters added");
  command
      ->add_option("checkpoint", arguments.checkpoint,
                   "A step folder of a run with lora, its parent for the newest one, or a directory of PEFT's")
      ->required();
  command->add_option("output", arguments.output, "The directory to write")->required();
  command->add_option("--model", arguments.model, "The base, in place of the one that the run or the adapter names")
      ->type_name("DIR");
  add_dtype(*command, arguments.dtype, "as the base has them");
  add_shard_size(*command, arguments.most_shard_gb);
  add_libraries(*command, arguments.libraries);
  command->add_flag("--json", arguments.json, kOutcome);
  return command;
}

CLI::App* add_upcycle_command(CLI::App& checkpoint, CheckpointUpcycleArguments& arguments) {
  auto* upcycle = checkpoint.add_subcommand(
      "upcycle", "Write a dense model as one with experts, which has its logits: --experts 8 --top-k 2");
  upcycle
      ->add_option("dense", arguments.dense,
                   "A Hugging Face directory of llama, mistral or qwen3, or a checkpoint of such a model")
      ->required();
  upcycle->add_option("output", arguments.output, "The Hugging Face directory to write")->required();
  upcycle->add_option("--experts", arguments.experts, "Of each layer")->required()->check(CLI::PositiveNumber);
  upcycle->add_option("--top-k", arguments.used, "Experts of a token")->required()->check(CLI::PositiveNumber);
  upcycle->add_option("--granularity", arguments.granularity, "Into how many experts each MLP is cut")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  upcycle->add_option("--seed", arguments.seed, "Of the routers' weights")->capture_default_str();
  add_dtype(*upcycle, arguments.dtype, "as stored");
  add_shard_size(*upcycle, arguments.most_shard_gb);
  upcycle->add_flag("--json", arguments.json, kOutcome);
  return upcycle;
}

}  // namespace

CLI::App* add_checkpoint_command(CLI::App& app, CheckpointArguments& arguments, const CheckpointCallbacks& callbacks) {
  auto* checkpoint = app.add_subcommand("checkpoint", "Work with checkpoints");
  checkpoint->require_subcommand(1);
  add_export_command(*checkpoint, arguments.exported)->callback(callbacks.run_export);
  add_import_command(*checkpoint, arguments.imported)->callback(callbacks.run_import);
  add_reshard_command(*checkpoint, arguments.resharded)->callback(callbacks.run_reshard);
  add_merge_command(*checkpoint, arguments.merged)->callback(callbacks.run_merge);
  add_upcycle_command(*checkpoint, arguments.upcycled)->callback(callbacks.run_upcycle);
  return checkpoint;
}

}  // namespace gantry::cli
