#include "gantry/nn/stage_context.h"

#include <algorithm>
#include <fmt/format.h>
#include <numeric>
#include <utility>

#include "gantry/core/base/steady_seconds.h"
#include "gantry/core/error.h"
#include "gantry/nn/attention.h"
#include "gantry/nn/layer_watch.h"
#include "gantry/nn/output_observer.h"
#include "gantry/nn/recompute.h"
#include "gantry/nn/sequence_part.h"
#include "gantry/nn/token_entries.h"
#include "gantry/tensors/libtorch.h"

namespace gantry {

StageContext::StageContext(int stage, int num_stages, LayerRange layers, Settings settings)
    : stage_(stage), num_stages_(num_stages), layers_(layers), settings_(std::move(settings)) {
  if (settings_.lists.empty()) settings_.lists = {layers.end};
}

std::shared_ptr<const StageContext> StageContext::full(std::vector<int> lists, TensorDict batch) {
  const LayerRange all{0, std::accumulate(lists.begin(), lists.end(), 0)};
  return std::make_shared<StageContext>(0, 1, all, Settings{.batch = std::move(batch), .lists = std::move(lists)});
}

std::shared_ptr<const StageContext> StageContext::full(std::size_t layers, TensorDict batch) {
  return full(std::vector<int>{static_cast<int>(layers)}, std::move(batch));
}

int StageContext::first_of(int list) const {
  const auto& lists = settings_.lists;
  if (list < 0 || list >= static_cast<int>(lists.size()))
    throw UsageError({"StageContext", fmt::format("list {} does not exist, because there are {}", list, lists.size()),
                      "a list of layers of ModelSplit::stages", ""});
  return std::accumulate(lists.begin(), lists.begin() + list, 0);
}

LayerRange StageContext::layer_range(int list) const {
  const int first = first_of(list), count = settings_.lists[list];
  return {std::clamp(layers_.begin - first, 0, count), std::clamp(layers_.end - first, 0, count)};
}

std::vector<int> StageContext::layers(int list) const {
  const LayerRange range = layer_range(list);
  std::vector<int> indices(range.size());
  std::iota(indices.begin(), indices.end(), range.begin);
  return indices;
}

bool StageContext::begins(int list) const {
  const LayerRange range = layer_range(list);
  return range.size() > 0 && range.begin == 0;
}
bool StageContext::ends(int list) const {
  const LayerRange range = layer_range(list);
  return range.size() > 0 && range.end == settings_.lists[list];
}

namespace {

// The part of the list of layers whose token entries have this prefix.
std::shared_ptr<const nn::SequencePart> stream_of(const std::shared_ptr<const nn::SequencePart>& part,
                                                  const std::string& prefix) {
  if (part)
    for (const auto& stream : part->streams)
      if (stream->prefix == prefix) return stream;
  return part;
}

}  // namespace

nn::TokenContext StageContext::tokens(const std::string& prefix) const {
  if (settings_.tokens) {
    nn::TokenContext known = *settings_.tokens;
    known.sequence = stream_of(known.sequence, prefix);
    return known;
  }
  if (!settings_.sequence) nn::check_token_entries(batch(), prefix);
  const std::string mask = prefix + "attention_mask";
  nn::TokenContext known{.keep = nn::kept_tokens(batch().get(mask), mask),
                         .positions = batch().get(prefix + "position_ids"),
                         .documents = batch().get(prefix + "document_ids")};
  if (settings_.sequence) {
    const auto part = stream_of(settings_.sequence, prefix);
    known.sequence = part;
    known.length = part->shard.tokens;
    if (!known.positions.defined())
      known.positions = part->in_documents.defined() ? part->in_documents : part->positions;
  } else if (known.documents.defined() && !known.positions.defined()) {
    known.positions = nn::positions_in(known.documents);
  }
  return known;
}

Recomputation StageContext::recomputation(int layer) const {
  const auto& counts = settings_.recomputed_layers;
  if (counts.empty()) return settings_.recomputation;
  const int count = counts.size() == 1 ? counts.front() : counts[stage_];
  return layer - layers_.begin < count ? settings_.recomputation : Recomputation::kNone;
}

namespace {

void update(TensorDict& state, const TensorDict& changed) {
  for (const auto& [name, tensor] : changed) {
    if (tensor.defined())
      state.set(name, tensor);
    else if (state.contains(name))
      state.take(name);
  }
}

// Splits the graph if the watch does so. The following parts then read the tensors that the watch returns.
void split_graph(LayerWatch* watch, TensorDict& state, TensorDict& changed) {
  if (!watch || !watch->splits()) return;
  for (const auto& [name, tensor] : watch->after_part(state)) {
    state.set(name, tensor);
    changed.set(name, tensor);
  }
}

// Runs `parts` and returns their changes to the state. `watch`: called after each part; may be null.
TensorDict run_parts(const LayerParts& parts, TensorDict state, LayerWatch* watch = nullptr) {
  TensorDict changed;
  ForwardReport* report = forward_now().report;
  for (const auto& part : parts) {
    if (report) report->part = part.name;
    const TensorDict made = part.run(state);
    update(state, made);
    for (const auto& [name, tensor] : made) changed.set(name, tensor);
    split_graph(watch, state, changed);
  }
  return changed;
}

// run_parts() without keeping the intermediate tensors.
TensorDict recomputed_parts(const LayerParts& parts, const TensorDict& state,
                            std::shared_ptr<const StageContext> stage) {
  std::vector<std::string> names;
  std::vector<torch::Tensor> tensors;
  for (const auto& [name, tensor] : state) {
    names.push_back(name);
    tensors.push_back(tensor);
  }
  struct Changed {
    std::vector<std::string> kept, dropped;
  };
  const auto changed = std::make_shared<Changed>();
  // `stage` is captured, because a part may use its stage again in the backward.
  const auto run = [parts, names, changed, stage = std::move(stage)](const std::vector<torch::Tensor>& inputs) {
    TensorDict given;
    for (std::size_t i = 0; i < names.size(); ++i) given.set(names[i], inputs[i]);
    *changed = {};
    std::vector<torch::Tensor> outputs;
    for (auto& [name, tensor] : run_parts(parts, std::move(given))) {
      (tensor.defined() ? changed->kept : changed->dropped).push_back(name);
      if (tensor.defined()) outputs.push_back(tensor);
    }
    return outputs;
  };
  const std::vector<torch::Tensor> outputs = nn::recompute_all(run, tensors);
  TensorDict made;
  for (std::size_t i = 0; i < outputs.size(); ++i) made.set(changed->kept[i], outputs[i]);
  for (const auto& name : changed->dropped) made.set(name, {});
  return made;
}

}  // namespace

// Returns the changes of the layer to the state.
TensorDict StageContext::run_layer(const LayerParts& parts, const TensorDict& state, Recomputation how) const {
  if (parts.empty()) return {};
  LayerWatch* watch = forward_now().watch.get();
  if (how != Recomputation::kFull && how != Recomputation::kParts) return run_parts(parts, state, watch);
  std::vector<LayerParts> pieces;  // each one is recomputed separately
  if (how == Recomputation::kFull)
    pieces.push_back(parts);
  else
    for (const auto& part : parts) pieces.push_back({part});
  TensorDict changed, now = state;
  for (const LayerParts& piece : pieces) {
    const TensorDict made = recomputed_parts(piece, now, weak_from_this().lock());
    update(now, made);
    for (const auto& [name, tensor] : made) changed.set(name, tensor);
    split_graph(watch, now, changed);
  }
  return changed;
}

namespace {

// Notifies a watch before and after the backward of each layer, by hooks on the tensors between layers. The
// backward of a layer begins when a gradient of its results is known. It has ended when the gradient of its
// input is known.
class WatchedBackwards {
 public:
  explicit WatchedBackwards(std::shared_ptr<LayerWatch> watch) : watch_(std::move(watch)) {}
  ~WatchedBackwards() { tell_of_last(); }
  WatchedBackwards(const WatchedBackwards&) = delete;
  WatchedBackwards& operator=(const WatchedBackwards&) = delete;

