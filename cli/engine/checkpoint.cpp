#include "gantry/checkpoint/checkpoint.h"

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>

#include "gantry/booster/convert_checkpoint.h"
#include "gantry/checkpoint/adapter.h"
#include "gantry/checkpoint/format/catalog.h"
#include "gantry/checkpoint/format/find.h"
#include "gantry/checkpoint/format/model_files.h"
#include "gantry/checkpoint/format/stored_form.h"
#include "gantry/checkpoint/hugging_face.h"
#include "gantry/checkpoint/parallelized.h"
#include "gantry/checkpoint/safetensors.h"
#include "gantry/checkpoint/upcycle.h"
#include "gantry/cli/engine/commands.h"
#include "gantry/cli/engine/trained_model.h"
#include "gantry/cli/progress_bar.h"
#include "gantry/cli/warnings.h"
#include "gantry/core/error.h"
#include "gantry/core/io/output.h"
#include "gantry/launch/launch.h"

namespace gantry::cli {
namespace {

using nlohmann::json;

// A progress bar that several rank threads advance at the same time.
class SharedBar {
 public:
  SharedBar(const char* label, std::uint64_t all) : all_(all) { bar_.emplace(label); }
  void add(std::uint64_t bytes) {
    const std::lock_guard lock(mutex_);
    done_ = std::min(done_ + bytes, all_);
    if (bar_) bar_->show(done_, all_);
  }
  void end() {
    const std::lock_guard lock(mutex_);
    bar_.reset();
  }

 private:
  std::mutex mutex_;
  std::optional<ProgressBar> bar_;
  std::uint64_t all_, done_ = 0;
};

// The bars of a conversion that reads and writes `bytes`.
class SharedBars {
 public:
  explicit SharedBars(std::uint64_t bytes) : reading_("reading", bytes), writing_("writing", bytes) {}
  ConversionProgress progress() {
    return {[this](std::uint64_t bytes) { reading_.add(bytes); }, [this](std::uint64_t bytes) { writing_.add(bytes); }};
  }
  void end() {
    writing_.end();
    reading_.end();
  }

 private:
  SharedBar reading_, writing_;
};

// Clears the bars when a rank has finished or failed, before other output is printed.
class BarsEnd {
 public:
  explicit BarsEnd(SharedBars& bars) : bars_(bars) {}
  ~BarsEnd() { bars_.end(); }
  BarsEnd(const BarsEnd&) = delete;
  BarsEnd& operator=(const BarsEnd&) = delete;

