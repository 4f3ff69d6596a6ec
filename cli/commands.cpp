#include "gantry/cli/commands.h"

namespace gantry::cli {

void add_sets(CLI::App& command, std::vector<std::string>& sets) {
  command.add_option("--set", sets, "Override a key: --set parallel.tensor=2")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false);
}

CLI::App* add_train_command(CLI::App& app, TrainArguments& arguments) {
  auto* train = app.add_subcommand("train", "Train a model as a configuration says");
  train->add_option("config", arguments.config, "The configuration, a YAML file")->required();
  add_sets(*train, arguments.sets);
  train->add_option("--sample", arguments.sample, "A prompt that the trained byte-level model continues at the end")
      ->type_name("TEXT");
  return train;
}

CLI::App* add_forward_command(CLI::App& app, ForwardArguments& arguments) {
  auto* forward =
      app.add_subcommand("forward", "One forward (and backward) of a batch in any layout, to compare numerics");
  forward->add_option("--model", arguments.model, "A Hugging Face directory")->required()->type_name("DIR");
  forward->add_option("--batch", arguments.batch, "input_ids [B, S], labels [B, S] (-100 is ignored)")
      ->required()
      ->type_name("FILE");
  forward->add_option("--output", arguments.output, "Gets logits [B, S, V] and loss []")->required()->type_name("FILE");
  forward->add_option("--grads", arguments.grads, "Gets every gradient under Hugging Face's names")->type_name("FILE");
  add_sets(*forward, arguments.sets);
  return forward;
}

CLI::App* add_checkpoint_command(CLI::App& app, CheckpointExportArguments& arguments,
                                 std::function<void()> run_export) {
  auto* checkpoint = app.add_subcommand("checkpoint", "Work with checkpoints");
  checkpoint->require_subcommand(1);
  auto* export_command = checkpoint->add_subcommand("export", "Write a checkpoint as a Hugging Face directory");
  export_command->add_option("checkpoint", arguments.checkpoint, "A step folder, or its parent for the newest one")
      ->required();
  export_command->add_option("output", arguments.output, "The directory to write")->required();
  export_command->callback(std::move(run_export));
  return checkpoint;
}

}  // namespace gantry::cli
