#include "models/hugging_face/index.h"

#include "core/error.h"
#include "data/json.h"
#include "data/utf8.h"

namespace trireme::hugging_face {

namespace fs = std::filesystem;
using nlohmann::json;

namespace {

constexpr const char* index_where = "hugging face";

bool is_plain_name(const std::string& name) {
  return !name.empty() && name != "." && name != ".." &&
         name.find_first_of(std::string_view("/\\\0", 3)) == std::string::npos;
}

}  // namespace

std::map<std::string, std::string> parse_index(std::string_view text, const fs::path& path) {
  std::map<std::string, std::string> files;
  bool found = false;
  std::size_t bytes = 0;
  const json object = parse_json(text, path, [&](const JsonPlace& place, json& value) {
    if (place.depth == 1 && place.key == "weight_map") {
      found = value.is_object();
      return false;
    }
    if (place.depth != 2 || place.parent != "weight_map" || place.in_array) return false;
    const std::string name(place.key);
    if (!value.is_string() || !is_plain_name(value.get<std::string>()))
      fail(ExitCode::data, index_where, "{} byte {}: the file of {} is {}; expected a name without folders",
           path.string(), place.at, in_quotes(name), shown(value));
    bytes += name.size() + value.get_ref<const std::string&>().size() + 128;
    if (bytes > json_most_bytes)
      fail(ExitCode::data, index_where,
           "{} byte {}: the entries so far take more than {} bytes of memory; expected fewer", path.string(), place.at,
           json_most_bytes);
    if (!files.emplace(name, value.get<std::string>()).second)
      fail(ExitCode::data, index_where, "{} byte {}: the key {} occurs twice; expected it once", path.string(),
           place.at, in_quotes(name));
    return true;
  });
  if (!object.is_object() || !found || files.empty())
    fail(ExitCode::data, index_where,
         "{}: weight_map is missing, empty or not an object; expected the file of each tensor", path.string());
  return files;
}

}  // namespace trireme::hugging_face
