// What a disk holds after a power failure, computed from the journal of file operations that core/io_faults.h writes.
//
// A change of a name (created, replaced or removed) certainly survives once its folder has been synced after it. A
// file's bytes certainly survive once the file has been synced. Unsynced changes may or may not survive, in any order,
// and unsynced bytes may come back torn or as zeros: the mode decides. A rename survives completely or not at all, as
// on a journaling file system.
// Read next: tests/faults/disk_walk.cpp.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace trireme::testing {

struct JournalRecord {
  std::int64_t number = 0;  ///< of this operation
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
    synced,  ///< only synced names and synced bytes survive
    names,   ///< all names survive, but only synced bytes
    bytes,   ///< all bytes survive, but only synced names
    random   ///< random for each unsynced name and each file: old bytes, new bytes, a part of the new ones, or zeros
  };

  /// The disk begins with the contents of `before`, at the path `root`. Operations outside `root` are ignored.
  DiskModel(const std::filesystem::path& before, const std::filesystem::path& root);
  void apply(const JournalRecord& record);
  /// Creates `folder`, which must not exist, with what `root` would hold after a power failure now.
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
  using Change = std::vector<Edit>;  // survives completely or not at all
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
