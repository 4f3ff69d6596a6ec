#include "gantry/data/jinja/meter.h"

#include <fmt/format.h>

namespace gantry::jinja {
namespace {

constexpr std::size_t kMostTextBytes = std::size_t{64} << 20;
constexpr std::size_t kMostItems = std::size_t{1} << 20;

struct Account {
  bool is_open = false;
  Limits limits;
  std::int64_t steps = 0, bytes = 0;
  int depth = 0;
};

thread_local Account account;

// Whether count * each is above `most`.
bool exceeds(std::size_t count, std::size_t each, std::size_t most) { return each != 0 && count > most / each; }

}  // namespace

Meter::Meter(const Limits& limits) { account = {.is_open = true, .limits = limits}; }
Meter::~Meter() { account = {}; }

void spend_steps(std::size_t steps) {
  if (!account.is_open) return;
  account.steps += static_cast<std::int64_t>(steps);
  if (account.steps > account.limits.steps)
    throw RenderError(fmt::format("the template takes more than {} steps", account.limits.steps));
}

void spend_bytes(std::size_t bytes) {
  if (!account.is_open) return;
  account.bytes += static_cast<std::int64_t>(bytes);
  if (account.bytes > account.limits.bytes)
    throw RenderError(fmt::format("the template makes more than {} bytes of values", account.limits.bytes));
}

void require_text_size(std::size_t count, std::size_t bytes_each) {
  if (exceeds(count, bytes_each, kMostTextBytes))
    throw RenderError(fmt::format("a string of more than {} bytes", kMostTextBytes));
}

void require_list_size(std::size_t count, std::size_t items_each) {
  if (exceeds(count, items_each, kMostItems))
    throw RenderError(fmt::format("a list of more than {} items", kMostItems));
}

Nesting::Nesting() {
  if (account.is_open && account.depth >= account.limits.depth)
    throw RenderError(fmt::format("more than {} nested calls, expressions or values", account.limits.depth));
  ++account.depth;
}

Nesting::~Nesting() { --account.depth; }

}  // namespace gantry::jinja
