// Shows the fields of a stored configuration to users as the flags that set them.
// Includes nlohmann/json.hpp, which is slow to compile: include this from .cpp files only.
// Read next: models/model.h.
#pragma once

#include <string>

#include "data/json.h"

namespace trireme {

/// "--ffn-width" for "ffn_width".
std::string flag_of(const std::string& key);
/// The value to give that flag: "on", "0.1", "rope".
std::string setting_text(const nlohmann::json& value);

}  // namespace trireme
