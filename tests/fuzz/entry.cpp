// The function that libFuzzer calls; TRIREME_FUZZ_TARGET names the target.
#include <cstdint>

#include "tests/fuzz/targets.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  trireme::fuzz::TRIREME_FUZZ_TARGET({reinterpret_cast<const char*>(data), size});
  return 0;
}
