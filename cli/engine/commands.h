// One function for each command that needs LibTorch. They throw gantry::Error or return the exit code.
#pragma once

#include "gantry/cli/commands.h"
#include "gantry/cli/generate_command.h"

namespace gantry::cli {

int run_train(const TrainArguments& arguments);
int run_forward(const ForwardArguments& arguments);
int run_compare(const CompareArguments& arguments);
int run_generate(const GenerateArguments& arguments);
int run_chat(const GenerateArguments& arguments);
int run_data_show(const DataShowArguments& arguments);
int run_plan_measure(const PlanMeasureArguments& arguments);
int run_checkpoint_export(const CheckpointExportArguments& arguments);
int run_checkpoint_import(const CheckpointImportArguments& arguments);
int run_checkpoint_reshard(const CheckpointReshardArguments& arguments);
int run_checkpoint_merge(const CheckpointMergeArguments& arguments);
int run_checkpoint_upcycle(const CheckpointUpcycleArguments& arguments);
// Compares a checkpoint with a Hugging Face model.
int run_checkpoint_diff(const CheckpointDiffArguments& arguments);

}  // namespace gantry::cli
