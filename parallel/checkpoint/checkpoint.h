// Checkpoint: a saved checkpoint, read. Tensors are global: a reader asks for the rectangle it needs, whatever mesh
// wrote the checkpoint. Only the file ranges of that rectangle are read. Their chunks are verified before any data is
// used. Read next: parallel/checkpoint/folder.h (which of several), parallel/checkpoint/compare.h.
#pragma once

#include <functional>
#include <map>
#include <memory>

#include "parallel/checkpoint/chunks.h"
#include "parallel/checkpoint/held_tensor.h"

namespace trireme::checkpoint {

/// Reading fills a cache of files, of which a few are open, so it is not const. Each rank thread needs its own
/// Checkpoint.
/// @snippet training_test.cpp checkpoint
class Checkpoint {
 public:
  /// Reads the manifest of the folder. Throws ExitCode::data when there is none, or it is damaged.
  explicit Checkpoint(std::filesystem::path folder);

  const std::filesystem::path& path() const { return folder_; }
  const Manifest& manifest() const { return manifest_; }
  /// A text of Manifest::run. Throws ExitCode::data if `key` is missing.
  const std::string& run(const std::string& key) const;

  std::vector<std::string> names() const;  ///< of all tensors, sorted
  /// Whether there is such a tensor.
  bool contains(std::string_view name) const { return manifest_.tensors.find(name) != manifest_.tensors.end(); }
  /// Throws ExitCode::data when there is no such tensor.
  const StoredTensor& find(std::string_view name) const;
  /// Throws ExitCode::data when there is no such tensor.
  const Shape& shape(std::string_view name) const { return find(name).shape; }

  /// The whole tensor.
  Tensor read(std::string_view name);
  /// The rectangle that begins at `start` and has the shape of `into`, whose dtype must be the stored one.
  void read(std::string_view name, const Shape& start, Tensor& into);
  /// Fills all tensors that a rank holds. If one is missing or has another shape or dtype, throws ExitCode::data for a
  /// tensor of the model, and ExitCode::usage, with `hint`, for optimizer state.
  void read(const std::vector<HeldTensor>& held, std::string_view hint);

  /// Verifies every chunk of every file, and that the header of each file says the same of its tensors as the manifest.
  /// Throws ExitCode::data at the first that is damaged. `verified` is called after each chunk, with the bytes so far.
  void verify(const std::function<void(std::uint64_t bytes)>& verified = {});
  std::uint64_t bytes_read() const;  ///< from its files, so far

 private:
  /// The reader of a file. The length of its header is checked when it is first used.
  ChunkReader& file(std::size_t index);
  void check_header(std::size_t index);  // compares all of a file's header with the manifest

  std::filesystem::path folder_;
  Manifest manifest_;
  std::vector<std::uint64_t> data_begins_;    // of each file: the end of its header
  std::map<std::size_t, ChunkReader> files_;  // those used so far
  std::vector<std::size_t> open_;             // of them, those that are open, the one used last at the end
};

}  // namespace trireme::checkpoint
