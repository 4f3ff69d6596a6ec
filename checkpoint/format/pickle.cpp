#include "gantry/checkpoint/format/pickle.h"

#include <algorithm>
#include <cstring>
#include <fmt/format.h>
#include <map>
#include <stdexcept>

#include "gantry/checkpoint/format/pickle_globals.h"
#include "gantry/core/error.h"

namespace gantry {
namespace {

// Enough for a model of 100,000 tensors, which has 25 MB and 1,200,000 values.
constexpr std::size_t kMostBytes = std::size_t{1} << 26, kMostValues = std::size_t{1} << 22, kDeepestStack = 1 << 20;

const PickleValue kNone{PickleNone{}}, kTrue{true}, kFalse{false}, kEmptyTuple{PickleTuple{}};

// The machine of pickle protocol 2, without the instructions that look up, import or build objects.
class PickleMachine {
 public:
  PickleMachine(std::string_view text, const std::string& path) : text_(text), path_(path) {}

  Pickle run() {
    if (text_.size() > kMostBytes) refuse(fmt::format("its pickle has {} bytes", text_.size()));
    try {
      while (!step(static_cast<unsigned char>(take(1)[0]))) {
      }
    } catch (const std::invalid_argument& error) {
      refuse(std::string("its pickle has ") + error.what());
    }
    return std::move(pickle_);
  }

 private:
  [[noreturn]] void refuse(const std::string& what) const {
    throw InputError({path_, what, "a mapping of tensors that torch.save has written",
                      "save the model's state dict alone, or convert it to safetensors"});
  }

  std::string_view take(std::size_t bytes) {
    if (bytes > text_.size() - at_) refuse("its pickle ends early");
    at_ += bytes;
    return text_.substr(at_ - bytes, bytes);
  }
  template <class Number>
  Number number() {
    Number value = 0;
    std::memcpy(&value, take(sizeof(Number)).data(), sizeof(Number));
    return value;
  }
  std::string line() {
    const std::size_t end = text_.find('\n', at_);
    if (end == std::string_view::npos) refuse("its pickle ends early");
    std::string found(take(end - at_));
    take(1);
    return found;
  }

  void push(const PickleValue* value) {
    if (stack_.size() >= kDeepestStack) refuse("its pickle has too many values on its stack");
    stack_.push_back(value);
  }
  PickleValue& push_new(PickleValue value) {
    if (pickle_.values.size() >= kMostValues) refuse(fmt::format("its pickle has more than {} values", kMostValues));
    push(&pickle_.values.emplace_back(std::move(value)));
    return pickle_.values.back();
  }
  const PickleValue& top() const {
    if (stack_.size() <= floor()) refuse("its pickle takes more values than it has");
    return *stack_.back();
  }
  std::size_t floor() const { return marks_.empty() ? 0 : marks_.back(); }
  const PickleValue* pop() {
    const PickleValue* value = &top();
    stack_.pop_back();
    return value;
  }
  PickleItems pop_to_mark() {
    if (marks_.empty()) refuse("its pickle has no mark where it needs one");
    PickleItems items(stack_.begin() + static_cast<std::ptrdiff_t>(marks_.back()), stack_.end());
    stack_.resize(marks_.back());
    marks_.pop_back();
    return items;
  }

