#include "gantry/cli/commands.h"

#include "gantry/cli/number_checks.h"

namespace gantry::cli {

namespace {

constexpr const char* kNoStatusPlace = "the value is not a port (0 to 65535) or HOST:PORT";

void add_adapter(CLI::App& command, std::string& adapter) {
  command.add_option("--adapter", adapter, "A PEFT directory with the adapter to load into the model")
      ->type_name("DIR");
}

void add_libraries(CLI::App& command, std::vector<std::string>& libraries) {
  command
      .add_option(
          "--library", libraries,
          "A shared library that registers the model family, instead of the libraries that the checkpoint names; "
          "repeat the flag for several libraries")
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
  auto* train = app.add_subcommand("train", "Train the model that a configuration file describes");
  train->add_option("config", arguments.config, "The configuration, a YAML file")->required();
  add_sets(*train, arguments.sets);
  train
      ->add_option(
          "--cluster", arguments.cluster,
          "The cluster, as in `gantry plan`: keys with the value auto are chosen for it, and the report compares "
          "predicted with measured times")
      ->type_name("NAME");
  train->add_option("--sample", arguments.sample, "A prompt that the trained model continues at the end")
      ->type_name("TEXT");
  train
      ->add_option_function<std::string>(
          "--status", [&arguments](const std::string& text) { arguments.status = parse_status_place(text); },
          "Serve the live status over HTTP on this port (0: any free port) of the loopback interface, or of HOST")
      ->type_name("[HOST:]PORT")
      ->check(CLI::Validator([](std::string& text) { return parse_status_place(text) ? "" : kNoStatusPlace; }, ""));
  return train;
}

CLI::App* add_forward_command(CLI::App& app, ForwardArguments& arguments) {
  auto* forward = app.add_subcommand(
      "forward", "Run one forward (and backward) pass of a batch in any layout, to compare numerics");
  forward->add_option("--model", arguments.model, "A Hugging Face directory")->required()->type_name("DIR");
  forward
      ->add_option(
          "--batch", arguments.batch,
          "File to read (safetensors): inputs of the model, and labels (-100: ignored), such as input_ids [B, S] and "
          "labels [B, S]")
      ->required()
      ->type_name("FILE");
  forward->add_option("--output", arguments.output, "File to write (safetensors): logits [B, S, V] and loss []")
      ->required()
      ->type_name("FILE");
  forward
      ->add_option("--grads", arguments.grads,
                   "File to write (safetensors): every gradient under its Hugging Face name")
      ->type_name("FILE");
  add_adapter(*forward, arguments.adapter);
  add_sets(*forward, arguments.sets);
  return forward;
}

CLI::App* add_compare_command(CLI::App& app, CompareArguments& arguments) {
  auto* compare = app.add_subcommand(
      "compare", "Check a policy: run one step in several layouts in float64, and compare each with a single rank");
  compare->add_option("config", arguments.config, "The configuration, a YAML file")->required();
  compare
      ->add_option("--with", arguments.layouts,
                   "A layout: overrides of keys of parallel and schedule, separated by commas, such as "
                   "parallel.tensor=2,parallel.pipeline=2; repeat the flag for several layouts; default: the layout "
                   "of the configuration")
      ->type_name("KEY=VALUE,...")
      ->allow_extra_args(false);
  compare
      ->add_option("--tolerance", arguments.tolerance,
                   "Largest allowed difference, relative to the largest element of the tensor")
      ->check(at_least_zero())
      ->capture_default_str();
  add_sets(*compare, arguments.sets);
  compare->add_flag("--json", arguments.json, "Print JSON");
  return compare;
}

void add_show_command(CLI::App& data, DataShowArguments& arguments, const std::function<void()>& run_show) {
  auto* show = data.add_subcommand(
      "show", "Print the tokens of a training sample, and for each of them whether it is trained on and why");
  show->add_option("source", arguments.source,
                   "CONFIG.yaml or CONFIG.yaml:NUMBER, for a sample of a run (default: the first); FILE.jsonl or "
                   "FILE.jsonl:LINE, for a line; another FILE or FILE:LINE, for a text")
      ->required();
  show->add_option("--model", arguments.model, "A Hugging Face directory with the model and its tokenizer")
      ->type_name("DIR");
  show->add_option("--tokenizer", arguments.tokenizer, "A tokenizer file or directory, or bytes")->type_name("PATH");
  add_sets(*show, arguments.sets);
  show->add_flag("--json", arguments.json, "Print JSON");
  show->callback(run_show);
}

void add_measure_command(CLI::App& plan, PlanMeasureArguments& arguments, const std::function<void()>& run_measure) {
  auto* measure = plan.add_subcommand(
      "measure", "Measure this machine (under mpirun: the hosts of the job) and write a cluster file");
  measure->add_option("--output", arguments.output, "The YAML file to write; default: standard output")
      ->type_name("FILE");
  measure
      ->add_option("--ranks", arguments.ranks,
                   "Number of ranks that run at the same time; default: the number of cores, at most 8")
      ->type_name("N")
      ->check(CLI::Range(1, 1024));
  measure->callback(run_measure);
}

void add_diff_command(CLI::App& checkpoint, CheckpointDiffArguments& arguments, const std::function<void()>& run_diff) {
  auto* diff = checkpoint.add_subcommand(
      "diff", "Compare the tensors of two checkpoints or models, and show the largest differences first");
  diff->add_option("a", arguments.a, "A step folder or its parent, a Hugging Face directory, or a safetensors file")
      ->required();
  diff->add_option("b", arguments.b, "The checkpoint or model to compare it with")->required();
  diff->add_option("--most", arguments.most, "Number of lines to show; 0: all")
      ->check(at_least_zero())
      ->capture_default_str();
  add_libraries(*diff, arguments.libraries);
  diff->add_flag("--json", arguments.json, "Print JSON, with every tensor");
  diff->callback(run_diff);
}

namespace {

constexpr const char* kOutcome = "Print the result as JSON";

void add_dtype(CLI::App& command, std::string& dtype, const std::string& left_out) {
  command.add_option("--dtype", dtype, "Type of the floating-point tensors; default: " + left_out)
      ->check(CLI::IsMember({"float32", "bfloat16", "float16", "float64"}));
}

void add_quantize(CLI::App& command, std::string& code, bool& is_double) {
  auto* option =
      command
          .add_option("--quantize", code,
                      "Write the linear layers in 4 or 8 bits, in the layout of bitsandbytes; default: unquantized")
          ->check(CLI::IsMember({"nf4", "fp4", "int8"}));
  command
      .add_flag("--quantize-double", is_double,
                "Write the scales of nf4 and fp4 in 8 bits (double quantization); default: float32")
      ->needs(option);
}

void add_shard_size(CLI::App& command, double& most_gb) {
  command
      .add_option("--shard-gb", most_gb,
                  "Largest size of a weights file in GB; larger models are written as several files")
      ->check(CLI::Range(1e-6, 1e6))
      ->capture_default_str();
}

CLI::App* add_export_command(CLI::App& checkpoint, CheckpointExportArguments& arguments) {
  auto* command = checkpoint.add_subcommand(
      "export", "Write a checkpoint as a Hugging Face directory, or a checkpoint of adapters as a PEFT directory");
  command
      ->add_option("checkpoint", arguments.checkpoint,
                   "A step folder, its parent for the newest one, or a directory of save_parallelized")
      ->required();
  command->add_option("output", arguments.output, "The directory to write")->required();
  add_dtype(*command, arguments.dtype, "the stored type");
  add_quantize(*command, arguments.quantize, arguments.quantize_double);
  add_shard_size(*command, arguments.most_shard_gb);
  add_libraries(*command, arguments.libraries);
  command->add_flag("--ema", arguments.ema, "Write the averages of the weights that a run with train.ema keeps");
  command->add_flag("--json", arguments.json, kOutcome);
  return command;
}

CLI::App* add_import_command(CLI::App& checkpoint, CheckpointImportArguments& arguments) {
  auto* command =
      checkpoint.add_subcommand("import", "Write the model of a Hugging Face directory as a checkpoint of step 0");
  command->add_option("model", arguments.model, "The Hugging Face directory")->required();
  command->add_option("output", arguments.output, "The parent of the step folder to write")->required();
  add_sets(*command, arguments.sets);
  command->add_flag("--json", arguments.json, kOutcome);
  return command;
}

CLI::App* add_reshard_command(CLI::App& checkpoint, CheckpointReshardArguments& arguments) {
  auto* command =
      checkpoint.add_subcommand("reshard", "Write a checkpoint for another parallel layout: --set parallel.tensor=4");
  command->add_option("checkpoint", arguments.checkpoint, "A step folder, or its parent for the newest one")
      ->required();
  command->add_option("output", arguments.output, "The parent of the step folder to write")->required();
  add_sets(*command, arguments.sets);
  command->add_flag("--json", arguments.json, kOutcome);
  return command;
}

CLI::App* add_merge_command(CLI::App& checkpoint, CheckpointMergeArguments& arguments) {
  auto* command =
      checkpoint.add_subcommand("merge", "Merge adapters into their base model, and write a Hugging Face directory");
  command
      ->add_option("checkpoint", arguments.checkpoint,
                   "A step folder of a run with lora, its parent for the newest one, or a PEFT directory")
      ->required();
  command->add_option("output", arguments.output, "The directory to write")->required();
  command
      ->add_option("--model", arguments.model, "The base model, instead of the one that the run or the adapter names")
      ->type_name("DIR");
  add_dtype(*command, arguments.dtype, "the type in the base model");
  add_quantize(*command, arguments.quantize, arguments.quantize_double);
  add_shard_size(*command, arguments.most_shard_gb);
  add_libraries(*command, arguments.libraries);
  command->add_flag("--json", arguments.json, kOutcome);
  return command;
}

CLI::App* add_upcycle_command(CLI::App& checkpoint, CheckpointUpcycleArguments& arguments) {
  auto* upcycle = checkpoint.add_subcommand(
      "upcycle", "Convert a dense model into a mixture-of-experts model with the same logits: --experts 8 --top-k 2");
  upcycle
      ->add_option("dense", arguments.dense,
                   "A Hugging Face directory of llama, mistral or qwen3, or a checkpoint of such a model")
      ->required();
  upcycle->add_option("output", arguments.output, "The Hugging Face directory to write")->required();
  upcycle->add_option("--experts", arguments.experts, "Number of experts in each layer")
      ->required()
      ->check(above_zero());
  upcycle->add_option("--top-k", arguments.used, "Number of experts per token")->required()->check(above_zero());
  upcycle->add_option("--granularity", arguments.granularity, "Number of experts into which each MLP is split")
      ->check(above_zero())
      ->capture_default_str();
  upcycle->add_option("--seed", arguments.seed, "Seed of the router weights")->capture_default_str();
  add_dtype(*upcycle, arguments.dtype, "the stored type");
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
