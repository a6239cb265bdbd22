// Whether a sanitizer watches this test. The test then takes 10 to 50 times as long, and fewer repetitions are enough:
// a sanitizer finds its bugs in any of them.
// Read next: scripts/sanitizers/options.sh.
#pragma once

namespace trireme::testing {

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr bool sanitized = true;
#else
constexpr bool sanitized = false;
#endif

}  // namespace trireme::testing
