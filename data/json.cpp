// Builds values from the events of nlohmann's parser, which handles nesting without recursion, and adds the checks that
// the parser does not make. The parser reads through an iterator that records its position.
#include "data/json.h"

#include <algorithm>
#include <iterator>
#include <utility>
#include <vector>

#include "core/error.h"
#include "data/stand_in.h"
#include "data/utf8.h"

namespace trireme {

namespace {

using nlohmann::json;

constexpr std::size_t longest_run = 1 << 20;  // of blanks, of a number

/// What values cost in memory, allocator included: nlohmann's object is a std::map, its array a std::vector, which may
/// be three times the size of what it holds while it grows.
constexpr std::size_t cost_of_member = 96, cost_of_element = 48, cost_of_container = 64, cost_of_string = 48;

/// The parser's position in the text, now and at the last event.
struct ReadProgress {
  std::size_t at = 0, event = 0;
  const std::filesystem::path* path = nullptr;
  std::size_t first = 0;

  [[noreturn]] void refuse(std::size_t byte, const std::string& what) const {
    fail(ExitCode::data, "json", "{} byte {}: {}", path->string(), first + byte, what);
  }
};

/// Bytes of the text; each step is noted in `progress`.
class Reader {
 public:
  using iterator_category = std::forward_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  Reader() = default;
  Reader(const char* at, ReadProgress* progress) : at_(at), progress_(progress) {}
  const char& operator*() const { return *at_; }
  Reader& operator++() {
    ++at_;
    ++progress_->at;
    return *this;
  }
  Reader operator++(int) {
    const Reader before = *this;
    ++*this;
    return before;
  }
  bool operator==(const Reader& other) const { return at_ == other.at_; }
  bool operator!=(const Reader& other) const { return at_ != other.at_; }

 private:
  const char* at_ = nullptr;
  ReadProgress* progress_ = nullptr;
};

/// Refuses a zero byte, strings without an end, and anything else that is very long. The parser would need much memory
/// to refuse the long ones, because it quotes what it read last.
void check_lengths(std::string_view text, const ReadProgress& progress) {
  if (const std::size_t zero = text.find('\0'); zero != std::string_view::npos)  // the parser would take it for the end
    progress.refuse(zero, "a byte of value 0, which JSON does not allow; expected text");
  for (std::size_t begin = 0, at = 0; at < text.size(); begin = at) {
    if (text[at++] == '"') {
      while (at < text.size() && text[at] != '"') at += text[at] == '\\' ? 2 : 1;
      if (at >= text.size()) progress.refuse(begin, "a string begins here and does not end; expected a closing quote");
      if (++at - begin > json_longest_value)
        progress.refuse(begin,
                        fmt::format("a string of {} bytes; expected at most {}", at - begin, json_longest_value));
    } else {
      while (at < text.size() && text[at] != '"' && std::string_view("{}[],:").find(text[at]) == std::string_view::npos)
        ++at;
      if (at - begin > longest_run)
        progress.refuse(begin, fmt::format("{} bytes without a value; expected at most {}", at - begin, longest_run));
    }
  }
}

/// The parser's message, without the prefix of its exceptions: "[json.exception.parse_error.101] parse error at ...: ".
std::string reason(const json::exception& error) {
  std::string_view text = error.what();
  if (const std::size_t mark = text.find("] "); text.starts_with("[json.") && mark != std::string_view::npos)
    text.remove_prefix(mark + 2);
  constexpr std::string_view place = "parse error at ";
  if (const std::size_t colon = text.find(": "); text.starts_with(place) && colon != std::string_view::npos)
    text.remove_prefix(colon + 2);
  // The last thing read may be a string of megabytes.
  return text.size() <= 200 ? std::string(text) : std::string(text.substr(0, 200)) + "...";
}

class Builder : public nlohmann::json_sax<json> {
 public:
  Builder(ReadProgress& progress, std::string_view text, const JsonTake& take, int deepest)
      : progress_(progress), text_(text), take_(take), deepest_(deepest) {}

  bool null() override { return add(json()); }
  bool boolean(bool value) override { return add(json(value)); }
  bool number_integer(number_integer_t value) override { return add(json(value)); }
  bool number_unsigned(number_unsigned_t value) override { return add(json(value)); }
  bool number_float(number_float_t value, const string_t&) override { return add(json(value)); }
  bool string(string_t& value) override {
    charge(cost_of_string + value.capacity());
    return add(json(std::move(value)));
  }
  bool binary(binary_t&) override { return false; }  // JSON has none

  bool start_object(std::size_t) override { return open(json::object()); }
  bool start_array(std::size_t) override { return open(json::array()); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }

  bool key(string_t& name) override {
    Open& object = open_.back();
    object.key_at = begin_of_value();
    if (object.value.find(name) != object.value.end())
      progress_.refuse(object.key_at,
                       fmt::format("the key {} occurs twice in one object; expected it once", in_quotes(name)));
    charge(cost_of_member + name.size());
    object.key = std::move(name);
    progress_.event = progress_.at;
    return true;
  }

