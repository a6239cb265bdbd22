// Whether two configurations of a GPT compute the same logits from the same weights, and if not, by which flags they
// differ. Choices of training, such as dropout and the losses of experts, do not count.
// Read next: models/gpt_config.h.
#pragma once

#include <string>
#include <vector>

#include "models/gpt_config.h"

namespace trireme {

/// A choice that differs: a flag, and its value in each.
struct ConfigDifference {
  std::string flag, value, other;  ///< "--heads", "4", "8"; "none" if a configuration does not have it
};

/// The choices in which `config` computes something else than `other`, the context among them.
///
///   for (const ConfigDifference& d : config_differences(asked, saved)) fmt::print("{} {}\n", d.flag, d.value);
std::vector<ConfigDifference> config_differences(const GptConfig& config, const GptConfig& other);

/// The same scaling in the shortest form of nn::parse_rope_scaling(), so that equal scalings are equal texts.
std::string shortest_rope_scaling(const std::string& text);

}  // namespace trireme
