// What a rank does within a step, and between steps. These names appear in the table of times and in messages about
// late ranks. Read next: train/program/timer.h (times by phase), parallel/comm/watch/beacon.h (the phase that others
// see).
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace trireme {

enum class Phase : std::uint8_t { data, forward, backward, communication, optimizer, evaluation, sampling, saving };
inline constexpr int phases = 8;
std::string_view name(Phase phase);
/// True if a phase is part of training steps; the other phases come between steps.
inline bool in_step(Phase phase) { return phase < Phase::evaluation; }

using PhaseSeconds = std::array<double, phases>;

}  // namespace trireme