  void push_tuple(std::size_t count) {
    PickleItems items(count);
    for (std::size_t i = count; i > 0; --i) items[i - 1] = pop();
    push_new({PickleTuple{std::move(items)}});
  }
  void set_items(const PickleItems& items) {
    auto* dict = std::get_if<PickleDict>(&const_cast<PickleValue&>(top()).value);
    if (!dict || items.size() % 2 != 0) refuse("its pickle sets items of something that is not a mapping");
    dict->items.insert(dict->items.end(), items.begin(), items.end());
  }
  void push_global() {
    const std::string module = line(), name = module + "." + line();
    auto known = known_pickle_global(name);
    if (!known) refuse(fmt::format("its pickle uses {}", readable(name)));
    push_new({std::move(*known)});
  }
  static std::string readable(std::string text) {
    std::replace_if(
        text.begin(), text.end(), [](unsigned char c) { return c < 32 || c > 126; }, '?');
    return text.substr(0, 200);
  }
  void push_text(std::size_t bytes) { push_new({std::string(take(bytes))}); }
  void push_storage() {
    const auto* id = pop()->as<PickleTuple>();
    if (!id) refuse("its pickle has a persistent id that is not a tuple");
    push_new({pickle_storage(*id)});
  }
  void call() {
    const auto* arguments = pop()->as<PickleTuple>();
    const auto* global = pop()->as<PickleGlobal>();
    if (!arguments || !global) refuse("its pickle calls something that is not a function");
    push_new(call_pickle_global(*global, *arguments));
  }
  // torch.save keeps the versions of modules as an attribute of the mapping.
  void ignore_attributes() {
    if (!pop()->as<PickleDict>() || !top().as<PickleDict>()) refuse("its pickle sets the state of an object");
  }
  void push_long() {
    const std::size_t bytes = number<std::uint8_t>();
    const std::string_view digits = take(bytes);
    if (bytes > sizeof(std::int64_t)) refuse("its pickle has a number of more than 64 bits");
    std::int64_t value = bytes > 0 && (static_cast<unsigned char>(digits.back()) & 0x80) ? -1 : 0;
    std::memcpy(&value, digits.data(), bytes);
    push_new({value});
  }
  void push_real() {
    const std::string_view stored = take(sizeof(double));  // the highest byte comes first
    std::string turned(stored.rbegin(), stored.rend());
    double value = 0;
    std::memcpy(&value, turned.data(), sizeof(double));
    push_new({value});
  }
  void remember(std::uint32_t index) { memo_[index] = &top(); }
  void recall(std::uint32_t index) {
    const auto found = memo_.find(index);
    if (found == memo_.end()) refuse("its pickle recalls a value that it has not kept");
    push(found->second);
  }

  bool step(unsigned char opcode) {
    switch (opcode) {
      case 0x80:  // PROTO
        if (const auto version = number<std::uint8_t>(); version > 2)
          refuse(fmt::format("its pickle has the protocol {}", version));
        return false;
      case '.':
        pickle_.result = pop();
        return true;
      case '(':
        if (marks_.size() >= kDeepestStack) refuse("its pickle has too many marks");
        marks_.push_back(stack_.size());
        return false;
      case '0':
        pop();
        return false;
      case 'c':
        push_global();
        return false;
      case 'Q':
        push_storage();
        return false;
      case 'R':
        call();
        return false;
      case 'b':
        ignore_attributes();
        return false;
      default:
        step_of_value(opcode);
        return false;
    }
  }

  void step_of_value(unsigned char opcode) {
    switch (opcode) {
      case 'N':
        return push(&kNone);
      case 0x88:
        return push(&kTrue);
      case 0x89:
        return push(&kFalse);
      case 'K':
        return (void)push_new({std::int64_t{number<std::uint8_t>()}});
      case 'M':
        return (void)push_new({std::int64_t{number<std::uint16_t>()}});
      case 'J':
        return (void)push_new({std::int64_t{number<std::int32_t>()}});
      case 0x8a:
        return push_long();
      case 'G':
        return push_real();
      case 'X':
        return push_text(number<std::uint32_t>());
      case ')':
        return push(&kEmptyTuple);
      case 0x85:
      case 0x86:
      case 0x87:
        return push_tuple(opcode - 0x84U);
      case 't':
        return (void)push_new({PickleTuple{pop_to_mark()}});
      case '}':
        return (void)push_new({PickleDict{}});
      default:
        step_of_memory(opcode);
    }
  }

  void step_of_memory(unsigned char opcode) {
    switch (opcode) {
      case 's': {
        const PickleValue* value = pop();
        const PickleValue* key = pop();
        return set_items({key, value});
      }
      case 'u':
        return set_items(pop_to_mark());
      case 'q':
        return remember(number<std::uint8_t>());
      case 'r':
        return remember(number<std::uint32_t>());
      case 'h':
        return recall(number<std::uint8_t>());
      case 'j':
        return recall(number<std::uint32_t>());
      default:
        refuse(fmt::format("its pickle has the opcode 0x{:02x}", opcode));
    }
  }

  std::string_view text_;
  const std::string& path_;
  std::size_t at_ = 0;
  Pickle pickle_;
  PickleItems stack_;
  std::vector<std::size_t> marks_;
  std::map<std::uint32_t, const PickleValue*> memo_;
};

}  // namespace

Pickle parse_pickle(std::string_view text, const std::string& path) { return PickleMachine(text, path).run(); }

}  // namespace gantry
