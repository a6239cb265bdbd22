// Runs tests with every unit that multiplies bf16 (core/cpu/processor.h).
#pragma once

#include <doctest/doctest.h>

#include <initializer_list>
#include <vector>

#include "core/cpu/processor.h"

namespace trireme::testing {

/// Runs `body` once with each bf16 unit of this processor, and once with tiles in software.
template <class Body>
void for_each_unit(Body&& body) {
  std::vector<cpu::Bf16Unit> units = cpu::bf16_units();
  units.push_back(cpu::Bf16Unit::software_tiles);
  const cpu::Bf16Unit before = cpu::bf16_unit();
  for (const cpu::Bf16Unit unit : units) {
    cpu::select_bf16_unit(unit);
    CAPTURE(cpu::name(unit));
    body();
  }
  cpu::select_bf16_unit(before);
}

/// Runs body(dtype) for each dtype; for bf16 once with every unit.
template <class Body>
void for_each_way(std::initializer_list<DType> dtypes, Body&& body) {
  for (const DType dtype : dtypes) {
    const auto one = [&] { body(dtype); };
    dtype == DType::bf16 ? for_each_unit(one) : one();
  }
}

}  // namespace trireme::testing