 private:
  SharedBars& bars_;
};

std::uint64_t bytes_in(const TensorCatalog& catalog) {
  std::uint64_t bytes = 0;
  for (const auto& [key, tensor] : catalog.tensors()) bytes += tensor.bytes();
  return bytes;
}

// `step`: the step of a checkpoint; empty for other directories.
void report(bool as_json, const std::string& done, const std::string& from, std::optional<std::int64_t> step,
            const std::string& to) {
  json facts = {{"from", from}, {"to", to}};
  if (step) facts["step"] = *step;
  if (as_json)
    print_output(facts.dump(-1, ' ', false, json::error_handler_t::replace) + "\n");
  else
    print_output(fmt::format("{} {}{} to {}\n", done, from, step ? fmt::format(" (step {})", *step) : "", to));
}

// Returns the form of the source. Throws InputError if it is neither a checkpoint nor a directory of save_parallelized,
// and UsageError if the output directory has checkpoints, which the exported model would hide.
StoredForm require_exportable(const CheckpointExportArguments& arguments) {
  if (holds_checkpoints(arguments.output))
    throw UsageError({arguments.output, "the directory has checkpoints in it",
                      "a directory for the exported model alone", "choose another directory"});
  const StoredForm form = stored_form(arguments.checkpoint);
  if (form == StoredForm::kHuggingFace)
    find_model_files(arguments.checkpoint);  // throws if its weights are in an unsupported format
  if (form == StoredForm::kHuggingFace || form == StoredForm::kFile)
    throw InputError({arguments.checkpoint, "the model is already in Hugging Face format",
                      "a checkpoint, or a directory of save_parallelized", ""});
  return form;
}

// --quantize and --quantize-double.
template <class Arguments>
std::optional<WeightCode> code_to_write(const Arguments& arguments) {
  if (arguments.quantize_double && arguments.quantize == "int8")
    throw UsageError({"--quantize-double", "int8 has one scale for each row, which is not quantized",
                      "--quantize nf4 or fp4", "remove the option"});
  return weight_code(arguments.quantize, arguments.quantize_double);
}

}  // namespace

int run_checkpoint_export(const CheckpointExportArguments& arguments) {
  ExportOptions options;
  if (!arguments.dtype.empty()) options.type = dtype_of(arguments.dtype);
  options.most_shard_bytes = static_cast<std::uint64_t>(arguments.most_shard_gb * 1e9);
  options.quantize = code_to_write(arguments);
  options.average = arguments.ema;
  const bool parallelized = require_exportable(arguments) == StoredForm::kParallelized;
  if (parallelized && arguments.ema)
    throw UsageError({arguments.checkpoint, "a directory of save_parallelized has no averages of the weights",
                      "a checkpoint of a run with train.ema", "export without --ema"});
  const std::string from =
      parallelized ? arguments.checkpoint : require_checkpoint(arguments.checkpoint, warn_of_passed_over);
  load_named_libraries(arguments.libraries, parallelized ? "" : read_checkpoint_info(from).config_text, from);
  {
    ProgressBar bar("exporting");
    options.progress = bar.function();
    if (parallelized)
      merge_parallelized(from, arguments.output, options);
    else if (holds_adapters(from) && options.quantize)
      throw UsageError({"--quantize", from + " contains only adapters, which are not quantized",
                        "a checkpoint of a full model",
                        "write the merged model with gantry checkpoint merge --quantize"});
    else if (holds_adapters(from))
      export_adapter(from, arguments.output, options);
    else
      export_checkpoint(from, arguments.output, options);
  }
  if (!parallelized) {
    report(arguments.json, "exported", from, read_checkpoint_info(from).step, arguments.output);
  } else {
    report(arguments.json, "merged", from, std::nullopt, arguments.output);
  }
  return 0;
}

int run_checkpoint_merge(const CheckpointMergeArguments& arguments) {
  if (holds_checkpoints(arguments.output))
    throw UsageError({arguments.output, "the directory has checkpoints in it", "a directory for the merged model alone",
                      "choose another directory"});
  ExportOptions options;
  if (!arguments.dtype.empty()) options.type = dtype_of(arguments.dtype);
  options.quantize = code_to_write(arguments);
  options.most_shard_bytes = static_cast<std::uint64_t>(arguments.most_shard_gb * 1e9);
  const bool is_directory = is_adapter_directory(arguments.checkpoint);
  const std::string from =
      is_directory ? arguments.checkpoint : require_checkpoint(arguments.checkpoint, warn_of_passed_over);
  load_named_libraries(arguments.libraries, is_directory ? "" : read_checkpoint_info(from).config_text, from);
  {
    ProgressBar bar("merging");
    options.progress = bar.function();
    merge_adapter(from, arguments.model, arguments.output, options);
  }
  if (!is_directory) {
    report(arguments.json, "merged", from, read_checkpoint_info(from).step, arguments.output);
  } else {
    report(arguments.json, "merged", from, std::nullopt, arguments.output);
  }
  return 0;
}

int run_checkpoint_upcycle(const CheckpointUpcycleArguments& arguments) {
  if (holds_checkpoints(arguments.output))
    throw UsageError({arguments.output, "the directory has checkpoints in it",
                      "a directory for the model with experts alone", "choose another directory"});
  ExportOptions options;
  if (!arguments.dtype.empty()) options.type = dtype_of(arguments.dtype);
  options.most_shard_bytes = static_cast<std::uint64_t>(arguments.most_shard_gb * 1e9);
  const bool is_directory = stored_form(arguments.dense) == StoredForm::kHuggingFace;
  const std::string from = is_directory ? arguments.dense : require_checkpoint(arguments.dense, warn_of_passed_over);
  {
    ProgressBar bar("upcycling");
    options.progress = bar.function();
    upcycle(from, arguments.output,
            {.experts = arguments.experts,
             .used = arguments.used,
             .granularity = arguments.granularity,
             .seed = arguments.seed},
            options);
  }
  if (is_directory) {
    report(arguments.json, "upcycled", from, std::nullopt, arguments.output);
  } else {
    report(arguments.json, "upcycled", from, read_checkpoint_info(from).step, arguments.output);
  }
  return 0;
}

int run_checkpoint_import(const CheckpointImportArguments& arguments) {
  const Config config = import_config(arguments.model, arguments.sets);
  SharedBars bars(bytes_in(TensorCatalog::open(arguments.model)));
  return launch(config, [&](World& world) {
    ImportedModel made;
    {
      const BarsEnd end(bars);
      made = import_model(world, config, arguments.output, bars.progress());
    }
    if (!world.is_main()) return;
    warn_of_new_weights(made.new_parameters);
    report(arguments.json, "imported", arguments.model, 0, made.checkpoint);
  });
}

int run_checkpoint_reshard(const CheckpointReshardArguments& arguments) {
  const Resharding resharding =
      prepare_resharding(require_checkpoint(arguments.checkpoint, warn_of_passed_over), arguments.sets);
  SharedBars bars(resharding.bytes);
  return launch(resharding.config, [&](World& world) {
    std::string made;
    {
      const BarsEnd end(bars);
      made = reshard_checkpoint(world, resharding, arguments.output, bars.progress());
    }
    if (world.is_main()) report(arguments.json, "resharded", resharding.checkpoint, resharding.step, made);
  });
}

}  // namespace gantry::cli
