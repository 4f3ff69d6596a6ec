#include "gantry/diagnosis/record_reader.h"

#include <algorithm>
#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <nlohmann/json.hpp>

#include "gantry/core/error.h"
#include "gantry/core/io/paths.h"
#include "gantry/core/io/strict_json.h"

namespace gantry::recorder {
namespace {

using Json = nlohmann::json;
namespace fs = std::filesystem;

constexpr std::int64_t kMostRanks = 1 << 20;
constexpr std::size_t kMostDims = 64;
constexpr std::uintmax_t kMostBytes = std::uintmax_t{1} << 30;

// Reads the parts of a document, and rejects it at the first invalid value.
class Reader {
 public:
  explicit Reader(const std::string& path) : path_(path) {}

  RankRecord read(std::string_view text) {
    Json all;
    if (const std::string fault = parse_strict(text, all); !fault.empty()) {
      const std::string like = likeness(text.substr(0, 64));
      refuse(like.empty() ? fault : "it looks like " + like);
    }
    if (!all.is_object() || !all.contains("format") || all["format"] != kFormat)
      refuse("the file is not a record of a rank");
    if (count(all, "version") != kFormatVersion)
      refuse(fmt::format("the file has version {}, but this program reads {}", count(all, "version"), kFormatVersion));
    RankRecord record;
    record.identity = identity(all);
    record.state = name<RankState>(all, "state", 3);
    record.error = string(all, "error");
    record.ended_ns = count(all, "ended_ns");
    record.stopped_from_ns = count(all, "stopped_from_ns");
    record.stopped_until_ns = count(all, "stopped_until_ns");
    record.failure = flag(all, "failure");
    record.reason = string(all, "reason");
    record.written_ns = count(all, "written_ns");
    record.written_utc_ns = count(all, "written_utc_ns");
    record.forgotten = static_cast<std::uint64_t>(count(all, "forgotten"));
    for (const Json& group : list(all, "groups")) record.groups.push_back(read_group(group, record.identity));
    for (const Json& operation : list(all, "operations"))
      record.operations.push_back(read_operation(operation, record));
    return record;
  }

 private:
  [[noreturn]] void refuse(const std::string& what) const {
    throw InputError({path_, what, "a complete file of a flight recorder", "remove it, or let the job write it again"});
  }
  const Json& member(const Json& object, const char* key) const {
    if (!object.is_object() || !object.contains(key)) refuse(fmt::format("the key '{}' is missing", key));
    return object[key];
  }
  std::int64_t count(const Json& object, const char* key, std::int64_t most = std::int64_t{1} << 62) const {
    const auto value = count_in(member(object, key));
    if (!value || *value > most) refuse(fmt::format("'{}' is not a whole number from 0 to {}", key, most));
    return *value;
  }
  int number(const Json& object, const char* key, std::int64_t most) const {
    return static_cast<int>(count(object, key, most));
  }
  int integer(const Json& object, const char* key) const {
    const Json& value = member(object, key);
    constexpr std::int64_t kMost = std::numeric_limits<int>::max();
    if (value.is_number_unsigned() && value.get<std::uint64_t>() <= kMost) return value.get<int>();
    if (value.is_number_integer() && value.get<std::int64_t>() < 0 && value.get<std::int64_t>() >= -kMost)
      return value.get<int>();
    refuse(fmt::format("'{}' is not a number of 32 bits", key));
  }
  bool flag(const Json& object, const char* key) const {
    if (!member(object, key).is_boolean()) refuse(fmt::format("'{}' is neither true nor false", key));
    return object[key].get<bool>();
  }
  std::string string(const Json& object, const char* key) const {
    if (!member(object, key).is_string()) refuse(fmt::format("'{}' is not a string", key));
    // Made safe for terminals.
    return format_error({object[key].get<std::string>(), "", "", ""});
  }
  const Json& list(const Json& object, const char* key) const {
    if (!member(object, key).is_array()) refuse(fmt::format("'{}' is not a list", key));
    return object[key];
  }
  template <class Enum>
  Enum name(const Json& object, const char* key, int values) const {
    const Json& text = member(object, key);
    for (int value = 0; value < values && text.is_string(); ++value)
      if (text.get_ref<const std::string&>() == name_of(static_cast<Enum>(value))) return static_cast<Enum>(value);
    refuse(fmt::format("'{}' has an unknown value", key));
  }

  Identity identity(const Json& all) const {
    Identity identity;
    identity.job = string(all, "job");
    identity.ranks = number(all, "ranks", kMostRanks);
    identity.rank = number(all, "rank", kMostRanks);
    if (identity.rank >= identity.ranks)
      refuse(fmt::format("the file is from rank {} of {} ranks", identity.rank, identity.ranks));
    identity.name = string(all, "name");
    identity.host = string(all, "host");
    identity.process = number(all, "process", std::numeric_limits<int>::max());
    identity.backend = string(all, "backend");
    const Json& timeout = member(all, "timeout_seconds");
    if (!timeout.is_number() || !(timeout.get<double>() >= 0)) refuse("'timeout_seconds' is not a duration");
    identity.timeout_seconds = timeout.get<double>();
    return identity;
  }

  Group read_group(const Json& object, const Identity& identity) const {
    Group group;
    group.label = string(object, "label");
    for (const Json& rank : list(object, "ranks")) {
      const auto value = count_in(rank);
      if (!value || *value >= identity.ranks || (!group.ranks.empty() && *value <= group.ranks.back()))
        refuse(fmt::format("the ranks of a group are not ascending numbers from 0 to {}", identity.ranks - 1));
      group.ranks.push_back(static_cast<int>(*value));
    }
    if (!std::binary_search(group.ranks.begin(), group.ranks.end(), identity.rank))
      refuse(fmt::format("the file has a group without rank {}", identity.rank));
    group.instance = number(object, "instance", 1 << 30);
    group.made = flag(object, "made");
    group.collectives = count(object, "collectives");
    return group;
  }

