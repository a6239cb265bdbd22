// Whether a sanitizer watches this test. It then takes 10 to 50 times as long, and fewer repetitions do: what a
// sanitizer looks for shows in each.
// Read next: scripts/sanitizers/options.sh.
#pragma once

namespace trireme::testing {

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr bool sanitized = true;
#else
constexpr bool sanitized = false;
#endif

}  // namespace trireme::testing
