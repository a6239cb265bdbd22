// Profiler: what a rank did, and when. Kernels (core/profiled_kernels.cpp), modules, collectives, pipeline actions and
// phases leave events here, nested as they were called; train/profiling.cpp makes a trace and a table of them.
//
//   const ProfileScope scope("module", "blocks.3.attn");   // until it goes out of scope
//
// Nothing is recorded, and a scope costs a look at one thread-local pointer, unless the calling thread's rank has a
// Profiler that is on. Read next: core/profiled_kernels.h, train/profiling.h.
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

/// What an event had to compute and to move at least.
struct ProfileCost {
  double flops = 0;
  double bytes = 0;
  DType dtype = DType::f32;  ///< of what is multiplied: processors have a peak for each
};

struct ProfileEvent {
  const char* category;  ///< "kernel", "module", "collective", "pipeline" or "phase"
  std::string name;      ///< "gemm"
  std::string detail{};  ///< "f32 [256, 768] [768, 3072]", or empty
  int lane = 0;          ///< 0: the rank's own thread; 1: its communication thread
  double begin = 0;      ///< seconds since the profiler was switched on
  double seconds = 0;
  ProfileCost cost{};
};

/// Of one rank, whose threads share it.
class Profiler {
 public:
  using Clock = std::chrono::steady_clock;

  /// Of the calling thread's rank; null: it has none.
  static const std::shared_ptr<Profiler>& current();
  /// The calling thread's events go to `profiler` from here on, in `lane`.
  static void set_current(std::shared_ptr<Profiler> profiler, int lane = 0);
  /// current() when it is on; otherwise null.
  static Profiler* recording();

  void start();  ///< forgets what it has, and records
  void stop();
  void go_on();  ///< after stop(): records again, behind what it has
  bool on() const { return on_; }
  std::vector<ProfileEvent> events() const;    ///< in the order in which they ended
  double seconds() const { return seconds_; }  ///< for which it was on, up to the last stop()

  void add(ProfileEvent event, Clock::time_point began);

 private:
  mutable std::mutex mutex_;
  std::atomic<bool> on_ = false;
  Clock::time_point start_{}, on_since_{};
  double seconds_ = 0;
  std::vector<ProfileEvent> events_;
};

/// An event of the calling thread, as long as it lives.
class ProfileScope {
 public:
  ProfileScope(const char* category, std::string_view name) {
    if (Profiler* profiler = Profiler::recording()) begin(profiler, {.category = category, .name = std::string(name)});
  }
  /// `event()` is called only when it will be kept.
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
