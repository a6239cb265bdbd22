// What a disk holds after a power failure, worked out from the journal of file operations that core/io_faults.h writes.
//
// A name (made, changed or removed) is sure to survive once its folder has been synced after it; the bytes of a file,
// once the file has been. What was not synced may or may not survive, in any order, and bytes may come back torn or as
// zeros: that is what the modes choose. Renames are whole or not at all, as on file systems with a journal.
// Read next: tests/faults/disk_walk.cpp.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace trireme::testing {

struct JournalRecord {
  std::int64_t number = 0;  ///< of the operation
  std::string call;
  std::int64_t handle = 0;  ///< number of the operation that opened the file it works on
  std::string path, second;
  std::int64_t offset = 0;  ///< open: its flags; truncate, ftruncate: the new size
  std::string data;         ///< of a write
};
std::vector<JournalRecord> read_journal(const std::filesystem::path& path);

class DiskModel {
 public:
  enum class Mode : std::uint8_t {
    synced,  ///< nothing that was not synced survives
    names,   ///< all names do, and no bytes
    bytes,   ///< all bytes do, and no names
    random   ///< each name and each file by a coin; of bytes the old, the new, a part of the new, or zeros
  };

  /// What is in `before` is on disk, under the path `root`. Operations elsewhere do not matter.
  DiskModel(const std::filesystem::path& before, const std::filesystem::path& root);
  void apply(const JournalRecord& record);
  /// Makes `folder`, which must not exist, what `root` is after a power failure now.
  void write_out(const std::filesystem::path& folder, Mode mode, std::uint64_t seed = 0) const;

 private:
  struct File {
    bool folder = false;
    std::string bytes, synced;              // of a file
    std::map<std::string, std::size_t> in;  // of a folder, by name, as the running system sees it
  };
  struct Edit {
    std::size_t folder;
    std::string name;
    std::size_t file;  // none: removed
    bool synced;
  };
  using Change = std::vector<Edit>;  // whole or not at all
  struct Handle {
    std::size_t file;
    std::size_t at;
  };
  static constexpr std::size_t none = SIZE_MAX;

  void load(const std::filesystem::path& path, std::size_t folder);
  std::size_t make(bool folder);
  std::size_t find(const std::string& path) const;
  bool place(const std::string& path, std::size_t& folder, std::string& name) const;
  void edit(Change change);

  std::filesystem::path root_;
  std::vector<File> files_;
  std::vector<Change> changes_;  // in order
  std::map<std::int64_t, Handle> open_;
};

}  // namespace trireme::testing
