// The best checkpoint of a run: that with the lowest validation loss. A file beside the checkpoints says which it is:
//
//   OUT/checkpoints/best.json: {"step":1000,"val_loss":1.8423}
//
// A checkpoint whose step was evaluated has its validation loss in its manifest. So the file can be made again, and a
// checkpoint that was saved only because it was the best one can be told from the others when a better one comes.
// Read next: parallel/checkpoint/folder.h, whose prune() keeps the best one.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>

namespace trireme::checkpoint {

/// The validation loss of saved weights.
struct ValidationLoss {
  double loss = 0;
  bool only_best = false;  ///< no other reason to save this step: it goes when there is a better one

  /// Entries of Manifest::run.
  void describe(std::map<std::string, std::string>& run) const;
  /// Nothing if there is no valid loss.
  static std::optional<ValidationLoss> of(const std::map<std::string, std::string>& run);
};

/// Which checkpoint has the lowest validation loss.
struct Best {
  static constexpr const char* file_name = "best.json";

  std::int64_t step = 0;
  double loss = 0;

  /// What the file says, whether or not that checkpoint is there. Throws ExitCode::io if it cannot be read,
  /// ExitCode::data if it is not valid.
  static Best parsed(const std::filesystem::path& file);
  /// Nothing if there is no file, if it is not valid, or if the checkpoint that it names is gone.
  static std::optional<Best> read(const std::filesystem::path& checkpoints);
  /// Names the checkpoint of `step` if its loss is lower than that of the best one so far. It must be complete.
  static void update(const std::filesystem::path& checkpoints, std::int64_t step, double loss);
  /// For a run that goes on from the checkpoint of `step`: it makes later steps again. If the file names a later
  /// checkpoint, or none, it names the best one up to `step` instead; if none of these has a loss, it is removed.
  static void go_back(const std::filesystem::path& checkpoints, std::int64_t step);
};

}  // namespace trireme::checkpoint
