#include "gantry/trainer/stream_places.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <utility>

#include "gantry/core/axis.h"
#include "gantry/core/base/base64.h"
#include "gantry/core/error.h"
#include "gantry/core/io/strict_json.h"

namespace gantry {
namespace {

StreamPlace place_of(const nlohmann::json& stream, const std::string& path) {
  const nlohmann::json number = stream.is_object() ? stream.value("samples", nlohmann::json()) : nlohmann::json();
  const nlohmann::json text = stream.is_object() ? stream.value("state", nlohmann::json()) : nlohmann::json();
  const std::int64_t samples = count_in(number).value_or(-1);
  auto state = text.is_string() ? decode_base64(text.get<std::string>()) : std::nullopt;
  if (samples < 0 || !state)
    throw CheckpointError({path, "the state of a stream is damaged", "", "use another checkpoint"});
  return {.samples = samples, .state = std::move(*state)};
}

}  // namespace

nlohmann::json gather_stream_places(const DataLoader& loader, const ProcessGroupMesh& mesh) {
  nlohmann::json own = nlohmann::json::array();
  for (const auto& [number, place] : loader.place().streams)
    own.push_back({{"samples", place.samples}, {"state", encode_base64(place.state)}});
  std::int64_t samples = 0;
  nlohmann::json all = nlohmann::json::array();
  for (const std::string& text : gather_texts(mesh[axis::kData], own.dump()))
    for (const auto& one : nlohmann::json::parse(text)) {
      samples += one.at("samples").get<std::int64_t>();
      all.push_back(one);
    }
  if (mesh.rank() != 0) return {};
  return {{"samples", samples}, {"streams", std::move(all)}};
}

LoaderPlace stream_places(const CheckpointInfo& info, const DataLoader& loader, std::string& difference) {
  const nlohmann::json data = info.progress.value("data", nlohmann::json::object());
  const nlohmann::json streams = data.is_object() ? data.value("streams", nlohmann::json()) : nlohmann::json();
  LoaderPlace place;
  if (!loader.reads_streams() || !streams.is_array()) {
    difference = loader.reads_streams() ? "the checkpoint was made with a data set, and this run reads streams"
                                        : "the checkpoint was made with streams, and this run reads a data set";
    return place;
  }
  if (static_cast<int>(streams.size()) != loader.streams())
    difference =
        fmt::format("the checkpoint was made with {} streams, and this run has {}", streams.size(), loader.streams());
  for (const auto& one : streams) {
    StreamPlace stream = place_of(one, info.path);
    place.position += stream.samples;
    place.streams[static_cast<int>(place.streams.size())] = std::move(stream);
  }
  return place;
}

}  // namespace gantry
