#include "models/settings.h"

#include <algorithm>

#include "data/utf8.h"

namespace trireme {

std::string flag_of(const std::string& key) {
  std::string flag = "--" + key;
  std::replace(flag.begin(), flag.end(), '_', '-');
  return flag;
}

std::string setting_text(const nlohmann::json& value) {
  if (value.is_boolean()) return value.get<bool>() ? "on" : "off";
  return value.is_string() ? safe_text(value.get<std::string>()) : shown(value);
}

}  // namespace trireme
