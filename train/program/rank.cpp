#include "train/program/rank.h"

#include "parallel/comm/watch/beacon.h"
#include "train/program/screen.h"

namespace trireme {

void Rank::enter(const DeviceMesh& mesh) {
  where = mesh.where();
  watch::Beacon::current()->set_place(where, mesh.coord(Axis::pp));
}

void Rank::begin_step(std::int64_t number) {
  step = number;
  watch::Beacon::current()->begin_step(number);
  if (!stragglers) return;
  for (const std::string& line : stragglers->look()) Screen::of_process().warning("straggler: " + line);
}

}  // namespace trireme