  void ran(int layer, const TensorDict& given, const TensorDict& changed) {
    if (!torch::GradMode::is_enabled()) return;
    const auto has_begun = std::make_shared<bool>(false);
    // Registered before the hook of the previous layer on the same tensor: this backward ends before that one
    // begins.
    for (const auto& [name, tensor] : changed)
      hook(given.get(name), [watch = watch_, layer, has_begun](const torch::Tensor&) {
        *has_begun = false;
        watch->after_backward(layer);
      });
    tell_of_last();
    last_ = layer;
    has_begun_ = has_begun;
    made_ = changed;
  }

 private:
  static void hook(const torch::Tensor& tensor, const std::function<void(torch::Tensor)>& tell) {
    if (tensor.defined() && tensor.requires_grad()) tensor.register_hook(tell);
  }
  // The first gradient begins the backward. Gradients of entries that later layers share may come in the
  // middle of it.
  void tell_of_last() {
    for (const auto& [name, tensor] : made_)
      hook(tensor, [watch = watch_, layer = last_, has_begun = has_begun_](const torch::Tensor&) {
        if (!std::exchange(*has_begun, true)) watch->before_backward(layer);
      });
    made_ = {};
  }

  std::shared_ptr<LayerWatch> watch_;
  int last_ = -1;
  std::shared_ptr<bool> has_begun_;  // whether the backward of the last layer has begun
  TensorDict made_;                  // changes of the last layer
};

}  // namespace

TensorDict StageContext::run_layers(TensorDict state, const PartsOf& parts_of, int list) const {
  Forward known = forward_now();
  known.stage = weak_from_this().lock();
  const bool has_streams = settings_.sequence && !settings_.sequence->streams.empty();
  if (has_streams) {  // modules read the part of the tokens that they run on
    const auto of_list = std::make_shared<StageContext>(*this);
    of_list->settings_.sequence = settings_.sequence->streams.at(list);
    known.stage = of_list;
  }
  ForwardReport unreported;
  ForwardReport& report = known.report ? *known.report : unreported;
  report.ran_layers = true;
  const int first = first_of(list);
  WatchedBackwards backwards(known.watch);
  for (const int index : layers(list)) {
    report.layer = first + index;
    const Recomputation how = recomputation(first + index);
    known.recomputes_attention = how == Recomputation::kSelective;
    const ForwardScope scope(known);
    if (known.watch) known.watch->before_forward(first + index);
    const double begin = report.layer_ran ? steady_seconds() : 0;
    const TensorDict made = run_layer(parts_of(index), state, how);
    if (report.layer_ran) report.layer_ran(first + index, begin, steady_seconds());
    if (known.watch) {
      if (!known.watch->splits()) backwards.ran(first + index, state, made);
      known.watch->after_forward(first + index);
    }
    update(state, made);
    if (known.observer && !state.empty()) known.observer->layer_output(first + index, state.begin()->second);
  }
  report.layer = -1;
  report.part.clear();
  return state;
}

torch::Tensor StageContext::run_layers(const torch::Tensor& hidden, const PartsOf& parts_of) const {
  return run_layers(TensorDict{{"hidden", hidden}}, parts_of).at("hidden");
}

torch::Tensor StageContext::run_layers(const torch::Tensor& hidden, const Layer& layer) const {
  const auto shared = std::make_shared<const Layer>(layer);
  return run_layers(hidden, [&shared](int index) {
    return LayerParts{{"", [shared, index](const torch::Tensor& input) { return (*shared)(index, input); }}};
  });
}

}  // namespace gantry
