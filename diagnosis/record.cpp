#include "gantry/diagnosis/record.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

namespace gantry::recorder {
namespace {

using OrderedJson = nlohmann::ordered_json;

OrderedJson json_of(const Operation& operation) {
  OrderedJson json = {{"number", operation.number},
                      {"group", operation.group},
                      {"kind", name_of(operation.kind)},
                      {"state", name_of(operation.state)},
                      {"posted_ns", operation.posted_ns}};
  if (operation.finished_ns > 0) json["finished_ns"] = operation.finished_ns;
  if (operation.sequence != Operation::kNotCounted) json["sequence"] = operation.sequence;
  if (operation.peer >= 0) json["peer"] = operation.peer;
  if (is_message(operation.kind))
    json["tag"] = {{"kind", name_of(operation.tag.kind)},
                   {"stage", operation.tag.stage},
                   {"microbatch", operation.tag.microbatch},
                   {"entry", operation.tag.entry}};
  if (!operation.reduction.empty()) json["reduction"] = operation.reduction;
  if (!operation.dtype.empty()) {
    json["dtype"] = operation.dtype;
    json["shape"] = operation.shape;
  }
  return json;
}

OrderedJson json_of(const Group& group) {
  return {{"label", group.label},
          {"ranks", group.ranks},
          {"instance", group.instance},
          {"made", group.made},
          {"collectives", group.collectives}};
}

template <class Items>
OrderedJson list_of(const Items& items) {
  OrderedJson list = OrderedJson::array();
  for (const auto& item : items) list.push_back(json_of(item));
  return list;
}

}  // namespace

const char* name_of(RankState state) {
  static constexpr const char* kNames[] = {"running", "ended", "failed"};
  return kNames[static_cast<int>(state)];
}

std::string describe_tensor(const Operation& operation) {
  if (operation.dtype.empty()) return "nothing";
  return fmt::format("{} [{}]", operation.dtype, fmt::join(operation.shape, ", "));
}

std::string describe(const Operation& operation, const Group& group) {
  if (is_message(operation.kind)) return describe(operation.tag);
  if (operation.kind == Kind::kMakeGroup) return fmt::format("the creation of group '{}'", group.label);
  return fmt::format("{} {} of group '{}'", name_of(operation.kind), operation.sequence, group.label);
}

std::string file_name(int rank) { return fmt::format("rank-{:05}.json", rank); }

std::string to_text(const RankRecord& record) {
  const Identity& who = record.identity;
  const OrderedJson all = {{"format", kFormat},
                           {"version", kFormatVersion},
                           {"job", who.job},
                           {"rank", who.rank},
                           {"ranks", who.ranks},
                           {"name", who.name},
                           {"host", who.host},
                           {"process", who.process},
                           {"backend", who.backend},
                           {"timeout_seconds", who.timeout_seconds},
                           {"state", name_of(record.state)},
                           {"error", record.error},
                           {"ended_ns", record.ended_ns},
                           {"stopped_from_ns", record.stopped_from_ns},
                           {"stopped_until_ns", record.stopped_until_ns},
                           {"failure", record.failure},
                           {"reason", record.reason},
                           {"clock", "CLOCK_MONOTONIC"},
                           {"written_ns", record.written_ns},
                           {"written_utc_ns", record.written_utc_ns},
                           {"forgotten", record.forgotten},
                           {"groups", list_of(record.groups)},
                           {"operations", list_of(record.operations)}};
  return all.dump(-1, ' ', /*ensure_ascii=*/false, OrderedJson::error_handler_t::replace) + "\n";
}

}  // namespace gantry::recorder
