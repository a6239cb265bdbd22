#include "parallel/checkpoint/resume_attempts.h"

#include <fmt/format.h>

#include <sstream>

#include "core/io.h"

namespace trireme::checkpoint {

// One line for each: "step_00001000 2". Reading stops at a malformed line: a lost count costs two more attempts.
ResumeAttempts::ResumeAttempts(const std::filesystem::path& checkpoints) : file_(checkpoints / file_name) {
  std::error_code unknown;
  if (!std::filesystem::is_regular_file(file_, unknown)) return;
  std::istringstream lines(read_file(file_, read_limits::note));
  std::string name;
  for (int count = 0; lines >> name >> count;) attempts_[name] = count;
}

int ResumeAttempts::of(const std::filesystem::path& checkpoint) const {
  const auto found = attempts_.find(checkpoint.filename().string());
  return found == attempts_.end() ? 0 : found->second;
}

int ResumeAttempts::begin(const std::filesystem::path& checkpoint) {
  const int before = attempts_[checkpoint.filename().string()]++;
  write();
  return before;
}

void ResumeAttempts::take_back(const std::filesystem::path& checkpoint, int before) {
  if (of(checkpoint) <= before) return;
  attempts_[checkpoint.filename().string()] = before;
  write();
}

void ResumeAttempts::write() {
  std::erase_if(attempts_, [](const auto& entry) { return entry.second == 0; });
  if (attempts_.empty()) return remove_file(file_);  // needs no disk space
  std::string text;
  for (const auto& [name, count] : attempts_) text += fmt::format("{} {}\n", name, count);
  write_file(file_, text);
}

void ResumeAttempts::succeeded(const std::filesystem::path& checkpoint) {
  const std::string name = checkpoint.filename().string();  // names sort as steps do
  for (auto& [other, count] : attempts_)
    if (other <= name) count = 0;
  write();
}

}  // namespace trireme::checkpoint
