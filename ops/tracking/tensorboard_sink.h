// --tensorboard on: writes the values of logged steps, validation losses, samples and the configuration into event
// files that TensorBoard shows, in OUT/tensorboard. Every start of the run writes a new file. It begins with a record
// that makes TensorBoard drop the steps that this start makes again; a rollback writes such a record, too. Read next:
// ops/tracking/tensorboard_records.h.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "core/io.h"
#include "ops/tracking/tracker.h"

namespace trireme {

class TensorboardSink : public EventSink {
 public:
  static constexpr const char* folder_name = "tensorboard";

  TensorboardSink() = default;
  ~TensorboardSink() override;  ///< warns if records could not be written
  /// RunBegan creates the file. If that or a later write fails, prints one warning; records then wait for room. If the
  /// file was removed, warns, and begins a new one.
  void receive(const Event& event) override;

 private:
  void begin(const RunBegan& run);
  void open_file();
  void write(const std::string& records);

  std::filesystem::path folder_;      // empty before RunBegan, and if nothing is kept
  std::unique_ptr<AppendFile> file_;  // null if it could not be created
  std::string waiting_;               // records that are not written yet
  bool waits_ = false;                // a write has failed, and that was said
};

/// --tensorboard
class TensorboardTracker final : public Tracker {
 public:
  void declare(Flags& flags) override;
  void validate(const RunOptions& run) const override;
  void add_sink(EventStream& events) override;
  std::pair<std::string, std::string> example() const override { return {"tensorboard", "on"}; }

 private:
  bool on_ = false;
};

}  // namespace trireme
