// RankFile: the snapshot of what a rank writes, in host memory, as the bytes of its safetensors file. Training waits
// only while it is taken; another thread writes it. Read next: parallel/checkpoint/saver.h.
#pragma once

#include <cstdlib>
#include <memory>

#include "parallel/checkpoint/held_tensor.h"
#include "parallel/checkpoint/manifest.h"

namespace trireme::checkpoint {

class RankFile {
 public:
  /// Copies `parts`, none of them empty. Reuses the memory of an earlier snapshot: the sizes seldom change.
  void take(const std::vector<HeldTensor>& parts, int rank);

  bool empty() const { return bytes_ == 0; }  ///< there was nothing to write
  std::uint64_t bytes() const { return bytes_; }
  std::span<const std::byte> content() const { return {memory_.get(), bytes_}; }

  /// Writes the file into `folder`, durably, reads it back, and returns its description: one file, with its pieces.
  /// Makes no collective calls. Throws ExitCode::io, and ExitCode::data when the data read back differs.
  Manifest write(const std::filesystem::path& folder) const;

 private:
  struct Free {
    void operator()(std::byte* memory) const { std::free(memory); }
  };
  void reserve(std::size_t bytes);

  std::unique_ptr<std::byte, Free> memory_;
  std::size_t capacity_ = 0, bytes_ = 0;
  Manifest description_;  // without the checksums
};

}  // namespace trireme::checkpoint
