// The levels of the processor that a build has kernels for. scripts/portable_check runs this program on each level.
#include "core/cpu/level.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdlib>
#include <string>

using namespace trireme;

TEST_CASE("the level in use is the highest of this processor, or the one that TRIREME_LEVEL names") {
  const std::vector<const cpu::Level*>& levels = cpu::levels();
  REQUIRE_FALSE(levels.empty());
  const char* wanted = std::getenv("TRIREME_LEVEL");
  const std::string expected(wanted != nullptr && *wanted != '\0' ? wanted : levels.back()->name);
  CHECK(cpu::level().name == expected);
  MESSAGE("level: ", std::string(cpu::level().name), ", of ", levels.size());
}

TEST_CASE("every level computes a product") {
  for (const cpu::Level* level : cpu::levels()) {
    CAPTURE(level->name);
    const Tensor a = Tensor::full({3, 5}, 2, DType::f32), b = Tensor::full({5, 7}, 0.5, DType::f32);
    Tensor c = Tensor::zeros({3, 7}, DType::f32);
    level->kernel_table().gemm(a, b, c, {});
    CHECK(std::all_of(c.data<float>(), c.data<float>() + c.count(), [](float x) { return x == 5; }));
  }
}
