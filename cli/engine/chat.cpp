#include <algorithm>
#include <cstdio>
#include <fmt/format.h>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <poll.h>
#include <string_view>
#include <unistd.h>

#include "gantry/cli/engine/adapter_choice.h"
#include "gantry/cli/engine/commands.h"
#include "gantry/cli/engine/generation_choice.h"
#include "gantry/cli/engine/model_images.h"
#include "gantry/core/base/utf8.h"
#include "gantry/core/error.h"
#include "gantry/core/io/output.h"
#include "gantry/generation/chat_prompts.h"
#include "gantry/generation/prompt_images.h"
#include "gantry/launch/launch.h"
#include "gantry/models/model_family.h"
#include "gantry/tensors/libtorch.h"

namespace gantry::cli {
namespace {

constexpr int kPollMilliseconds = 500;  // other ranks hear from the main one at least this often

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
  AdapterChoice adapters;
  TrainedModel model;
  std::unique_ptr<PromptText> text;
  std::unique_ptr<ChatPrompts> chats;
  GenerationOptions options;
  std::shared_ptr<const ImageReader> images;  // null: the chat reads text only
  std::string system;
  std::int64_t positions = 0;  // longest text of the model
};

Talk prepare_talk(const GenerateArguments& arguments) {
  const AdapterChoice adapters = choose_adapters(arguments.adapters);
  Talk talk{.adapters = adapters,
            .model = find_trained_model(arguments.model, arguments.sets, adapters, arguments.reads_images),
            .text = {},
            .chats = {},
            .options = {},
            .images = {},
            .system = arguments.system};
  const std::string& tokenizer = arguments.tokenizer.empty() ? talk.model.tokenizer : arguments.tokenizer;
  if (tokenizer.empty())
    throw InputError(
        {arguments.model, "the model has no tokenizer", "a tokenizer with a chat template", "use --tokenizer"});
  talk.text = std::make_unique<PromptText>(tokenizer);
  talk.chats = std::make_unique<ChatPrompts>(tokenizer, talk.model.chat_template, talk.model.template_kwargs);
  talk.options = options_of(arguments, talk.model, talk.text.get());
  talk.options.vocabulary = talk.text->size();
  if (arguments.reads_images) {
    talk.images = image_reader_of(talk.model, "--images");
    if (const auto& parallel = talk.model.config.parallel; parallel.sequence_parallel && parallel.tensor > 1)
      throw ConfigError({"parallel.sequence_parallel", "chats with images do not support it", "false",
                         "remove the key, or --images"});
  }
  const auto& family = models::families().at(talk.model.config.model.policy);
  talk.positions = family.context_length(nlohmann::json::parse(talk.model.config.model.config_json));
  return talk;
}

// The messages of a chat. All ranks have the same.
class Conversation {
 public:
  Conversation(World& world, const Talk& talk, Boosted& boosted, HybridParallelPlugin& plugin)
      : world_(world),
        talk_(talk),
        boosted_(boosted),
        plugin_(plugin),
        adapters_(load_named_adapters(talk.adapters, talk.model.config, boosted, plugin.mesh())) {
    activate_adapter(adapters_.get(), chosen_adapter(talk.adapters, std::nullopt, ""));
    reset();
  }

  void reset() {
    attached_.clear();
    chat_ = {{"messages", OrderedJson::array()}};
    if (!talk_.system.empty()) add("system", talk_.system);
  }

  // Attaches an image to the next message. Collective over the world, like answer().
  void attach(const std::string& file) {
    const auto read = [&] {
      if (!talk_.images)
        throw UsageError({"/image", "the chat reads text only", "a chat with images", "start it with --images"});
      if (file.empty()) throw UsageError({"/image", "the line has no path", "/image PATH", ""});
      talk_.images->read(file);
    };
    if (succeeds(read)) attached_.push_back(file);
  }

  // The next answers come from this adapter; "": from the model without one. Collective over the world.
  void use_adapter(const std::string& name) {
    std::string chosen;
    const auto choose = [&] { chosen = chosen_adapter(talk_.adapters, name, "/adapter"); };
    if (!succeeds(choose)) return;
    choose();
    activate_adapter(adapters_.get(), chosen);
  }

  // Prints the answer on the main rank as it grows. A message whose images cannot be read, or that leaves no positions
  // for an answer, is left out.
  void answer(const std::string& line) {
    add("user", line);
    GenerationOptions options = talk_.options;
    TokenIds prompt;
    const auto encode = [&] { prompt = encoded(options.images); };
    const bool is_read = !talk_.images || succeeds(encode);
    attached_.clear();
    if (is_read && prompt.empty()) encode();
    if (!is_read || !succeeds([&] { require_positions(prompt); }))
      return chat_["messages"].erase(chat_["messages"].size() - 1);
    add("assistant", generated(prompt, std::move(options)));
  }

