// Simulates a power failure after every file operation of a run, and checks what a restarted run would find:
//
//   fault_disk_walk JOURNAL BEFORE OUT [SEEDS [nosync]]
//
// JOURNAL was written by a run with --out OUT (TRIREME_IO_FAULT, journal=). BEFORE is a copy of OUT's parent folder
// from before that run. After each operation that changes something, the disk may hold different data
// (tests/faults/disk_model.h): three extremes and SEEDS random mixtures (default 2) are tried. On each disk the newest
// checkpoint that verifies must be the last committed one, or a newer one, and the run must be able to go on. Prints
// what it found; the exit code is 1 if a checkpoint was lost, the run could not go on, or nothing was committed at all.
// With `nosync` the disk ignores every sync, so committed checkpoints must be lost.
#include <cstdio>
#include <string>

#include "core/error.h"
#include "core/io.h"
#include "parallel/checkpoint/checkpoint.h"
#include "parallel/checkpoint/folder.h"
#include "tests/faults/disk_model.h"
#include "train/runs/run_folder.h"

namespace fs = std::filesystem;
using namespace trireme;
using testing::DiskModel;
using testing::JournalRecord;

namespace {

/// The step of the newest checkpoint that verifies, as a resumed run would choose it; -1 if there is none.
std::int64_t newest_whole(const fs::path& checkpoints) {
  for (const checkpoint::Candidate& candidate : checkpoint::candidates(checkpoints)) {
    if (candidate.step < 0) continue;
    try {
      checkpoint::Checkpoint(candidate.path).verify();
      return candidate.step;
    } catch (const Error&) {  // try the next one
    }
  }
  return -1;
}

/// What has been committed so far: the step of the last checkpoint whose final name was synced to disk.
class Promise {
 public:
  explicit Promise(fs::path checkpoints) : checkpoints_(std::move(checkpoints)) {}
  void see(const JournalRecord& r) {
    const fs::path to = r.second;
    if (r.call == "rename" && to.parent_path() == checkpoints_ && to.filename().string().starts_with("step_") &&
        !checkpoint::is_unfinished(to))
      named_ = std::stoll(to.filename().string().substr(5));
    if (r.call == "fsync" && fs::path(r.path) == checkpoints_) step_ = std::max(step_, named_);
  }
  std::int64_t step() const { return step_; }

 private:
  fs::path checkpoints_;
  std::int64_t named_ = -1, step_ = -1;
};

struct Count {
  std::int64_t operations = 0, disks = 0, lost = 0, stuck = 0, newest = -1;
};

/// Checks one disk. Creates and removes the folder `work`.
void look(const DiskModel& disk, DiskModel::Mode mode, std::uint64_t seed, const fs::path& work, const fs::path& out,
          std::int64_t promised, Count& count) {
  disk.write_out(work, mode, seed);
  ++count.disks;
  const fs::path run = work / out.filename();
  const std::int64_t found = newest_whole(run / "checkpoints");
  const auto tell = [&](const char* what) {
    std::printf(
        "after operation %lld, mode %d, seed %llu: %s; the newest whole checkpoint is of step %lld, committed %lld\n",
        static_cast<long long>(count.operations), static_cast<int>(mode), static_cast<unsigned long long>(seed), what,
        static_cast<long long>(found), static_cast<long long>(promised));
  };
  if (found < promised && ++count.lost <= 5) tell("lost");
  try {
    RunFolder folder(run, "auto");
    checkpoint::remove_leftovers(run / "checkpoints");
    if (newest_whole(run / "checkpoints") != found && ++count.lost <= 5) tell("removed with the left-overs");
  } catch (const Error& error) {
    if (++count.stuck <= 5) tell(error.what());
  }
  remove_folder(work);
}

Count walk(const std::string& journal, const std::string& before, const fs::path& out, std::uint64_t seeds,
           bool forgets) {
  DiskModel disk(before, fs::absolute(out).parent_path());
  Promise promise(fs::absolute(out) / "checkpoints");
  Count count;
  const fs::path work = fs::path(journal).concat(".disk");
  for (const JournalRecord& record : testing::read_journal(journal)) {
    if (!forgets || record.call != "fsync") disk.apply(record);
    promise.see(record);
    count.operations = record.number;
    if (record.call == "close" || (record.call == "open" && record.path.find(".tmp") == std::string::npos)) continue;
    for (const auto mode : {DiskModel::Mode::synced, DiskModel::Mode::names, DiskModel::Mode::bytes})
      look(disk, mode, 0, work, out, promise.step(), count);
    for (std::uint64_t seed = 1; seed <= seeds; ++seed)
      look(disk, DiskModel::Mode::random, seed, work, out, promise.step(), count);
  }
  count.newest = promise.step();
  return count;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4) {
    std::fputs("usage: fault_disk_walk JOURNAL BEFORE OUT [SEEDS]\n", stderr);
    return 64;
  }
  try {
    const Count count = walk(argv[1], argv[2], argv[3], argc > 4 ? std::stoull(argv[4]) : 2, argc > 5);
    std::printf("operations=%lld disks=%lld lost=%lld stuck=%lld last_step=%lld\n",
                static_cast<long long>(count.operations), static_cast<long long>(count.disks),
                static_cast<long long>(count.lost), static_cast<long long>(count.stuck),
                static_cast<long long>(count.newest));
    return count.lost + count.stuck > 0 || count.newest < 0 ? 1 : 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 70;
  }
}