  bool parse_error(std::size_t position, const std::string&, const json::exception& error) override {
    progress_.refuse(std::min(std::max<std::size_t>(position, 1) - 1, text_.size()),
                     fmt::format("not valid JSON: {}; expected standard JSON", reason(error)));
  }

  json finish() { return std::move(result_); }

 private:
  struct Open {
    json value;
    std::string key;         // of the member that is being read
    std::size_t key_at = 0;  // where that begins
    std::size_t begin = 0;
    std::size_t count = 0;    // values so far, including those that were taken
    std::size_t charged = 0;  // before it
  };

  /// The first byte since the last event that belongs to a value.
  std::size_t begin_of_value() const {
    std::size_t at = progress_.event;
    while (at < text_.size() && std::string_view(" \t\r\n,:").find(text_[at]) != std::string_view::npos) ++at;
    return at;
  }

  void charge(std::size_t bytes) {
    used_ += bytes;
    if (used_ > json_most_bytes)
      progress_.refuse(progress_.at,
                       fmt::format("the values so far take more than {} bytes; expected fewer", json_most_bytes));
  }

  bool open(json container) {
    if (open_.size() >= static_cast<std::size_t>(json_most_depth))
      progress_.refuse(begin_of_value(),
                       fmt::format("nested deeper than {} levels; expected at most that", json_most_depth));
    const std::size_t charged = used_;
    charge(cost_of_container);
    open_.push_back({.value = std::move(container), .key = {}, .begin = begin_of_value(), .charged = charged});
    progress_.event = progress_.at;
    return true;
  }

  bool close() {
    Open closed = std::move(open_.back());
    open_.pop_back();
    return add(std::move(closed.value), closed.begin, closed.charged);
  }

  bool add(json value) { return add(std::move(value), begin_of_value(), used_); }

  /// `begin`: of the value; `charged`: what was used before it.
  bool add(json value, std::size_t begin, std::size_t charged) {
    progress_.event = progress_.at;
    if (open_.empty()) {
      result_ = std::move(value);
      return true;
    }
    Open& parent = open_.back();
    const bool in_array = parent.value.is_array();
    const auto depth = static_cast<int>(open_.size());
    const auto key_of = [&](int level) {  // of the member that is open there
      return level < 1 ? std::string_view() : std::string_view(open_[static_cast<std::size_t>(level) - 1].key);
    };
    const JsonPlace place{.parent = depth <= 3 ? key_of(depth - 1) : std::string_view(),
                          .grandparent = depth == 3 ? key_of(1) : std::string_view(),
                          .key = in_array ? std::string_view() : std::string_view(parent.key),
                          .index = parent.count++,
                          .at = progress_.first + (in_array ? begin : parent.key_at),
                          .depth = depth,
                          .in_array = in_array};
    if (take_ && depth <= deepest_ && take_(place, value)) {
      used_ = charged - (in_array ? 0 : cost_of_member + parent.key.size());
    } else if (in_array) {
      charge(cost_of_element);
      parent.value.push_back(std::move(value));
    } else {
      parent.value.emplace(std::move(parent.key), std::move(value));
    }
    return true;
  }

  ReadProgress& progress_;
  std::string_view text_;
  const JsonTake& take_;
  int deepest_;
  std::vector<Open> open_;
  std::size_t used_ = 0;
  json result_;
};

}  // namespace

json parse_json(std::string_view text, const std::filesystem::path& path, const JsonTake& take, std::size_t first,
                int deepest) {
  refuse_stand_in(text, path);
  ReadProgress progress{.at = 0, .event = 0, .path = &path, .first = first};
  Builder builder(progress, text, take, deepest);
  if (text.find_first_not_of(" \t\r\n") == std::string_view::npos)
    progress.refuse(0, fmt::format("not valid JSON: {}; expected a value",
                                   text.empty() ? "it is empty (0 bytes)" : "it holds nothing but blanks"));
  check_lengths(text, progress);
  const char* begin = text.data();
  json::sax_parse(Reader(begin, &progress), Reader(begin + text.size(), &progress), &builder);
  return builder.finish();
}

std::int64_t json_count(const nlohmann::json& json, const char* key, const std::filesystem::path& path) {
  constexpr std::uint64_t most = std::uint64_t{1} << 56;
  if (!json.contains(key) || !json[key].is_number_unsigned() || json[key].get<std::uint64_t>() > most)
    fail(ExitCode::data, "checkpoint", "{}: '{}' is {}; expected a whole number, 0 to 2^56", path.string(), key,
         json.contains(key) ? shown(json[key]) : "missing");
  return json[key].get<std::int64_t>();
}

std::string shown(const json& value) {
  const std::string text = value.dump(-1, ' ', false, json::error_handler_t::replace);
  constexpr std::size_t most = 80;
  return text.size() > most ? text.substr(0, most) + "..." : text;
}

}  // namespace trireme
