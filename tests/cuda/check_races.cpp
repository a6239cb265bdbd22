// Switches the race checker on for a whole binary of tests: cuda_race_test and cuda_lab_race_test. So their tests of
// kernels also require that these have no races.
#include <doctest/doctest.h>

#include "cuda/emu/race.h"

namespace check_races {
namespace {

const trireme::cuda::emu::ScopedRaceCheck race_check;

}  // namespace

TEST_CASE("races: the launches of this binary are checked") { CHECK(trireme::cuda::emu::race_checking); }

}  // namespace check_races
