#include "data/json_fields.h"

#include "core/io.h"

namespace trireme {

using nlohmann::json;

std::string JsonFields::text() const {
  try {
    return read_file(path_, read_limits::configuration);
  } catch (const Error& error) { fail(ExitCode::usage, flag_, "{}", error.reason()); }
}

json JsonFields::root(std::string_view text) const {
  try {
    return parse_json(text, path_);
  } catch (const Error& error) { fail(ExitCode::usage, flag_, "{}", error.reason()); }
}

void JsonFields::read(const json& object, const std::string& what, const Readers& readers,
                      const std::vector<std::string>& needed) const {
  if (!object.is_object()) refuse("{} is {}; expected an object", what, shown(object));
  for (const auto& [key, value] : object.items()) {
    const auto reader = readers.find(key);
    if (reader == readers.end()) {
      std::string known;
      for (const auto& [name, unused] : readers) known += (known.empty() ? "" : ", ") + name;
      refuse("{} has a field \"{}\"; expected only {}", what, key, known);
    }
    reader->second(value);
  }
  for (const std::string& key : needed)
    if (!object.contains(key)) refuse("{} has no \"{}\"; expected it", what, key);
}

double JsonFields::number(const json& value, const std::string& what, double least, double most) const {
  if (!value.is_number() || !(value.get<double>() >= least && value.get<double>() <= most))
    refuse("\"{}\" is {}; expected a number from {} to {}", what, shown(value), least, most);
  return value.get<double>();
}

int JsonFields::whole(const json& value, const std::string& what) const {
  constexpr int most = 1 << 20;
  if (!value.is_number_integer() || value.get<double>() < 1 || value.get<double>() > most)
    refuse("\"{}\" has {}; expected whole numbers from 1 to {}", what, shown(value), most);
  return value.get<int>();
}

std::string JsonFields::text(const json& value, const std::string& what, const std::string& expected) const {
  if (!value.is_string()) refuse("\"{}\" is {}; expected {}", what, shown(value), expected);
  return value.get<std::string>();
}

}  // namespace trireme
