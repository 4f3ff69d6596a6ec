#include <algorithm>
#include <fmt/format.h>
#include <limits>
#include <nlohmann/json.hpp>

#include "gantry/core/config.h"
#include "gantry/core/config/chat_template_names.h"
#include "gantry/core/config/config_training.h"
#include "gantry/core/config/yaml_json.h"

namespace gantry {
namespace {

constexpr double kUnlimited = std::numeric_limits<double>::infinity();

}  // namespace

void read_numbers(ConfigSection& section, const std::string& key, std::size_t count, double above, bool ascends,
                  const std::string& expected, std::vector<double>& values) {
  const YAML::Node list = section.node(key);
  if (!list.IsDefined()) return;
  std::vector<double> read;
  if (list.IsSequence())
    for (const auto& item : list)
      if (const auto value = item.IsScalar() ? parse_number(item.Scalar()) : std::nullopt; value && *value > above)
        read.push_back(*value);
  if (list.IsSequence() && list.size() == count && read.size() == count &&
      (!ascends || std::is_sorted(read.begin(), read.end())))
    values = read;
  else
    section.fault(key,
                  fmt::format("the value is not a list of {} numbers{}{}", count, above > -kUnlimited ? " above 0" : "",
                              ascends ? " in ascending order" : ""),
                  expected);
}

namespace {

void read_sources(ConfigFaults& faults, ConfigSection& section, DataConfig& data) {
  const YAML::Node sources = section.node("sources");
  if (!sources.IsDefined()) return;
  if (section.has("path")) return section.fault("sources", "both sources and path are set", "", "remove one of them");
  if (!sources.IsSequence() || sources.size() == 0)
    return section.fault("sources", "the value is not a list of sources", "a list of {path, weight}",
                         "put the entry in brackets");
  for (std::size_t i = 0; i < sources.size(); ++i) {
    ConfigSection each(faults, fmt::format("data.sources[{}]", i), sources[i]);
    DataSourceConfig source;
    each.text("path", source.path);
    each.number("weight", source.weight, 0, kUnlimited, /*open_below=*/true);
    if (!each.has("path")) each.fault("path", "the key is missing", "a file, directory or glob pattern");
    each.finish();
    data.sources.push_back(std::move(source));
  }
}

constexpr const char* kColours = "one number for each colour, such as [0.5, 0.5, 0.5]";
constexpr const char* kBounds = "two numbers such as [0.08, 1]";

void read_images(ConfigSection& section, ImageConfig& pictures) {
  int size = 0, resize = -1;
  if (section.integer("image_size", size, 1, 1 << 14); size > 0) pictures.image_size = size;
  if (section.integer("resize", resize, 0, 1 << 14); resize >= 0) pictures.resize = resize;
  section.text("interpolation", pictures.interpolation, {"bilinear", "bicubic"});
  read_numbers(section, "mean", 3, -kUnlimited, false, kColours, pictures.mean);
  read_numbers(section, "std", 3, 0, false, kColours, pictures.deviation);
  section.text("crop", pictures.crop, {"random", "center"});
  read_numbers(section, "crop_scale", 2, 0, true, kBounds, pictures.crop_scale);
  read_numbers(section, "crop_ratio", 2, 0, true, kBounds, pictures.crop_ratio);
  if (pictures.crop_scale[1] > 1)
    section.fault("crop_scale", fmt::format("{} is more than the full image", pictures.crop_scale[1]),
                  "shares of the image area, such as [0.08, 1]");
  section.number("flip", pictures.flip, 0, kUnlimited);
  if (pictures.flip > 1) section.fault("flip", fmt::format("'{}'", pictures.flip), "a probability from 0 to 1");
}

void read_template_kwargs(ConfigFaults& faults, ConfigSection& section, DataConfig& data) {
  constexpr const char* kExpected = "variables such as {enable_thinking: false}";
  const YAML::Node kwargs = section.node("template_kwargs");
  if (!kwargs.IsDefined()) return;
  if (!kwargs.IsMap()) return section.fault("template_kwargs", "the value is not a mapping", kExpected);
  for (const char* name : {"messages", "add_generation_prompt"})
    if (kwargs[name].IsDefined())
      section.fault("template_kwargs",
                    fmt::format("the value contains '{}', which Gantry itself passes to the template", name), kExpected,
                    fmt::format("remove data.template_kwargs.{}", name));
  if (kwargs.size() > 0) data.template_kwargs = yaml_to_json(kwargs, "data.template_kwargs", faults).dump();
}

}  // namespace

void read_prompts(ConfigFaults& faults, ConfigSection& section, std::vector<EvaluationPrompt>& prompts) {
  constexpr const char* kExpected = "a list of texts, and of chats as lists of messages";
  const YAML::Node list = section.node("prompts");
  if (!list.IsDefined()) return;
  if (!list.IsSequence()) return section.fault("prompts", "the value is not a list", kExpected);
  std::vector<EvaluationPrompt> read;
  for (const auto& item : list) {
    if (item.IsScalar()) {
      read.push_back({item.Scalar()});
      continue;
    }
    nlohmann::json chat = yaml_to_json(item, "evaluation.prompts", faults);
    if (chat.is_array()) chat = {{"messages", chat}};
    if (!chat.is_object() || !chat.contains("messages"))
      return section.fault("prompts", "the list has an entry that is neither a text nor a chat", kExpected);
    read.push_back({chat.dump(), /*is_chat=*/true});
  }
  prompts = std::move(read);
}

void read_data(ConfigFaults& faults, ConfigSection section, DataConfig& data) {
  section.text("format", data.format, {"text", "tokens", "megatron", "jsonl", "squad", "tensors", "images"});
  section.text("path", data.path);
  read_sources(faults, section, data);
  section.text("tokenizer", data.tokenizer);
  section.text("chat_template", data.chat_template, chat_template_names());
  read_template_kwargs(faults, section, data);
  section.text("objective", data.objective, {"causal", "mlm", "labels"});
  section.number("mlm_probability", data.mlm_probability, 0, 1);
  section.text("bos", data.bos, {"auto", "always", "never"});
  section.text("eos", data.eos, {"auto", "always", "never"});
  section.text("loss_on", data.loss_on, {"completions", "all", "last"});
  section.text("bad_lines", data.bad_lines, {"stop", "skip", "cut"});
  section.integer("prefetch", data.prefetch, 0, 1000);
  if (const YAML::Node workers = section.node("workers"); !workers.IsScalar() || workers.Scalar() != "auto")
    section.integer("workers", data.workers, 1, 4096);
  section.text("cache", data.cache);
  section.integer("sequence_length", data.sequence_length, 1, 1 << 24);
  section.integer("target_length", data.target_length, 0, 1 << 24);
  section.flag("document_mask", data.document_mask);
  section.integer("batch_size", data.batch_size, 1, 1 << 24);
  section.flag("shuffle", data.shuffle);
  read_images(section, data.pictures);
  if (!section.has("format"))
    section.fault("format", "the key is missing", "text, tokens, megatron, jsonl, squad, tensors or images");
  if (!section.has("path") && !section.has("sources"))
    section.fault("path", "the key is missing", "a file, directory or glob pattern");
  section.finish();
}

}  // namespace gantry