 private:
  // The main rank runs `read` and prints its error. Returns the same on all ranks.
  bool succeeds(const std::function<void()>& read) {
    std::string fault;
    if (world_.is_main()) try {
        read();
      } catch (const Error& error) {
        fault = error.what();
        std::fputs(("error: " + fault + "\n").c_str(), stderr);
      }
    return broadcast_text(plugin_.mesh().world_group(), fault, 0).empty();
  }

  void require_positions(const TokenIds& prompt) const {
    const auto length = static_cast<std::int64_t>(prompt.size());
    const std::int64_t answer = talk_.options.max_new_tokens.value_or(1), most = talk_.positions - answer;
    if (most <= 0 || length <= most) return;  // most <= 0: no chat fits, which generate() reports
    throw InputError(
        {"the chat", fmt::format("the chat with this message has {} tokens", length),
         fmt::format("at most {}, so that the answer fits into the model's {} positions", most, talk_.positions),
         "write a shorter message, or enter /reset"});
  }

  // With images, all contents are lists of parts, because some templates write no others.
  void add(const std::string& role, const std::string& text) {
    OrderedJson parts = OrderedJson::array();
    for (const std::string& file : attached_) parts.push_back({{"type", "image"}, {"path", file}});
    parts.push_back({{"type", "text"}, {"text", text}});
    chat_["messages"].push_back({{"role", role}, {"content", talk_.images ? parts : OrderedJson(text)}});
  }

  // The tokens of the chat, and the entries of its images.
  TokenIds encoded(TensorDict& entries) const {
    if (!talk_.images) return talk_.chats->encode(chat_, "the chat");
    PromptImages images(talk_.images);
    TokenIds tokens = talk_.chats->encode(chat_, "the chat", &images);
    if (!images.empty()) entries = images.entries();
    return tokens;
  }

  std::string generated(const TokenIds& prompt, GenerationOptions options) {
    GrowingText shown;
    TokenIds tokens;
    const std::vector<std::int64_t>& stops = talk_.options.stop_tokens;
    if (world_.is_main())
      options.on_token = [&](std::int64_t, std::int64_t token) {
        tokens.push_back(token);
        if (std::ranges::find(stops, token) == stops.end()) shown.show(talk_.text->decode(tokens));
      };
    if (!options.max_new_tokens && !options.max_length)
      options.max_new_tokens =
          std::clamp<std::int64_t>(talk_.positions - static_cast<std::int64_t>(prompt.size()), 1, kMostTokensOfAnswer);
    auto sequence = generate(boosted_, plugin_, {prompt}, options).front();
    if (sequence.stopped) sequence.tokens.pop_back();
    const std::string text = talk_.text->decode(sequence.tokens);
    if (world_.is_main()) {
      shown.finish(text);
      print_output("\n");
    }
    return valid_utf8(text);
  }

  World& world_;
  const Talk& talk_;
  Boosted& boosted_;
  HybridParallelPlugin& plugin_;
  std::unique_ptr<NamedAdapters> adapters_;  // null: none has a name
  OrderedJson chat_;
  std::vector<std::string> attached_;  // image files of the next message
};

// The rest of a line after its command, such as the path of "/image PATH"; nothing for other lines.
std::optional<std::string> after(const std::string& command, const std::string& line) {
  constexpr std::string_view kSpace = " \t";
  if (line != command && !line.starts_with(command + " ")) return std::nullopt;
  const std::size_t begin = line.find_first_not_of(kSpace, command.size());
  if (begin == std::string::npos) return "";
  return line.substr(begin, line.find_last_not_of(kSpace) + 1 - begin);
}

void talk_on_rank(World& world, const Talk& talk) {
  auto* plugin = new HybridParallelPlugin(world, talk.model.config);
  Booster booster{std::unique_ptr<Plugin>(plugin)};
  auto boosted = booster.boost(build_model(talk.model.config), nullptr, cross_entropy());
  load_trained_weights(talk.model, boosted, *plugin);
  const bool shows_prompt = world.is_main() && ::isatty(STDIN_FILENO) == 1;
  InputLines input;
  Conversation chat(world, talk, boosted, *plugin);
  const auto ask = [&] {
    if (shows_prompt) print_output("> ");
  };
  ask();
  while (true) {
    const std::string read = broadcast_text(plugin->mesh().world_group(), world.is_main() ? input.next() : "", 0);
    if (read.empty()) continue;
    const std::string line = read.substr(1);
    if (read == "." || line == "/exit") return;
    if (line == "/reset")
      chat.reset();
    else if (const auto file = after("/image", line))
      chat.attach(*file);
    else if (const auto adapter = after("/adapter", line))
      chat.use_adapter(*adapter);
    else if (!line.empty())
      chat.answer(line);
    ask();
  }
}

}  // namespace

int run_chat(const GenerateArguments& arguments) {
  const Talk talk = prepare_talk(arguments);
  return launch(talk.model.config, [&](World& world) { talk_on_rank(world, talk); });
}

}  // namespace gantry::cli