  Operation read_operation(const Json& object, const RankRecord& record) const {
    Operation operation;
    operation.number = static_cast<std::uint64_t>(count(object, "number"));
    if (operation.number != record.forgotten + record.operations.size())
      refuse(fmt::format("operation {} is at the place of operation {}", operation.number,
                         record.forgotten + record.operations.size()));
    operation.group = number(object, "group", std::numeric_limits<int>::max());
    if (operation.group >= static_cast<int>(record.groups.size()))
      refuse("an operation belongs to a group that is not listed");
    operation.kind = name<Kind>(object, "kind", static_cast<int>(Kind::kReceive) + 1);
    operation.state = name<State>(object, "state", static_cast<int>(State::kRefused) + 1);
    operation.posted_ns = count(object, "posted_ns", record.written_ns);
    if (object.contains("finished_ns")) operation.finished_ns = count(object, "finished_ns", record.written_ns);
    const bool under_way = operation.state == State::kPosted || operation.state == State::kWaiting;
    if (under_way != (operation.finished_ns == 0) || (!under_way && operation.finished_ns < operation.posted_ns))
      refuse(fmt::format("operation {} has times that do not fit its state", operation.number));
    operation.sequence = object.contains("sequence") ? count(object, "sequence") : Operation::kNotCounted;
    const auto& ranks = record.groups[operation.group].ranks;
    if (object.contains("peer")) {
      operation.peer = number(object, "peer", kMostRanks);
      if (!std::binary_search(ranks.begin(), ranks.end(), operation.peer))
        refuse(fmt::format("operation {} has a peer that is not in its group", operation.number));
    }
    if (is_message(operation.kind)) {
      if (operation.peer < 0) refuse(fmt::format("operation {} is a message without a peer", operation.number));
      operation.tag = tag(member(object, "tag"));
    }
    if (object.contains("reduction")) operation.reduction = string(object, "reduction");
    if (object.contains("dtype")) {
      operation.dtype = string(object, "dtype");
      for (const Json& extent : list(object, "shape")) {
        const auto value = count_in(extent);
        if (!value || operation.shape.size() >= kMostDims)
          refuse(fmt::format("operation {} has an invalid shape", operation.number));
        operation.shape.push_back(*value);
      }
    }
    return operation;
  }

  Tag tag(const Json& object) const {
    return {name<Tag::Kind>(object, "kind", 4), integer(object, "stage"), integer(object, "microbatch"),
            integer(object, "entry")};
  }

  const std::string& path_;
};

std::string read_whole(const fs::path& path) {
  std::error_code failure;
  const auto size = fs::file_size(path, failure);
  if (failure) throw InputError({path.string(), failure.message(), "a readable file", ""});
  if (size > kMostBytes)
    throw InputError(
        {path.string(), fmt::format("the file has {} bytes", size), fmt::format("at most {}", kMostBytes), ""});
  std::ifstream file(path, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  if (!file.is_open() || file.bad())
    throw InputError({path.string(), "the file cannot be read", "a readable file", ""});
  return text;
}

std::vector<fs::path> record_files(const fs::path& folder) {
  std::vector<fs::path> paths;
  std::error_code failure;
  for (fs::directory_iterator entry(folder, failure), end; !failure && entry != end; entry.increment(failure)) {
    const std::string name = entry->path().filename().string();
    if (name.starts_with("rank-") && name.ends_with(".json")) paths.push_back(entry->path());
  }
  if (failure) throw InputError({folder.string(), failure.message(), "a directory with rank-*.json", ""});
  std::sort(paths.begin(), paths.end());
  return paths;
}

}  // namespace

RankRecord parse_record(std::string_view text, const std::string& path) { return Reader(path).read(text); }

JobRecords read_folder(const std::string& folder) {
  fs::path place(folder);
  auto paths = record_files(place);
  if (paths.empty() && is_folder(place / "recorder")) paths = record_files(place /= "recorder");
  if (paths.empty())
    throw InputError({place.string(), "there is no file rank-*.json", "the directory that the job's message states",
                      "wait until the job has written it, on failure or on SIGUSR2"});
  std::vector<RankRecord> all;
  for (const auto& path : paths) {
    all.push_back(parse_record(read_whole(path), path.string()));
    if (path.filename() != file_name(all.back().identity.rank))
      throw InputError({path.string(), fmt::format("the file is from rank {}", all.back().identity.rank),
                        "the name " + file_name(all.back().identity.rank), ""});
  }
  const auto last = std::max_element(all.begin(), all.end(), [](const auto& a, const auto& b) {
                      return a.written_utc_ns < b.written_utc_ns;
                    })->identity;
  JobRecords job{.ranks = last.ranks, .records = {}, .other_jobs = 0};
  for (std::size_t i = 0; i < all.size(); ++i) {
    const Identity& who = all[i].identity;
    if (who.job != last.job) {
      ++job.other_jobs;
      continue;
    }
    if (who.ranks != last.ranks)
      throw InputError({paths[i].string(), fmt::format("the file is from a job of {} ranks", who.ranks),
                        fmt::format("{} ranks, as in the other files", last.ranks), ""});
    const int rank = who.rank;
    job.records.emplace(rank, std::move(all[i]));
  }
  return job;
}

}  // namespace gantry::recorder
