#include "gantry/trainer/continued_prompts.h"

#include <algorithm>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "gantry/booster/image_chats.h"
#include "gantry/core/base/utf8.h"
#include "gantry/core/error.h"
#include "gantry/data/chat_line.h"
#include "gantry/data/encoded_text.h"
#include "gantry/generation/chat_prompts.h"
#include "gantry/generation/prompt_images.h"
#include "gantry/models/model_family.h"

namespace gantry {
namespace {

// Throws ConfigError if the run cannot read the images of a prompt. `where`: the prompt.
std::shared_ptr<const ImageReader> image_reader_of(const Config& config, const std::string& tokenizer,
                                                   const std::string& where) {
  DataConfig data = config.data;
  data.tokenizer = tokenizer;
  const LineRules rules = chat_rules(config, data);
  if (!rules.images)
    throw ConfigError({where, "the prompt has images, but " + rules.no_images.reason, rules.no_images.expected,
                       rules.no_images.remedy});
  if (config.parallel.sequence_parallel && config.parallel.tensor > 1)
    throw ConfigError({where,
                       "the prompt has images, which generation does not support with "
                       "parallel.sequence_parallel",
                       "texts", "remove the images, or parallel.sequence_parallel"});
  return rules.images;
}

}  // namespace

std::unique_ptr<ContinuedPrompts> ContinuedPrompts::of(const Config& config) {
  config.mark_used("evaluation.prompts");
  if (config.evaluation.prompts.empty()) return nullptr;
  const auto& families = models::families();
  const auto keys = nlohmann::json::parse(config.model.config_json);
  if (!families.contains(config.model.policy) || !models::continues_text(families.at(config.model.policy), keys))
    throw ConfigError({"evaluation.prompts", "the model is not a decoder of one of Gantry's families",
                       "a decoder, which continues text", "remove evaluation.prompts"});
  const auto& family = families.at(config.model.policy);
  const std::string tokenizer =
      choose_text_tokenizer(config.data.tokenizer, config.model.path, family.vocabulary_size(keys));
  std::unique_ptr<ContinuedPrompts> made(new ContinuedPrompts(config, tokenizer));
  const std::int64_t added = config.evaluation.prompt_tokens, most = family.context_length(keys);
  for (std::size_t i = 0; i < made->tokens_.size(); ++i)
    if (const auto tokens = static_cast<std::int64_t>(made->tokens_[i].size()); tokens == 0 || tokens + added > most)
      throw ConfigError({"evaluation.prompts",
                         fmt::format("'{}' has {} tokens, which with {} new ones are {}", made->prompts_[i].text,
                                     tokens, added, tokens + added),
                         fmt::format("at least 1 token, and at most the model's {} positions in total", most),
                         "shorten it, or reduce evaluation.prompt_tokens"});
  return made;
}

ContinuedPrompts::ContinuedPrompts(const Config& config, const std::string& tokenizer)
    : prompts_(config.evaluation.prompts),
      text_(tokenizer, {config.data.bos, config.data.eos}),
      options_{.max_new_tokens = config.evaluation.prompt_tokens, .vocabulary = text_.size()} {
  std::vector<std::int64_t>& ends = options_.stop_tokens;
  if (const auto end = load_tokenizer(tokenizer)->special().end) ends.push_back(*end);
  encode(config, tokenizer);
  if (std::ranges::none_of(prompts_, &EvaluationPrompt::is_chat) || config.model.path.empty()) return;
  const auto stops = generation_defaults(config.model.path).stop_tokens;
  ends.insert(ends.end(), stops.begin(), stops.end());
}

void ContinuedPrompts::encode(const Config& config, const std::string& tokenizer) {
  std::unique_ptr<ChatPrompts> chats;
  std::optional<PromptImages> images;
  for (std::size_t i = 0; i < prompts_.size(); ++i) {
    const auto& [text, is_chat] = prompts_[i];
    if (!is_chat) {
      tokens_.push_back(text_.encode(text));
      continue;
    }
    const auto chat = nlohmann::ordered_json::parse(text);
    const std::string where = fmt::format("evaluation.prompts[{}]", i);
    if (!images && has_image_parts(chat["messages"])) images.emplace(image_reader_of(config, tokenizer, where));
    if (!chats)
      chats = std::make_unique<ChatPrompts>(tokenizer, config.data.chat_template, config.data.template_kwargs);
    tokens_.push_back(chats->encode(chat, where, images ? &*images : nullptr));
  }
  if (!images) return;
  options_.images = images->entries();
  for (std::size_t i = 0; i < prompts_.size(); ++i)
    if (!prompts_[i].is_chat && images->reader().marks_in(prompts_[i].text) > 0)
      throw ConfigError({fmt::format("evaluation.prompts[{}]", i),
                         fmt::format("the text has the mark of an image ({}), but a text has no images",
                                     images->reader().format().marks.mark),
                         "a list of messages with image parts", "remove the mark, or write messages"});
}

std::vector<ContinuedPrompt> ContinuedPrompts::make(Boosted& boosted, Plugin& plugin) const {
  const auto made = generate(boosted, plugin, tokens_, options_);
  std::vector<ContinuedPrompt> all;
  for (std::size_t i = 0; i < made.size(); ++i)
    all.push_back({prompts_[i].text, valid_utf8(text_.decode(made[i].tokens))});
  return all;
}

}  // namespace gantry
