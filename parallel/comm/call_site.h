// What the program is doing, for the messages of a --verify run: "blocks.3.attn.qkv", "backward of blocks.3.attn.qkv".
// Scopes nest; the innermost names the call. Each thread, so each rank, has its own.
#pragma once

#include <string>
#include <string_view>
#include <utility>

namespace trireme {

class CallSite {
 public:
  /// `name` must outlive the scope.
  explicit CallSite(std::string_view name) : previous_(std::exchange(current_, name)) {}
  ~CallSite() { current_ = previous_; }
  CallSite(const CallSite&) = delete;
  CallSite& operator=(const CallSite&) = delete;

  static std::string_view current() { return current_; }

 private:
  static inline thread_local std::string_view current_ = "the program";
  std::string_view previous_;
};

}  // namespace trireme
