#include "train/program/launcher.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <thread>

#include "core/cores.h"
#include "core/error.h"
#include "parallel/comm/launch_environment.h"
#include "parallel/comm/process_group.h"

namespace trireme {

namespace fs = std::filesystem;

namespace {

/// The value of the first of these environment variables that is set; null if none is.
const char* first_set(std::initializer_list<const char*> names) {
  for (const char* name : names)
    if (const char* value = std::getenv(name)) return value;
  return nullptr;
}

/// True if the launcher has bound this process to cores, which several ranks may share. Otherwise all ranks may use
/// all.
bool bound_by_launcher() { return first_set({"OMPI_MCA_orte_bound_at_launch", "SLURM_CPUS_PER_TASK"}) != nullptr; }

/// Like under_mpi_launcher(), but false instead of an error. For error reports: the environment itself may be wrong.
bool surely_launched() {
  try {
    return under_mpi_launcher();
  } catch (const Error&) { return false; }
}

/// A folder inside the job's folder, which the launcher removes at the end of the job; empty without a launcher. Who
/// creates it is the first. Creation is atomic, and the folder outlives its process, so a rank that starts late still
/// finds it.
fs::path report_folder() {
  const char* job_folder = std::getenv("PMIX_SERVER_TMPDIR");
  if (!surely_launched() || job_folder == nullptr) return {};
  const char* job = std::getenv("PMIX_NAMESPACE");
  return fs::path(job_folder) / fmt::format("trireme-report-{}", job == nullptr ? "" : job);
}

constexpr const char* reported = "reported";  // in it, once the first one has reported

}  // namespace

int launcher_rank() { return launched_rank(process_environment); }

int launcher_ranks() { return under_mpi_launcher() ? mpi_launcher_size() : 0; }

int cores() {
  const int usable = within_quota(static_cast<int>(usable_cores().size()));
  if (!under_mpi_launcher()) return usable;
  const int local = launched_local_ranks(process_environment).value_or(std::max(1, mpi_launcher_size()));
  // A bound rank may share its cores with others (a socket). It therefore gets at most an even part of the machine.
  const int shared = bound_by_launcher() ? within_quota(static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN))) : usable;
  return std::max(1, std::min(usable, shared / local));
}

CorePart core_part(int threads) {
  if (!under_mpi_launcher() || bound_by_launcher()) return {0, threads};
  const int local = launched_local_ranks(process_environment).value_or(std::max(1, mpi_launcher_size())),
            rank = launched_local_rank(process_environment).value_or(launcher_rank());
  return {rank * threads, local * threads};
}

bool first_to_report() {
  static const bool first = [] {
    const fs::path folder = report_folder();
    std::error_code job_is_over;
    return folder.empty() || fs::create_directory(folder, job_is_over);
  }();
  return first;
}

void note_reported() {
  const fs::path folder = report_folder();
  std::error_code job_is_over;
  if (!folder.empty()) fs::create_directory(folder / reported, job_is_over);
}

void await_report() {
  using Clock = std::chrono::steady_clock;
  const fs::path folder = report_folder();
  const auto patience = Clock::now() + std::chrono::seconds(10);
  std::error_code job_is_over;
  while (fs::exists(folder, job_is_over) && !fs::exists(folder / reported, job_is_over) && Clock::now() < patience)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
}

// Reads /proc/N/stat: "N (name) S parent ...". The name may contain any character.
std::optional<pid_t> parent_of(pid_t process) {
  std::ifstream file(fmt::format("/proc/{}/stat", process));
  std::string text;
  std::getline(file, text, '\0');
  const std::size_t name_end = text.rfind(')');
  if (name_end == std::string::npos || name_end + 4 >= text.size()) return std::nullopt;
  return static_cast<pid_t>(std::atol(text.c_str() + name_end + 4));
}

}  // namespace trireme
