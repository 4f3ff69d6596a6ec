#include "gantry/trainer/continued_prompts.h"

#include <algorithm>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "gantry/core/base/utf8.h"
#include "gantry/core/error.h"
#include "gantry/data/encoded_text.h"
#include "gantry/generation/generate.h"
#include "gantry/models/model_family.h"

namespace gantry {

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
  for (const auto& prompt : made->prompts_)
    if (const auto tokens = static_cast<std::int64_t>(made->tokens_of(prompt).size()),
        most = family.context_length(keys);
        tokens == 0 || tokens + made->new_tokens_ > most)
      throw ConfigError({"evaluation.prompts",
                         fmt::format("'{}' has {} tokens, which with {} new ones are {}", prompt.text, tokens,
                                     made->new_tokens_, tokens + made->new_tokens_),
                         fmt::format("at least 1 token, and at most the model's {} positions in total", most),
                         "shorten it, or reduce evaluation.prompt_tokens"});
  return made;
}

ContinuedPrompts::ContinuedPrompts(const Config& config, const std::string& tokenizer)
    : prompts_(config.evaluation.prompts),
      new_tokens_(config.evaluation.prompt_tokens),
      text_(tokenizer, {config.data.bos, config.data.eos}) {
  if (const auto end = load_tokenizer(tokenizer)->special().end) ends_.push_back(*end);
  if (std::ranges::none_of(prompts_, &EvaluationPrompt::is_chat)) return;
  chats_ = std::make_unique<ChatPrompts>(tokenizer, config.data.chat_template, config.data.template_kwargs);
  if (config.model.path.empty()) return;
  const auto stops = generation_defaults(config.model.path).stop_tokens;
  ends_.insert(ends_.end(), stops.begin(), stops.end());
}

TokenIds ContinuedPrompts::tokens_of(const EvaluationPrompt& prompt) const {
  return prompt.is_chat ? chats_->encode(nlohmann::ordered_json::parse(prompt.text), "evaluation.prompts")
                        : text_.encode(prompt.text);
}

std::vector<ContinuedPrompt> ContinuedPrompts::make(Boosted& boosted, Plugin& plugin) const {
  std::vector<TokenIds> prompts;
  for (const auto& prompt : prompts_) prompts.push_back(tokens_of(prompt));
  const auto made = generate(boosted, plugin, prompts,
                             {.max_new_tokens = new_tokens_, .stop_tokens = ends_, .vocabulary = text_.size()});
  std::vector<ContinuedPrompt> all;
  for (std::size_t i = 0; i < made.size(); ++i)
    all.push_back({prompts_[i].text, valid_utf8(text_.decode(made[i].tokens))});
  return all;
}

}  // namespace gantry
