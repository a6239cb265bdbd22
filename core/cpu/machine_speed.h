// The functions of core/machine_speed.h, for one level.
#pragma once

#include "core/machine_speed.h"

namespace trireme::cpu {

double level_flops(int team, DType dtype);
MachineSpeed level_speed(int team, DType dtype);

}  // namespace trireme::cpu
