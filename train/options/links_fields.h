// Reads the fields of links in files that may have others too: train/options/links_file.h says which there are.
// Includes nlohmann/json.hpp: include this from .cpp files only.
#pragma once

#include <string>
#include <vector>

#include "data/json_fields.h"
#include "parallel/comm/algorithms/network.h"

namespace trireme {

/// Reads them with JsonFields::read().
class LinksFields {
 public:
  explicit LinksFields(const JsonFields& fields) : fields_(fields) {}
  JsonFields::Readers readers();  ///< they belong to this object
  /// Those that every file has.
  static std::vector<std::string> needed() { return {"ranks_per_node", "within", "between"}; }
  /// What was read. Throws ExitCode::usage for fields that contradict each other.
  comm::Links links();

 private:
  const JsonFields& fields_;
  comm::Links links_;
  std::string topology_ = "fat-tree";
};

}  // namespace trireme
