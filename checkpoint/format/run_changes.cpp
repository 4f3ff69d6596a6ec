#include "gantry/checkpoint/format/run_changes.h"

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>

namespace gantry {
namespace {

// The path or the sources, with their contents if they are known.
std::string sources_of(const DataConfig& data, const std::vector<SampledContent>& contents) {
  const std::size_t count = std::max<std::size_t>(data.sources.size(), 1);
  const auto facts = [&](std::size_t i) { return contents.size() == count ? describe(contents[i]) : ""; };
  if (data.sources.empty()) return facts(0).empty() ? data.path : fmt::format("{} ({})", data.path, facts(0));
  std::vector<std::string> parts;
  for (std::size_t i = 0; i < count; ++i)
    parts.push_back(fmt::format("{} (weight {}{}{})", data.sources[i].path, data.sources[i].weight,
                                facts(i).empty() ? "" : ", ", facts(i)));
  return fmt::format("{}", fmt::join(parts, ", "));
}

// Weights are shares of their sum.
bool have_same_weights(const DataConfig& a, const DataConfig& b) {
  const auto sum = [](const DataConfig& data) {
    double weights = 0;
    for (const auto& source : data.sources) weights += source.weight;
    return weights;
  };
  return std::equal(a.sources.begin(), a.sources.end(), b.sources.begin(), b.sources.end(),
                    [shares = std::pair(sum(a), sum(b))](const auto& one, const auto& other) {
                      return one.weight / shares.first == other.weight / shares.second;
                    });
}

// Data at another path, or at another spelling of the path, is the same if its content is.
bool have_same_content(const DataConfig& was, const DataConfig& is, const DataPlace& place) {
  if (place.contents_before.empty() || place.contents_now.empty() || !have_same_weights(was, is)) return false;
  const bool may_grow = !is.shuffle && is.sources.empty();
  return place.contents_before == place.contents_now || (may_grow && place.begins_as_before);
}

// The path of the tokenizer, with the content of its files if it is known.
std::string tokenizer_of(const DataConfig& data, const std::vector<SampledContent>& contents) {
  const std::string path = data.tokenizer.empty() && !contents.empty() ? "the model's" : data.tokenizer;
  return contents.empty() ? path : fmt::format("{} ({})", path, describe(contents[0]));
}

bool are_known(const DataPlace& place) { return !place.contents_before.empty() && !place.contents_now.empty(); }

class ChangeList {
 public:
  void compare(const char* key, const std::string& before, const std::string& now, bool moves_samples,
               const std::string& effect = "samples are skipped or repeated from here on") {
    if (before != now) changes_.push_back({key, before, now, effect, moves_samples});
  }
  std::vector<RunChange> take() { return std::move(changes_); }

 private:
  std::vector<RunChange> changes_;
};

// False if the data is read in order and has only grown: the run then continues as if the data had always
// been longer.
bool moves_samples(const DataConfig& data, const DataPlace& place) {
  const bool has_grown = place.samples_now > *place.samples_before && place.read <= *place.samples_before;
  return data.shuffle || !data.sources.empty() || !has_grown;
}

}  // namespace

std::vector<RunChange> changes_between(const Config& before, const Config& now, const DataPlace& place) {
  ChangeList list;
  const DataConfig &was = before.data, &is = now.data;
  const bool has_data = !was.format.empty() && !is.format.empty();
  if (has_data) {
    list.compare("data.format", was.format, is.format, true);
    const std::vector<SampledContent> unknown;
    if (!have_same_content(was, is, place))
      list.compare(was.sources.empty() && is.sources.empty() ? "data.path" : "data.sources",
                   sources_of(was, are_known(place) ? place.contents_before : unknown),
                   sources_of(is, are_known(place) ? place.contents_now : unknown), true);
    const bool knows_tokenizers = !place.tokenizer_before.empty() && !place.tokenizer_now.empty();
    if (!knows_tokenizers || place.tokenizer_before != place.tokenizer_now)
      list.compare("data.tokenizer", tokenizer_of(was, knows_tokenizers ? place.tokenizer_before : unknown),
                   tokenizer_of(is, knows_tokenizers ? place.tokenizer_now : unknown), true);
    list.compare("data.document_mask", was.document_mask ? "true" : "false", is.document_mask ? "true" : "false", true);
    list.compare("data.chat_template", was.chat_template, is.chat_template, true);
    list.compare("data.template_kwargs", was.template_kwargs, is.template_kwargs, true);
    list.compare("data.objective", was.objective, is.objective, true);
    list.compare("data.mlm_probability", fmt::format("{}", was.mlm_probability), fmt::format("{}", is.mlm_probability),
                 true);
    list.compare("data.bos", was.bos, is.bos, true);
    list.compare("data.eos", was.eos, is.eos, true);
    list.compare("data.loss_on", was.loss_on, is.loss_on, true);
    list.compare("data.bad_lines", was.bad_lines, is.bad_lines, true);
    list.compare("data.sequence_length", std::to_string(was.sequence_length), std::to_string(is.sequence_length), true);
    list.compare("data.target_length", std::to_string(was.target_length), std::to_string(is.target_length), true);
    list.compare("data.shuffle", was.shuffle ? "true" : "false", is.shuffle ? "true" : "false", true);
    // Another sequence length changes the number of samples, and is reported above.
    if (place.samples_before && place.samples_now > 0 && was.sequence_length == is.sequence_length)
      list.compare(
          "number of samples", std::to_string(*place.samples_before), std::to_string(place.samples_now),
          moves_samples(is, place),
          moves_samples(is, place) ? "samples are skipped or repeated from here on" : "the new samples follow");
  }
  const bool drawn = has_data && is.shuffle;
  list.compare("train.seed", std::to_string(before.train.seed), std::to_string(now.train.seed), drawn,
               drawn ? "the order of the data and dropout change from here on" : "dropout changes from here on");
  const auto objective = [](const Config& config) { return config.train.objective.name; };
  list.compare("train.objective.name", objective(before), objective(now), false, "the loss changes from here on");
  if (before.train.steps > 0)
    list.compare("train.steps", std::to_string(before.train.steps), std::to_string(now.train.steps), false,
                 now.lr_schedule.name == "constant"
                     ? ""
                     : fmt::format("the learning rate of lr_schedule {} depends on it", now.lr_schedule.name));
  return list.take();
}

std::string describe(const std::vector<RunChange>& changes) {
  std::string text = "the checkpoint was made with ";
  for (const auto& change : changes)
    text += fmt::format("{}{} {}, and this run has {}", &change == &changes.front() ? "" : "; with ", change.key,
                        change.before, change.now);
  return text;
}

}  // namespace gantry
