// What tests of `run` share: jobs that are scripts, and the incidents that `run` notes.
#pragma once

#include <fmt/core.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/cli/support.h"

namespace trireme::testing {

/// Writes a bash script and returns its path.
inline std::string write_script(const Workplace& work, const std::string& name, const std::string& lines) {
  const std::string path = work.path(name);
  std::ofstream(path) << "#!/bin/bash\n" << lines << "\n";
  std::filesystem::permissions(path, std::filesystem::perms::owner_all);
  return path;
}

/// Writes a job, a bash script, and returns its path. The job appends its restart number and its arguments to the file
/// `starts`, then runs `body`, in which $n is the restart number.
inline std::string write_job(const Workplace& work, const std::string& body, const std::string& name = "job") {
  return write_script(work, name, "n=$TRIREME_RESTARTS\necho \"$n $*\" >>" + work.path("starts") + "\n" + body);
}

inline const std::string fast = "--pause 0.01 --grace 0.1 ";

/// Lines of shell that start `run` with these arguments as $p, with its messages in `log`.
inline std::string started_run(const std::string& arguments, const std::string& log) {
  return started(fmt::format("{}/run {}", TRIREME_BIN, arguments), log);
}
inline std::string exists(const std::string& file) { return "[ -e " + file + " ]"; }
inline std::string has_content(const std::string& file) { return "[ -s " + file + " ]"; }

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
