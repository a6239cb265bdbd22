// What tests of `run` share: jobs that are scripts, and the incidents that `run` notes.
#pragma once

#include <fmt/core.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/cli/support.h"

namespace trireme::testing {

/// Writes a job, a bash script, and returns its path. The job appends its restart number and its arguments to the file
/// `starts`, then runs `body`, in which $n is the restart number.
inline std::string write_job(const Workplace& work, const std::string& body, const std::string& name = "job") {
  const std::string path = work.path(name);
  std::ofstream(path) << "#!/bin/bash\nn=$TRIREME_RESTARTS\necho \"$n $*\" >>" << work.path("starts") << "\n"
                      << body << "\n";
  std::filesystem::permissions(path, std::filesystem::perms::owner_all);
  return path;
}

inline const std::string fast = "--pause 0.01 --grace 0.1 ";

/// Runs `run` on the job, with the folder `out` as --out.
inline Result supervise(const Workplace& work, const std::string& job, const std::string& flags = "") {
  return run("run", fmt::format("{} {} -- {} --out {}", fast, flags, job, work.path("out")));
}

inline std::vector<nlohmann::json> incidents(const Workplace& work) {
  std::vector<nlohmann::json> lines;
  std::ifstream file(work.path("out/incidents.jsonl"));
  for (std::string line; std::getline(file, line);) lines.push_back(nlohmann::json::parse(line));
  return lines;
}

}  // namespace trireme::testing
