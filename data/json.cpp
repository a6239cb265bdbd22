// nlohmann's parser with the checks it does not make by itself, in its per-value callback.
#include "data/json.h"

#include <set>
#include <string>
#include <vector>

#include "core/error.h"

namespace trireme {

namespace {

using nlohmann::json;

constexpr int kMaxDepth = 64;

/// Watches the parse. The keys seen so far are kept per open object, innermost last.
class Watch {
 public:
  Watch(const std::filesystem::path& path, std::size_t most_values) : path_(path), most_values_(most_values) {}

  bool operator()(int depth, json::parse_event_t event, json& value) {
    if (depth > kMaxDepth) fail(ExitCode::data, "json", "{}: nested deeper than {} levels", path_.string(), kMaxDepth);
    if (++values_ > most_values_)
      fail(ExitCode::data, "json", "{}: more than {} values, which no file of ours has", path_.string(), most_values_);
    if (event == json::parse_event_t::object_start) keys_.emplace_back();
    if (event == json::parse_event_t::object_end) keys_.pop_back();
    if (event == json::parse_event_t::key && !keys_.back().insert(value.get<std::string>()).second)
      fail(ExitCode::data, "json", "{}: the key \"{}\" occurs twice in one object", path_.string(),
           value.get<std::string>());
    return true;
  }

 private:
  const std::filesystem::path& path_;
  std::size_t most_values_, values_ = 0;
  std::vector<std::set<std::string>> keys_;
};

/// What the parser says, without the mark of its exceptions: "[json.exception.parse_error.101] parse error at ...: ".
std::string reason(const json::exception& error) {
  std::string_view text = error.what();
  if (const std::size_t mark = text.find("] "); text.starts_with("[json.") && mark != std::string_view::npos)
    text.remove_prefix(mark + 2);
  constexpr std::string_view place = "parse error at ";
  if (const std::size_t colon = text.find(": "); text.starts_with(place) && colon != std::string_view::npos)
    text.remove_prefix(colon + 2);
  return std::string(text);
}

}  // namespace

json parse_json(std::string_view text, const std::filesystem::path& path, std::size_t most_values) {
  Watch watch(path, most_values);
  try {
    return json::parse(text,
                       [&](int depth, json::parse_event_t event, json& value) { return watch(depth, event, value); });
  } catch (const json::parse_error& error) {
    fail(ExitCode::data, "json", "{}: not valid JSON at byte {} of {}: {}", path.string(), error.byte, text.size(),
         reason(error));
  } catch (const json::exception& error) {  // a number out of range, text that is not UTF-8
    fail(ExitCode::data, "json", "{}: not valid JSON: {}", path.string(), reason(error));
  }
}

}  // namespace trireme
