// Profiler: records what a rank did, and when. Kernels (core/profiled_kernels.cpp), modules, collectives, messages,
// moves between placements, pipeline actions, phases and steps leave events here, nested as they were called; it can
// also note the memory in use. train/report/profiling.cpp makes a trace and a table of them.
//
//   const ProfileScope scope("module", "blocks.3.attn");   // until it goes out of scope
//
// A scope records only while the Profiler of the calling thread's rank is on. Otherwise it costs one read of a
// thread-local pointer. Read next: core/profiled_kernels.h, train/report/profiling.h.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/dtype.h"
#include "core/memory.h"

namespace trireme {

/// The least that an event had to compute and to move.
struct ProfileCost {
  double flops = 0;
  double bytes = 0;
  DType dtype = DType::f32;  ///< of the factors: processors have a different peak for each
};

/// What a collective or a message moved, and between whom.
struct ProfileTransfer {
  std::string group;         ///< "tp[pp=0,data=1]"
  std::string site;          ///< CallSite::current() where it was called
  std::int64_t bytes = 0;    ///< of a message; of a collective: of one rank's share
  std::uint64_t number = 0;  ///< of a collective: its place among those of the group, the same on all its ranks
  int peer = -1;             ///< of a message: the world rank at its other end
  int tag = 0;               ///< of a message
};

/// One entry of a profile: what ran, when, and how long.
struct ProfileEvent {
  const char* category;  ///< "kernel", "module", "placement", "collective", "message", "pipeline", "phase" or "step"
  std::string name;      ///< "gemm"
  std::string detail{};  ///< "f32 [256, 768] [768, 3072]", or empty
  int lane = 0;          ///< 0: the rank's own thread; 1: its communication thread
  double begin = 0;      ///< seconds since the profiler was switched on
  double seconds = 0;
  ProfileCost cost{};
  std::optional<ProfileTransfer> transfer{};
};

/// Bytes in use at one moment.
struct MemorySample {
  double seconds = 0;  ///< since the profiler was switched on
  std::array<std::int64_t, memory_categories> bytes{};
};

/// One for each rank, shared by its threads.
class Profiler {
 public:
  using Clock = std::chrono::steady_clock;  ///< what times are measured with

  /// The profiler of the calling thread's rank; null if it has none.
  static const std::shared_ptr<Profiler>& current();
  /// The calling thread's events go to `profiler` from here on, in `lane`.
  static void set_current(std::shared_ptr<Profiler> profiler, int lane = 0);
  /// current() when it is on; otherwise null.
  static Profiler* recording();

  /// Clears the events and starts recording. Times count from `origin`: ranks with one clock take the same.
  void start(Clock::time_point origin = Clock::now());
  void stop();    ///< ends recording; events are kept
  void resume();  ///< after stop(): records again and keeps the events so far
  bool on() const { return on_; }
  std::vector<ProfileEvent> events() const;    ///< in the order in which they ended
  double seconds() const { return seconds_; }  ///< time it was recording, up to the last stop()

  /// From now on, notes the bytes in use on `device` whenever an event of the rank's own thread ends.
  void watch_memory(Device device) { watched_ = device; }
  std::vector<MemorySample> memory() const;  ///< in order; equal neighbours are left out

  void add(ProfileEvent event, Clock::time_point began);  ///< one that began then and ends now

 private:
  mutable std::mutex mutex_;
  std::atomic<bool> on_ = false;
  Clock::time_point start_{}, on_since_{};
  double seconds_ = 0;
  std::vector<ProfileEvent> events_;
  std::optional<Device> watched_;
  std::vector<MemorySample> memory_;
};

/// Records one event of the calling thread, from construction to destruction.
class ProfileScope {
 public:
  ProfileScope(const char* category, std::string_view name) {
    if (Profiler* profiler = Profiler::recording()) begin(profiler, {.category = category, .name = std::string(name)});
  }
  /// Calls `event()` only if the event will be kept.
  template <class F>
  requires std::is_invocable_r_v<ProfileEvent, const F&>
  explicit ProfileScope(const F& event) {
    if (Profiler* profiler = Profiler::recording()) begin(profiler, event());
  }
  ~ProfileScope() {
    if (profiler_ != nullptr) profiler_->add(std::move(event_), began_);
  }
  ProfileScope(const ProfileScope&) = delete;
  ProfileScope& operator=(const ProfileScope&) = delete;

 private:
  void begin(Profiler* profiler, ProfileEvent event) {
    profiler_ = profiler;
    event_ = std::move(event);
    began_ = Profiler::Clock::now();
  }

  Profiler* profiler_ = nullptr;
  ProfileEvent event_{};
  Profiler::Clock::time_point began_{};
};

}  // namespace trireme
