// Names that users of other programs type, and what the same flag is called here: for the message about an unknown
// flag. Read next: train/options/flags.h.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace trireme {

/// The flags of `known` that other programs call `name`, without dashes: "learning-rate" gives "lr". An underscore is
/// as good as a dash. Empty if there is none.
std::vector<std::string> flags_called(std::string_view name, const std::vector<std::string>& known);

}  // namespace trireme
