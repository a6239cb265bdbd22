// What this machine can do, measured on the spot: the two sides of a roofline (Williams et al., CACM 2009). A kernel that
// computes F FLOPs and moves B bytes takes at least max(F / flops, B / bytes) seconds.
#pragma once

namespace trireme {

struct MachineSpeed {
  double flops = 0;  ///< FLOP/s of independent f32 multiply-adds in registers
  double bytes = 0;  ///< bytes/s read and written by a copy of more than caches hold
};

/// Of `team` threads of the calling rank at once: the best of a few tries; takes a few tenths of a second.
MachineSpeed measure_machine_speed(int team);
double measure_flops(int team);  ///< the first of the two alone

}  // namespace trireme
