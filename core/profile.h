// Profiler: records what a rank did, and when. Kernels (core/profiled_kernels.cpp), modules, collectives, pipeline
// actions and phases leave events here, nested as they were called; train/report/profiling.cpp makes a trace and a
// table of them.
//
//   const ProfileScope scope("module", "blocks.3.attn");   // until it goes out of scope
//
// A scope records only while the Profiler of the calling thread's rank is on. Otherwise it costs one read of a
// thread-local pointer. Read next: core/profiled_kernels.h, train/report/profiling.h.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/dtype.h"

namespace trireme {

/// The least that an event had to compute and to move.
struct ProfileCost {
  double flops = 0;
  double bytes = 0;
  DType dtype = DType::f32;  ///< of the factors: processors have a different peak for each
};

/// One entry of a profile: what ran, when, and how long.
struct ProfileEvent {
  const char* category;  ///< "kernel", "module", "collective", "pipeline" or "phase"
  std::string name;      ///< "gemm"
  std::string detail{};  ///< "f32 [256, 768] [768, 3072]", or empty
  int lane = 0;          ///< 0: the rank's own thread; 1: its communication thread
  double begin = 0;      ///< seconds since the profiler was switched on
  double seconds = 0;
  ProfileCost cost{};
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

  void start();   ///< clears the events and starts recording
  void stop();    ///< ends recording; events are kept
  void resume();  ///< after stop(): records again and keeps the events so far
  bool on() const { return on_; }
  std::vector<ProfileEvent> events() const;    ///< in the order in which they ended
  double seconds() const { return seconds_; }  ///< time it was recording, up to the last stop()

  void add(ProfileEvent event, Clock::time_point began);  ///< one that began then and ends now

 private:
  mutable std::mutex mutex_;
  std::atomic<bool> on_ = false;
  Clock::time_point start_{}, on_since_{};
  double seconds_ = 0;
  std::vector<ProfileEvent> events_;
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
