// The ways in which bf16 is multiplied (core/cpu/processor.h), one after the other.
#pragma once

#include <doctest/doctest.h>

#include <initializer_list>
#include <vector>

#include "core/cpu/processor.h"

namespace trireme::testing {

/// Runs `body` once for each way in which this processor multiplies bf16, and with tiles in software.
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

/// body(dtype) for each of them, for bf16 with every way of multiplying it.
template <class Body>
void for_each_way(std::initializer_list<DType> dtypes, Body&& body) {
  for (const DType dtype : dtypes) {
    const auto one = [&] { body(dtype); };
    dtype == DType::bf16 ? for_each_unit(one) : one();
  }
}

}  // namespace trireme::testing
