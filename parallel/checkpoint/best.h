// The best checkpoint of a run: that with the lowest validation loss. A file beside the checkpoints says which it is:
//
//   OUT/checkpoints/best.json: {"step":1000,"val_loss":1.8423}
//
// Read next: parallel/checkpoint/folder.h, whose prune() keeps it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

namespace trireme::checkpoint {

struct Best {
  static constexpr const char* file_name = "best.json";

  std::int64_t step = 0;
  double loss = 0;

  /// Nothing if there is no file, if it is not valid, or if the checkpoint that it names is gone.
  static std::optional<Best> read(const std::filesystem::path& checkpoints);
  /// Names the checkpoint of `step` if its loss is lower than that of the best one so far. It must be complete.
  static void update(const std::filesystem::path& checkpoints, std::int64_t step, double loss);
};

}  // namespace trireme::checkpoint
