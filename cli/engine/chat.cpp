#include <algorithm>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <poll.h>
#include <unistd.h>

#include "gantry/cli/engine/commands.h"
#include "gantry/cli/engine/generation_choice.h"
#include "gantry/core/base/utf8.h"
#include "gantry/core/error.h"
#include "gantry/core/io/output.h"
#include "gantry/generation/chat_prompts.h"
#include "gantry/launch/launch.h"
#include "gantry/models/model_family.h"
#include "gantry/tensors/libtorch.h"

namespace gantry::cli {
namespace {

constexpr int kPollMilliseconds = 500;     // other ranks hear from the main one at least this often
constexpr std::int64_t kMostTokens = 512;  // limit of an answer, unless flags or files state one

using OrderedJson = nlohmann::ordered_json;

// The lines of the standard input, without blocking for long.
class InputLines {
 public:
  // A line ("+line"), "" if none has arrived yet, or "." at the end.
  std::string next() {
    if (std::string line = take(); !line.empty()) return line;
    if (is_at_end_) return ".";
    pollfd input{.fd = STDIN_FILENO, .events = POLLIN, .revents = 0};
    if (::poll(&input, 1, kPollMilliseconds) <= 0) return "";
    char bytes[4096];
    const ssize_t count = ::read(STDIN_FILENO, bytes, sizeof bytes);
    if (count > 0) read_.append(bytes, static_cast<std::size_t>(count));
    is_at_end_ = count <= 0;
    if (is_at_end_ && !read_.empty()) read_ += '\n';
    return take();
  }

 private:
  std::string take() {
    const auto end = read_.find('\n');
    if (end == std::string::npos) return "";
    std::string line = "+" + valid_utf8(read_.substr(0, end));
    read_.erase(0, end + 1);
    if (line.ends_with('\r')) line.pop_back();
    return line;
  }

  std::string read_;
  bool is_at_end_ = false;
};

struct Talk {
  TrainedModel model;
  std::unique_ptr<PromptText> text;
  std::unique_ptr<ChatPrompts> chats;
  GenerationOptions options;
  std::string system;
  std::int64_t positions = 0;  // longest text of the model
};

OrderedJson beginning(const Talk& talk) {
  OrderedJson chat = {{"messages", OrderedJson::array()}};
  if (!talk.system.empty()) chat["messages"].push_back({{"role", "system"}, {"content", talk.system}});
  return chat;
}

Talk prepare_talk(const GenerateArguments& arguments) {
  Talk talk{.model = find_trained_model(arguments.model, arguments.sets, arguments.adapter),
            .text = {},
            .chats = {},
            .options = {},
            .system = arguments.system};
  const std::string& tokenizer = arguments.tokenizer.empty() ? talk.model.tokenizer : arguments.tokenizer;
  if (tokenizer.empty())
    throw InputError(
        {arguments.model, "the model has no tokenizer", "a tokenizer with a chat template", "use --tokenizer"});
  talk.text = std::make_unique<PromptText>(tokenizer);
  talk.chats = std::make_unique<ChatPrompts>(tokenizer, talk.model.chat_template, talk.model.template_kwargs);
  talk.options = options_of(arguments, talk.model, talk.text.get());
  talk.options.vocabulary = talk.text->size();
  const auto& family = models::families().at(talk.model.config.model.policy);
  talk.positions = family.context_length(nlohmann::json::parse(talk.model.config.model.config_json));
  return talk;
}

// Generates the answer, prints it on the main rank as it grows, and returns its text.
std::string answer(World& world, const Talk& talk, Boosted& boosted, HybridParallelPlugin& plugin,
                   const OrderedJson& chat) {
  GrowingText shown;
  TokenIds tokens;
  GenerationOptions options = talk.options;
  const auto is_stop = [&](std::int64_t token) {
    return std::ranges::find(options.stop_tokens, token) != options.stop_tokens.end();
  };
  if (world.is_main())
    options.on_token = [&](std::int64_t, std::int64_t token) {
      tokens.push_back(token);
      if (!is_stop(token)) shown.show(talk.text->decode(tokens));
    };
  const TokenIds prompt = talk.chats->encode(chat, "the chat");
  if (!options.max_new_tokens && !options.max_length)
    options.max_new_tokens =
        std::clamp<std::int64_t>(talk.positions - static_cast<std::int64_t>(prompt.size()), 1, kMostTokens);
  auto sequence = generate(boosted, plugin, {prompt}, options).front();
  if (sequence.stopped) sequence.tokens.pop_back();
  const std::string text = talk.text->decode(sequence.tokens);
  if (world.is_main()) {
    shown.finish(text);
    print_output("\n");
  }
  return valid_utf8(text);
}

void talk_on_rank(World& world, const Talk& talk) {
  auto* plugin = new HybridParallelPlugin(world, talk.model.config);
  Booster booster{std::unique_ptr<Plugin>(plugin)};
  auto boosted = booster.boost(build_model(talk.model.config), nullptr, cross_entropy());
  load_trained_weights(talk.model, boosted, *plugin);
  const bool shows_prompt = world.is_main() && ::isatty(STDIN_FILENO) == 1;
  InputLines input;
  OrderedJson chat = beginning(talk);
  const auto ask = [&] {
    if (shows_prompt) print_output("> ");
  };
  ask();
  while (true) {
    const std::string read = broadcast_text(plugin->mesh().world_group(), world.is_main() ? input.next() : "", 0);
    if (read.empty()) continue;
    const std::string line = read.substr(1);
    if (read == "." || line == "/exit") return;
    if (line == "/reset") {
      chat = beginning(talk);
    } else if (!line.empty()) {
      chat["messages"].push_back({{"role", "user"}, {"content", line}});
      const std::string said = answer(world, talk, boosted, *plugin, chat);
      chat["messages"].push_back({{"role", "assistant"}, {"content", said}});
    }
    ask();
  }
}

}  // namespace

int run_chat(const GenerateArguments& arguments) {
  const Talk talk = prepare_talk(arguments);
  return launch(talk.model.config, [&](World& world) { talk_on_rank(world, talk); });
}

}  // namespace gantry::cli
