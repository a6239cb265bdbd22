#include "tests/faults/disk_model.h"

#include <fcntl.h>

#include <algorithm>
#include <fstream>
#include <random>
#include <sstream>

#include "core/error.h"

namespace trireme::testing {

namespace fs = std::filesystem;

namespace {

std::string content_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream content;
  content << file.rdbuf();
  return content.str();
}

}  // namespace

std::vector<JournalRecord> read_journal(const fs::path& path) {
  const std::string text = content_of(path);
  std::vector<JournalRecord> records;
  std::size_t at = 0;
  const auto field = [&] {
    const std::size_t end = text.find('\0', at);
    require(end != std::string::npos, "journal", "{} is cut short at byte {}", path.string(), at);
    const std::string value = text.substr(at, end - at);
    at = end + 1;
    return value;
  };
  while (at < text.size()) {
    JournalRecord r;
    r.number = std::stoll(field());
    r.call = field();
    r.handle = std::stoll(field());
    r.path = field();
    r.second = field();
    r.offset = std::stoll(field());
    const auto size = static_cast<std::size_t>(std::stoll(field()));
    ++at;  // the newline
    if (r.call == "write") {
      r.data = text.substr(at, size);
      at += size;
    }
    records.push_back(std::move(r));
  }
  return records;
}

DiskModel::DiskModel(const fs::path& before, const fs::path& root) : root_(root.lexically_normal()) {
  load(before, make(true));
}

std::size_t DiskModel::make(bool folder) {
  files_.push_back({.folder = folder, .bytes = {}, .synced = {}, .in = {}});
  return files_.size() - 1;
}

void DiskModel::load(const fs::path& path, std::size_t folder) {
  for (const fs::directory_entry& entry : fs::directory_iterator(path)) {
    const std::size_t file = make(entry.is_directory());
    edit({{folder, entry.path().filename().string(), file, true}});
    if (entry.is_directory()) {
      load(entry.path(), file);
    } else {
      files_[file].bytes = files_[file].synced = content_of(entry.path());
    }
  }
}

/// Finds the folder and the name of a path. False if the path is not under the root or its folder does not exist.
bool DiskModel::place(const std::string& path, std::size_t& folder, std::string& name) const {
  const fs::path relative = fs::path(path).lexically_normal().lexically_relative(root_);
  if (relative.empty() || *relative.begin() == "..") return false;
  folder = 0;
  name.clear();
  for (const fs::path& part : relative) {
    if (!name.empty()) {
      const auto next = files_[folder].in.find(name);
      if (next == files_[folder].in.end()) return false;
      folder = next->second;
    }
    name = part == "." ? std::string() : part.string();
  }
  return true;
}

std::size_t DiskModel::find(const std::string& path) const {
  std::size_t folder = 0;
  std::string name;
  if (!place(path, folder, name)) return none;
  if (name.empty()) return folder;
  const auto found = files_[folder].in.find(name);
  return found == files_[folder].in.end() ? none : found->second;
}

void DiskModel::edit(Change change) {
  for (const Edit& e : change) {
    if (e.file == none)
      files_[e.folder].in.erase(e.name);
    else
      files_[e.folder].in[e.name] = e.file;
  }
  changes_.push_back(std::move(change));
}

void DiskModel::apply(const JournalRecord& r) {
  std::size_t folder = 0, to_folder = 0;
  std::string name, to;
  const bool here = place(r.path, folder, name);
  const auto handle = open_.find(r.handle);
  if (r.call == "open") {
    std::size_t file = find(r.path);
    if (file == none && here && (r.offset & O_CREAT) != 0) edit({{folder, name, file = make(false), false}});
    if (file != none) open_[r.number] = {file, (r.offset & O_APPEND) != 0 ? files_[file].bytes.size() : 0};
  } else if (r.call == "write" && handle != open_.end()) {
    std::string& bytes = files_[handle->second.file].bytes;
    std::size_t& at = handle->second.at;
    bytes.resize(std::max(bytes.size(), at + r.data.size()));
    bytes.replace(at, r.data.size(), r.data);
    at += r.data.size();
  } else if (r.call == "fsync" && handle != open_.end()) {
    File& file = files_[handle->second.file];
    file.synced = file.bytes;
    for (Change& change : changes_)
      for (Edit& e : change) e.synced = e.synced || e.folder == handle->second.file;
  } else if (r.call == "close") {
    open_.erase(r.handle);
  } else if (r.call == "ftruncate" && handle != open_.end()) {
    files_[handle->second.file].bytes.resize(static_cast<std::size_t>(r.offset));
  } else if (r.call == "truncate" && here) {
    files_[find(r.path)].bytes.resize(static_cast<std::size_t>(r.offset));
  } else if (r.call == "mkdir" && here) {
    edit({{folder, name, make(true), false}});
  } else if ((r.call == "unlink" || r.call == "rmdir") && here) {
    edit({{folder, name, none, false}});
  } else if (r.call == "rename" && here && place(r.second, to_folder, to)) {
    const std::size_t file = find(r.path);
    edit({{folder, name, none, false}, {to_folder, to, file, false}});
  }
}

void DiskModel::write_out(const fs::path& target, Mode mode, std::uint64_t seed) const {
  std::mt19937_64 random(seed);
  std::map<std::size_t, std::map<std::string, std::size_t>> names;  // on disk
  for (const Change& change : changes_) {
    const bool sure = std::all_of(change.begin(), change.end(), [](const Edit& e) { return e.synced; });
    if (!sure && mode != Mode::names && !(mode == Mode::random && random() % 2 == 0)) continue;
    for (const Edit& e : change) {
      if (e.file == none)
        names[e.folder].erase(e.name);
      else
        names[e.folder][e.name] = e.file;
    }
  }
  const auto bytes_of = [&](const File& file) {
    if (mode == Mode::bytes) return file.bytes;
    if (mode != Mode::random || file.bytes == file.synced) return file.synced;
    switch (random() % 4) {
      case 0:
        return file.synced;
      case 1:
        return file.bytes;
      case 2:
        return file.bytes.substr(0, random() % (file.bytes.size() + 1));
      default:
        return std::string(file.bytes.size(), '\0');
    }
  };
  const auto write = [&](const auto& self, const fs::path& path, std::size_t folder) -> void {
    fs::create_directory(path);
    for (const auto& [name, file] : names[folder]) {
      if (files_[file].folder) {
        self(self, path / name, file);
      } else {
        std::ofstream(path / name, std::ios::binary) << bytes_of(files_[file]);
      }
    }
  };
  write(write, target, 0);
}

}  // namespace trireme::testing
