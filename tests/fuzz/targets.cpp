#include "targets.h"

#include <cstdint>
#include <nlohmann/json.hpp>
#include <span>
#include <stdexcept>
#include <string>

#include "gantry/checkpoint/format/files.h"
#include "gantry/checkpoint/format/manifest.h"
#include "gantry/checkpoint/format/model_files.h"
#include "gantry/checkpoint/format/pickled_tensors.h"
#include "gantry/checkpoint/format/safetensors_header.h"
#include "gantry/comm/control/frames.h"
#include "gantry/core/config.h"
#include "gantry/core/error.h"
#include "gantry/data/corpus/megatron.h"
#include "gantry/data/images/image_file.h"
#include "gantry/data/images/image_settings.h"
#include "gantry/data/images/orientation.h"
#include "gantry/data/images/resample.h"
#include "gantry/data/jinja/template.h"
#include "gantry/data/tokenizers/json_file.h"
#include "gantry/data/tokenizers/tokenizer_pipeline.h"
#include "gantry/diagnosis/diagnosis.h"
#include "stored_zip.h"

namespace gantry::fuzz {
namespace {

void require(bool holds, const char* what) {
  if (!holds) throw std::logic_error(what);
}

template <class Promised, class Body>
bool accepts(const Body& body) {
  try {
    body();
    return true;
  } catch (const Promised&) {
    return false;
  }
}

bool safetensors(std::string_view bytes) {
  return accepts<InputError>([&] {
    const SafetensorsHeader header = parse_safetensors_header(bytes, "fuzz.safetensors");
    std::uint64_t sum = 0;
    for (const auto& [name, tensor] : header.tensors) {
      require(header.data_start + tensor.end <= bytes.size(), "a tensor ends behind its file");
      require(stored_bytes(*tensor.type, tensor.shape) == tensor.end - tensor.begin, "a tensor has another size");
      sum += tensor.end - tensor.begin;
    }
    require(header.data_start + sum == bytes.size(), "bytes that no tensor has");
  });
}

void require_placed(const SafetensorsHeader& header, std::string_view file) {
  for (const auto& [name, tensor] : header.tensors) {
    require(tensor.begin <= tensor.end && tensor.end <= file.size(), "a tensor outside of its file");
    const auto bytes = stored_bytes(*tensor.type, tensor.shape);
    require(bytes && *bytes <= file.size(), "a tensor larger than its file");
    if (tensor.strides.empty()) require(*bytes == tensor.end - tensor.begin, "a tensor has another size");
    require(tensor.strides.empty() || tensor.strides.size() == tensor.shape.size(), "strides of another shape");
  }
}

bool torch_files(std::string_view bytes) {
  return accepts<InputError>([&] { require_placed(parse_pickled_tensors(bytes, "pytorch_model.bin"), bytes); });
}

// The input is only the pickle. The file around it is valid.
bool pickle(std::string_view bytes) {
  const std::string file = torch_file(bytes);
  return torch_files(file);
}

// The input is the body of a manifest. The correct hash is added, so that the reader gets past this check.
bool manifest(std::string_view bytes) {
  const std::string whole = "{\"hash\": \"" + hash_of(bytes) + "\"," + std::string(bytes);
  return accepts<CheckpointError>([&] {
    const Manifest read = parse_manifest(whole, "manifest.json");
    for (const auto& [key, tensor] : read.tensors)
      for (const auto& slice : tensor.slices) {
        require(read.files.contains(slice.file), "a slice in a file that is not listed");
        require(slice.file.find('/') == std::string::npos, "a file outside of its folder");
      }
    require(parse_manifest(manifest_text(read), "again").tensors.size() == read.tensors.size(), "another manifest");
  });
}

bool model_index(std::string_view bytes) {
  return accepts<InputError>([&] {
    const ModelFiles files = parse_model_index(bytes, "folder/model.safetensors.index.json");
    for (const auto& [name, file] : files.file_of_name)
      require(file.find('/') == std::string::npos, "a shard outside of its folder");
  });
}

bool tokenizer(std::string_view bytes) {
  return accepts<InputError>([&] {
    const TokenizerPipeline loaded(parse_json_text(bytes, "tokenizer.json"), "tokenizer.json", false);
    const TokenIds ids = loaded.encode_surrounded("Hello, world! 12\n\xC3\xA4");
    for (const auto id : ids) require(id >= 0 && id < loaded.size(), "an id outside of the vocabulary");
    loaded.decode(ids);
  });
}

void require_line(const std::string& text) {
  for (const char c : text) require(static_cast<unsigned char>(c) >= 32 && c != 127, "a control character");
}

// A chat template, rendered with a chat that contains a tool call.
bool chat_template(std::string_view bytes) {
  static const auto kChat = jinja::variables_of(nlohmann::ordered_json::parse(
      R"({"messages": [{"role": "system", "content": "Be"}, {"role": "user", "content": "H\u00e9 \n"},
          {"role": "assistant", "content": "<think>a</think>b", "tool_calls": [{"type": "function", "function":
            {"name": "f", "arguments": {"a": 1.5, "b": [null, true]}}}]}, {"role": "tool", "content": "7"}],
          "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}],
          "add_generation_prompt": true, "bos_token": "<s>", "eos_token": "</s>"})"));
  const jinja::Limits few{.steps = 20000, .bytes = 1 << 20, .output = 1 << 16};
  try {
    const auto made = jinja::Template(std::string(bytes))
                          .render(
                              kChat, [](const auto& format) { return format; }, few);
    require(made.text.size() <= few.output, "more than the most");
    for (const auto& [begin, end] : made.generated)
      require(begin <= end && end <= made.text.size(), "outside the text");
    return true;
  } catch (const jinja::RenderError& error) {
    require_line(error.what());
    return false;
  }
}

constexpr std::int64_t kTokenFileBytes = 64;

bool megatron_index(std::string_view bytes) {
  return accepts<InputError>([&] {
    const MegatronIndex index(std::as_bytes(std::span(bytes)), "data.idx", kTokenFileBytes, "data.bin");
    const std::int64_t each = token_type_bytes(index.type());
    for (std::int64_t s = 0; s < index.sequences(); ++s) {
      const std::int64_t begin = index.place(s), length = index.length(s);
      require(length >= 0 && begin >= 0 && begin + length * each <= kTokenFileBytes, "a sequence outside of its file");
    }
    for (std::int64_t d = 0; d <= index.documents(); ++d)
      require(index.document_begin(d) >= 0 && index.document_begin(d) <= index.sequences(), "a document outside");
  });
}

bool yaml(std::string_view bytes) {
  return accepts<ConfigError>([&] {
    const Config config = Config::parse(std::string(bytes), "fuzz.yaml");
    require(Config::parse(config.to_yaml()).to_yaml() == config.to_yaml(),
            "a configuration that reads back as another");
  });
}

// A file of the flight recorder, and the diagnosis of a job that has only this file.
bool flight_record(std::string_view bytes) {
  return accepts<InputError>([&] {
    const recorder::RankRecord read = recorder::parse_record(bytes, "rank-00000.json");
    const std::string text = recorder::to_text(read);
    require(recorder::to_text(recorder::parse_record(text, "again")) == text, "a record that reads back as another");
    const recorder::JobRecords job{.ranks = read.identity.ranks, .records = {{read.identity.rank, read}}};
    const recorder::Diagnosis diagnosis = recorder::diagnose(job, 5);
    require(!diagnosis.sentence.empty(), "nothing to say");
    for (const char c : diagnosis.sentence)
      require(static_cast<unsigned char>(c) >= 32 && c != 127, "a control character");
  });
}

// Decodes and checks the payload of a frame in a job of eight ranks.
void decode_payload(FrameKind kind, std::string_view payload) {
  switch (kind) {
    case FrameKind::hello: {
      const Hello hello = decode_hello(payload);
      require(hello.rank >= 0 && hello.rank < hello.ranks && hello.process >= 0, "a hello of no rank");
      return require_line(hello.host);
    }
    case FrameKind::failure: {
      const JobFailure failure = decode_failure(payload, 8);
      require(failure.rank >= 0 && failure.rank < 8, "a failure of no rank");
      return require_line(failure.cause);
    }
    case FrameKind::late:
    case FrameKind::left:
      for (const int rank : decode_ranks(payload, 8)) require(rank >= 0 && rank < 8, "a rank outside its job");
      return;
    case FrameKind::begun:
    case FrameKind::signal:
    case FrameKind::stopped:
      return require(encode_number(kind, decode_number(payload)).ends_with(payload), "another number");
    case FrameKind::share:
      return require(decode_share(payload, 8).rank < 8, "a share of no rank");
    case FrameKind::elastic:
      return require(decode_policy(payload, 8).replicas.size() == 8, "a policy of other ranks");
    case FrameKind::regroup:
      for (const int rank : decode_members(payload, 8).ranks) require(rank >= 0 && rank < 8, "a rank outside its job");
      return;
    case FrameKind::lost:
      return require(decode_lost(payload, 8).second < 8, "a loss of no rank");
    case FrameKind::command:
      return require(!decode_command(payload).empty(), "a command without a word");
    default:
      return;
  }
}

// The bytes of a control plane connection, which is a sequence of frames.
bool frames(std::string_view bytes) {
  return accepts<FrameError>([&] {
    while (!bytes.empty()) {
      if (bytes.size() < kFrameHeadBytes) throw FrameError("it ends within a head");
      const FrameHead head = decode_head(std::span<const char, kFrameHeadBytes>(bytes.data(), kFrameHeadBytes));
      require(head.payload_bytes <= (head.kind == FrameKind::hello ? kMostPayload : kMostCommand), "a length");
      bytes.remove_prefix(kFrameHeadBytes);
      if (bytes.size() < head.payload_bytes) throw FrameError("it ends within a payload");
      decode_payload(head.kind, bytes.substr(0, head.payload_bytes));
      bytes.remove_prefix(head.payload_bytes);
    }
  });
}

std::uint32_t png_sum(std::string_view bytes) {
  std::uint32_t sum = 0xFFFFFFFF;
  for (const char byte : bytes) {
    sum ^= static_cast<unsigned char>(byte);
    for (int bit = 0; bit < 8; ++bit) sum = (sum >> 1) ^ ((sum & 1) ? 0xEDB88320 : 0);
  }
  return ~sum;
}

// Corrects the checksums of a PNG's chunks, so that the reader gets past this check.
std::string with_true_sums(std::string_view bytes) {
  constexpr std::size_t kSignature = 8, kAround = 12;  // bytes around a chunk's data: length, name, checksum
  std::string whole(bytes);
  if (!is_png(std::as_bytes(std::span(whole)))) return whole;
  for (std::size_t at = kSignature; at + kAround <= whole.size();) {
    std::uint32_t length = 0;
    for (std::size_t i = 0; i < 4; ++i) length = (length << 8) | static_cast<unsigned char>(whole[at + i]);
    if (length > whole.size() - at - kAround) break;
    const std::uint32_t sum = png_sum(std::string_view(whole).substr(at + 4, length + 4));
    for (std::size_t i = 0; i < 4; ++i) whole[at + 8 + length + i] = static_cast<char>(sum >> (24 - 8 * i));
    at += kAround + length;
  }
  return whole;
}

// The limit is small, because the decoder allocates the image size that a header states before it reads the
// pixels.
bool picture(std::string_view bytes) {
  constexpr std::uint64_t kFewPixels = 1 << 16;
  const std::string whole = with_true_sums(bytes);
  try {
    const auto file = std::as_bytes(std::span(whole));
    const Image image = upright(decode_image(file, "fuzz", kFewPixels), orientation_of(file));
    const auto pixels = static_cast<std::uint64_t>(image.width) * static_cast<std::uint64_t>(image.height);
    require(pixels > 0 && pixels <= kFewPixels && image.pixels.size() == 3 * pixels, "another size");
    const Image small = resize_part(image, {0, 0, image.width, image.height}, 5, 3, ImageFilter::kBicubic);
    require(small.pixels.size() == 45, "another size of what was resized");
    return true;
  } catch (const InputError& error) {
    require_line(error.what());
    return false;
  }
}

bool image_processor(std::string_view bytes) {
  return accepts<InputError>([&] {
    const ImageSettings settings = parse_image_settings(bytes, "preprocessor_config.json");
    require(settings.size > 0 && settings.size <= 1 << 14, "a size");
    require(settings.shorter_side == 0 || settings.shorter_side >= settings.size, "a centre beyond its picture");
    for (const double deviation : settings.deviation) require(deviation > 0, "a deviation");
  });
}

constexpr Target kTargets[] = {{"safetensors", safetensors},
                               {"torch_file", torch_files},
                               {"pickle", pickle},
                               {"manifest", manifest},
                               {"model_index", model_index},
                               {"tokenizer", tokenizer},
                               {"chat_template", chat_template},
                               {"idx", megatron_index},
                               {"yaml", yaml},
                               {"recorder", flight_record},
                               {"frames", frames},
                               {"picture", picture},
                               {"image_processor", image_processor}};

}  // namespace

std::span<const Target> targets() { return kTargets; }

}  // namespace gantry::fuzz
