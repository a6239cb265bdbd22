// What the program is doing, for messages about ranks that diverge or stop: "blocks.3.attn.qkv", "backward of
// blocks.3.attn.qkv". Scopes nest; the innermost names the call. Each thread, so each rank, has its own; the other
// ranks see it on this rank's page (parallel/comm/watch/page.h).
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "core/profile.h"

namespace trireme {

class CallSite {
 public:
  /// `name` must outlive the scope.
  explicit CallSite(std::string_view name) : event_("module", name), previous_(enter(name)) {}
  ~CallSite() { enter(previous_); }
  CallSite(const CallSite&) = delete;
  CallSite& operator=(const CallSite&) = delete;

  static std::string_view current();

 private:
  /// Also shows it to the other ranks; returns the previous one. In parallel/comm/watch/beacon.cpp.
  static std::string_view enter(std::string_view name);

  ProfileScope event_;
  std::string_view previous_;
};

}  // namespace trireme
