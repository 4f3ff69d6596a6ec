#include "gantry/plugins/step/error_place.h"

#include <fmt/format.h>
#include <string_view>

#include "gantry/tensors/exceptions.h"
#include "gantry/tensors/libtorch.h"

namespace gantry {
namespace {

constexpr const char* kMissingEntry = "tensors: there is no entry";  // the error of TensorDict::at

// "h.3 (mlp)", or "h 0 to 3" if no layer runs.
std::string place_of(const StageModule& model, int stage, const ForwardReport& report) {
  if (report.layer >= 0) {
    const std::string layer = layer_path(model.lists(), report.layer);
    return report.part.empty() ? layer : fmt::format("{} ({})", layer, report.part);
  }
  const LayerRange range = model.layer_ranges().at(stage);
  if (range.size() == 0) return "no layers";
  if (model.lists().size() == 1)
    return fmt::format("{} {} to {}", model.lists().front().path, range.begin, range.end - 1);
  return fmt::format("{} to {}", layer_path(model.lists(), range.begin), layer_path(model.lists(), range.end - 1));
}

}  // namespace

void throw_with_place(const char* what, const StageModule& model, const StageCall& call, const TensorDict& given,
                      const ForwardReport& report) {
  const Failure failure = describe_exception(std::current_exception());
  const bool is_criterion = std::string_view(what) == "criterion";
  const std::string place = fmt::format("{} of stage {} ({}), microbatch {}", what, call.stage,
                                        place_of(model, call.stage, report), call.microbatch);
  if (failure.exit_code == InputError::kExitCode && failure.line.starts_with(kMissingEntry))
    throw InputError(place + ": " + failure.line);
  if (failure.exit_code != InternalError::kExitCode) throw;
  throw UserError({place, fmt::format("it threw \"{}\" on {}", failure.line, describe(given)), "",
                   is_criterion ? "check the criterion, and the entries of outputs and batch that it reads"
                                : "check the modules of this stage, the inputs that the policy's forward passes to "
                                  "them, and the shard plan"});
}

}  // namespace gantry
