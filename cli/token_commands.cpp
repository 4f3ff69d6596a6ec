#include "gantry/cli/token_commands.h"

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <fstream>
#include <functional>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "gantry/core/base/utf8.h"
#include "gantry/core/error.h"
#include "gantry/core/io/output.h"
#include "gantry/core/io/readable_file.h"
#include "gantry/core/io/strict_json.h"
#include "gantry/data/tokenizers/tokenizer.h"

namespace gantry::cli {
namespace {

constexpr std::size_t kOutputBytes = 1 << 16;  // printed at once

struct TokenOptions {
  std::string tokenizer, file = "-";
  bool omits_specials = false, json = false;
};

// Passes each line and its place, "FILE:LINE", to `convert`, and prints the results.
void convert_lines(const std::string& file,
                   const std::function<std::string(const std::string&, const std::string&)>& convert) {
  std::ifstream opened;
  if (file != "-") {
    opened = open_for_reading(file);
    if (!opened) throw InputError({file, "the file cannot be read", "a text file, or - for the standard input", ""});
  }
  std::istream& input = file == "-" ? std::cin : opened;
  std::string line, output;
  for (std::int64_t number = 1; std::getline(input, line); ++number) {
    output += convert(line, fmt::format("{}:{}", file == "-" ? "standard input" : file, number)) + "\n";
    if (output.size() < kOutputBytes && input.rdbuf()->in_avail() > 0) continue;
    print_output(output);
    output.clear();
  }
  print_output(output);
}

nlohmann::json parse_line(const std::string& line, const std::string& place, const char* expected) {
  nlohmann::json parsed;
  if (const auto fault = parse_strict(line, parsed); !fault.empty()) throw InputError({place, fault, expected, ""});
  return parsed;
}

std::string text_of_line(const std::string& line, const std::string& place, bool is_json) {
  if (!is_json) return line;
  const auto value = parse_line(line, place, "a JSON string");
  if (!value.is_string())
    throw InputError({place, "the line is not a JSON string", "a JSON string, because of --json", ""});
  return value.get<std::string>();
}

TokenIds ids_of_line(const std::string& line, const std::string& place) {
  constexpr const char* kExpected = "a JSON list of token ids, such as [1, 2, 3]";
  const auto value = parse_line(line, place, kExpected);
  TokenIds ids;
  if (!value.is_array()) throw InputError({place, "the line is not a list", kExpected, ""});
  for (const auto& each : value) {
    const auto id = count_in(each);
    if (!id) throw InputError({place, fmt::format("entry {} is not a token id", ids.size()), kExpected, ""});
    ids.push_back(*id);
  }
  return ids;
}

void run_encode(const TokenOptions& options) {
  const auto tokenizer = load_tokenizer(options.tokenizer);
  convert_lines(options.file, [&](const std::string& line, const std::string& place) {
    const std::string text = text_of_line(line, place, options.json);
    const TokenIds ids = options.omits_specials ? tokenizer->encode(text) : tokenizer->encode_surrounded(text);
    return fmt::format("[{}]", fmt::join(ids, ", "));
  });
}

void run_decode(const TokenOptions& options) {
  const auto tokenizer = load_tokenizer(options.tokenizer);
  convert_lines(options.file, [&](const std::string& line, const std::string& place) {
    try {
      const std::string text = valid_utf8(tokenizer->decode(ids_of_line(line, place), options.omits_specials));
      return options.json ? nlohmann::json(text).dump(-1, ' ', true) : text;
    } catch (const InputError& error) {
      if (std::string_view(error.what()).starts_with(place)) throw;
      throw InputError(fmt::format("{}: {}", place, error.what()));
    }
  });
}

// The parts that differ between the commands.
struct TokenCommand {
  const char *name, *description, *specials, *specials_help, *file_help, *json_help;
  void (*run)(const TokenOptions&);
};

constexpr TokenCommand kTokenCommands[] = {
    {"encode", "Print the token ids of each line of a text", "--no-specials",
     "Add no special tokens before and after a text", "Text file with one text per line; -: standard input",
     "Read each line as a JSON string, which may contain line breaks", run_encode},
    {"decode", "Print the text of each line of token ids", "--skip-specials", "Leave out special tokens",
     "File with one JSON list of token ids per line; -: standard input", "Print each text as a JSON string",
     run_decode}};

}  // namespace

void add_token_commands(CLI::App& data) {
  for (const auto& each : kTokenCommands) {
    CLI::App* command = data.add_subcommand(each.name, each.description);
    const auto options = std::make_shared<TokenOptions>();
    command
        ->add_option(
            "--tokenizer", options->tokenizer,
            "tokenizer.json, vocab.json, *.model, *.tiktoken, vocab.txt, a directory with one of them, or bytes")
        ->required()
        ->type_name("PATH");
    command->add_flag(each.specials, options->omits_specials, each.specials_help);
    command->add_flag("--json", options->json, each.json_help);
    command->add_option("file", options->file, each.file_help)->capture_default_str();
    command->callback([options, run = each.run] { run(*options); });
  }
}

}  // namespace gantry::cli
