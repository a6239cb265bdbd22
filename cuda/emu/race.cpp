// What the race checker knows of threads and asynchronous operations, and how it compares an access with earlier ones.
// See cuda/emu/race.h. Actors of a block of T threads: 0 to T - 1 threads; T on, the cp.async of each; 2T on, the TMA
// stores of each, as far as they read shared memory; 3T, all stores into global memory, which nothing waits for; then
// the wgmma of each warp group; then an actor for each mbarrier: the TMA loads that report to it, one step a phase.
// The actors of the next block of the cluster follow.
#include "cuda/emu/race.h"

#include <utility>

#include "core/error.h"

namespace trireme::cuda::emu {

RaceChecker::RaceChecker(Block& block, RaceLaunch& launch, std::uint32_t block_index)
    : block_(block),
      launch_(launch),
      block_index_(block_index),
      first_block_(block_index - static_cast<std::uint32_t>(block.rank())),
      threads_(static_cast<std::size_t>(block.threads())),
      stacks_(block.stack_of(block.fiber(0)) - Stacks::kGuard),
      first_actor_(static_cast<std::size_t>(block.rank()) * actors_of_block()),
      barriers_(16),
      shared_(Block::kSharedSpan) {
  const auto nothing = std::make_shared<const Knowledge>();
  for (Thread& thread : threads_) thread.past = nothing;
}

// ---- what orders accesses -------------------------------------------------------------------------------------------

/// Adds all that a thread knows, and begins the thread's next step: its later actions are not included.
void RaceChecker::gather(Gathering& gathering, const Fiber& fiber) {
  Thread& thread = thread_of(fiber);
  if (std::find(gathering.merged.begin(), gathering.merged.end(), thread.past) == gathering.merged.end()) {
    join(gathering.known, *thread.past);
    gathering.merged.push_back(thread.past);
  }
  Steps& seen = gathering.known.seen;
  raise(seen, actor_of(fiber), thread.own++);
  raise(seen, copies_of(fiber), fiber.copies.waited);
  raise(seen, stores_of(fiber), fiber.tma_stores.waited);
  raise(seen, wgmma_of(fiber), block_.wgmma_of(fiber).waited);
}

void RaceChecker::let_go(Gathering& gathering) {
  const auto known = std::make_shared<const Knowledge>(std::move(gathering.known));
  for (const int index : gathering.waiting) threads_[static_cast<std::size_t>(index)].past = known;
  gathering = {};
}

void RaceChecker::barrier_arrive(int id, bool waits) {
  Gathering& barrier = barriers_[static_cast<std::size_t>(id)];
  gather(barrier, self());
  if (waits) barrier.waiting.push_back(self().index);
}

void RaceChecker::barrier_complete(int id) { let_go(barriers_[static_cast<std::size_t>(id)]); }

void RaceChecker::sync_warp(std::uint32_t mask) {
  Gathering lanes;
  const int first = self().index / 32 * 32;
  for (int lane = 0; lane < 32; ++lane) {
    if (((mask >> lane) & 1U) == 0) continue;
    gather(lanes, block_.fiber(first + lane));
    lanes.waiting.push_back(first + lane);
  }
  let_go(lanes);
}

void RaceChecker::proxy_fence() {
  Thread& thread = thread_of(self());
  Gathering mine;
  gather(mine, self());
  join(mine.known.fenced, mine.known.seen);
  thread.past = std::make_shared<const Knowledge>(std::move(mine.known));
}

RaceChecker::MbarrierState& RaceChecker::state_of(const std::uint64_t* word) {
  const std::size_t actor = stored() + 1 + groups() + mbarriers_.size();
  require(mbarriers_.size() < kMostMbarriers, "emu", "a block with more mbarriers than {}; raise kMostMbarriers",
          kMostMbarriers);
  return mbarriers_.try_emplace(word, MbarrierState{actor}).first->second;
}

void RaceChecker::mbarrier_arrive(RaceChecker& owner, const std::uint64_t* word, const void* pc) {
  const View view = view_of(self(), false);
  owner.touch(view, make(actor_of(self()), view.own, AccessKind::mbarrier_use, self(), pc), word, 8);
  gather(owner.state_of(word).arriving, self());
}

void RaceChecker::mbarrier_complete(const std::uint64_t* word) {
  MbarrierState& state = state_of(word);
  Knowledge known = std::move(state.arriving.known);
  state.arriving = {};
  if (state.released != nullptr) join(known, *state.released);
  raise(known.seen, state.actor, ++state.phases);
  state.released = std::make_shared<const Knowledge>(std::move(known));
}

void RaceChecker::mbarrier_passed(const std::uint64_t* word) {
  const std::shared_ptr<const Knowledge>& released = state_of(word).released;
  if (released == nullptr) return;  // passed at once, before the first phase
  Thread& thread = thread_of(self());
  if (last_past_ != thread.past || last_released_ != released) {
    Knowledge known = *thread.past;
    join(known, *released);
    last_past_ = thread.past;
    last_released_ = released;
    last_joined_ = std::make_shared<const Knowledge>(std::move(known));
  }
  thread.past = last_joined_;
}

void RaceChecker::cluster_barrier(const std::vector<RaceChecker*>& blocks) {
  Gathering all;
  for (RaceChecker* const checker : blocks)
    for (int i = 0; i < checker->block_.threads(); ++i) checker->gather(all, checker->block_.fiber(i));
  const auto known = std::make_shared<const Knowledge>(std::move(all.known));
  for (RaceChecker* const checker : blocks)
    for (Thread& thread : checker->threads_) thread.past = known;
}

// ---- who knows what -------------------------------------------------------------------------------------------------

RaceChecker::View RaceChecker::view_of(const Fiber& fiber, bool async_proxy) {
  const Thread& thread = thread_of(fiber);
  return {this, thread.past.get(), &fiber, actor_of(fiber), thread.own, async_proxy};
}

Step RaceChecker::seen(const View& view, std::size_t actor) const {
  if (actor == view.actor) return view.own;
  if (view.fiber != nullptr) {
    const RaceChecker& its = *view.of;
    if (actor == its.copies_of(*view.fiber)) return view.fiber->copies.waited;
    if (actor == its.stores_of(*view.fiber)) return view.fiber->tma_stores.waited;
    if (actor == its.wgmma_of(*view.fiber)) return its.block_.wgmma_of(*view.fiber).waited;
  }
  return step_of(view.past->seen, actor);
}

/// TMA and wgmma see the writes of threads and cp.async only after a fence.
bool RaceChecker::needs_fence(const View& view, const Access& earlier) const {
  return view.async_proxy && earlier.actor % actors_of_block() < 2 * threads() &&
         writes(static_cast<AccessKind>(earlier.kind));
}

/// Steps of different clusters are unordered.
bool RaceChecker::in_cluster(std::uint32_t block) const {
  return block - first_block_ < static_cast<std::uint32_t>(block_.shape().cluster);
}

bool RaceChecker::ordered(const View& view, const Access& earlier) const {
  if (!in_cluster(earlier.block)) return false;
  if (needs_fence(view, earlier)) return earlier.step <= step_of(view.past->fenced, earlier.actor);
  return earlier.step <= seen(view, earlier.actor);
}

// ---- accesses -------------------------------------------------------------------------------------------------------

Access RaceChecker::make(std::size_t actor, Step step, AccessKind kind, const Fiber& fiber, const void* pc) const {
  Access access;
  access.pc = program_offset(pc);
  access.step = step;
  access.block = block_index_;
  access.actor = static_cast<std::uint16_t>(actor);
  access.thread = static_cast<std::uint16_t>(fiber.index & 0x3ff);
  access.kind = static_cast<std::uint16_t>(kind) & 0x3fU;
  return access;
}

void RaceChecker::instrumented(const void* at, std::size_t bytes, AccessKind kind, const void* pc) {
  const auto* const address = static_cast<const std::byte*>(at);
  if (address >= stacks_ && address < stacks_ + threads() * Stacks::kBytes) return stack_access(kind, at, bytes, pc);
  const View view = view_of(self(), false);
  if (touch(view, make(actor_of(self()), view.own, kind, self(), pc), at, bytes)) ++launch_.instrumented_accesses;
}

void RaceChecker::access_by(const Fiber& fiber, const void* at, std::size_t bytes, AccessKind kind, const void* pc) {
  const View view = view_of(fiber, false);
  touch(view, make(actor_of(fiber), view.own, kind, fiber, pc), at, bytes);
}

void RaceChecker::copy(void* to, const void* from, std::size_t bytes, std::size_t valid, const void* pc) {
  const View view = view_of(self(), false);
  const Step group = self().copies.committed + 1;
  touch(view, make(copies_of(self()), group, AccessKind::copy_target, self(), pc), to, bytes);
  touch(view, make(copies_of(self()), group, AccessKind::copy_source, self(), pc), from, valid);
}

void RaceChecker::tma_load(RaceChecker& owner, const std::uint64_t* word, const void* pc) {
  const View view = view_of(self(), true);
  owner.touch(view, make(actor_of(self()), view.own, AccessKind::mbarrier_use, self(), pc), word, 8);
}

void RaceChecker::tma_load_piece(RaceChecker& owner, const std::uint64_t* word, void* to, const void* from,
                                 std::size_t bytes, const void* pc) {
  const View view = view_of(self(), true);
  const MbarrierState& state = owner.state_of(word);
  owner.touch(view, make(state.actor, state.phases + 1, AccessKind::tma_target, self(), pc), to, bytes);
  if (from != nullptr)
    touch(view, make(state.actor, state.phases + 1, AccessKind::tma_source, self(), pc), from, bytes);
}

void RaceChecker::tma_store_piece(void* to, const void* from, std::size_t bytes, const void* pc) {
  if (to == nullptr) return;
  const View view = view_of(self(), true);
  const Step group = self().tma_stores.committed + 1;
  touch(view, make(stores_of(self()), group, AccessKind::tma_source, self(), pc), from, bytes);
  touch(view, make(stored(), 1, AccessKind::tma_target, self(), pc), to, bytes);
}

void RaceChecker::begin_wgmma() {
  const int first = self().index / 128 * 128;
  group_past_ = thread_of(block_.fiber(first)).past.get();
  const Knowledge* previous = group_past_;
  for (int i = first + 1; i < first + 128; ++i) {
    const Knowledge* const past = thread_of(block_.fiber(i)).past.get();
    if (past == previous) continue;
    if (group_past_ != &group_) group_ = *std::exchange(group_past_, &group_);
    meet(group_, *past);
    previous = past;
  }
}

void RaceChecker::wgmma_operand(const void* at, std::size_t bytes, const void* pc) {
  const std::size_t actor = wgmma_of(self());
  const AsyncGroups& groups = block_.wgmma_of(self());
  const View view = {this, group_past_, nullptr, actor, groups.waited, true};
  touch(view, make(actor, groups.committed + 1, AccessKind::wgmma, self(), pc), at, bytes);
}

bool RaceChecker::touch(const View& view, const Access& access, const void* at, std::size_t bytes) {
  if (bytes == 0) return false;  // a cp.async that only fills with zeros
  const auto* address = static_cast<const std::byte*>(at);
  const std::byte* const shared = block_.shared_at(0);
  if (address >= shared && address < shared + Block::kSharedSpan) {
    const auto offset = static_cast<std::size_t>(address - shared);
    touch_shared(view, access, offset, bytes);
    return true;
  }
  const auto [range, shadow] = launch_.find(address);
  if (range == nullptr) return false;
  touch_global(view, access, *range, *shadow, address, bytes);
  return true;
}

void RaceChecker::touch_global(const View& view, const Access& access, const WatchedRange& range, Shadow& shadow,
                               const std::byte* address, std::size_t bytes) {
  const bool outside = range.outside(address) || range.outside(address + bytes - 1);
  if (outside) report_stray(access, [&] { return range.place_outside(address, bytes); });
  const bool write = writes(static_cast<AccessKind>(access.kind));
  if (write && range.bytes.use == Use::input && !outside)
    report_stray(access, [&] { return range.place(address) + ", which is an input: kernels may only read it"; });
  const bool must_be_written = !write && range.bytes.use == Use::output && !outside;
  const std::size_t first = range.byte_of(address);
  shadow.for_each_cell(first, std::min(bytes, range.bytes.bytes - first),
                       [&](Cell& cell, std::size_t count, std::size_t byte) {
                         const std::byte* const at = range.begin + byte;
                         if (must_be_written && cell.write.kind == 0)
                           report_stray(access, [&] { return range.place(at) + ", which nobody wrote before"; });
                         touch_cells(view, access, {shadow, cell, count}, at);
                       });
}

void RaceChecker::touch_shared(const View& view, const Access& access, std::size_t offset, std::size_t bytes) {
  const std::byte* const at = block_.shared_at(static_cast<std::uint32_t>(offset));
  if (block_.shared_range(offset, bytes) == nullptr)
    report_stray(access, [&] { return block_.shared_place(at) + ", outside every allocation"; });
  const auto kind = static_cast<AccessKind>(access.kind);
  const bool reads = !writes(kind) && kind != AccessKind::mbarrier_use;  // an uninitialised mbarrier reports itself
  shared_.for_each_cell(offset, bytes, [&](Cell& cell, std::size_t count, std::size_t byte) {
    const std::byte* const first = at + (byte - offset);
    if (reads && cell.write.kind == 0)
      report_stray(access, [&] { return block_.shared_place(first) + ", which nobody wrote before"; });
    touch_cells(view, access, {shared_, cell, count}, first);
  });
}

void RaceChecker::touch_cells(const View& view, const Access& access, const EqualCells& cells, const std::byte* at) {
  Cell& cell = cells.cell;
  if (cell.write.kind != 0 && !ordered(view, cell.write)) report(view, cell.write, access, at);
  if (!writes(static_cast<AccessKind>(access.kind))) return add_read(view, access, cells);
  if (cell.read.kind != 0 && !ordered(view, cell.read)) report(view, cell.read, access, at);
  if (cell.more_reads != nullptr) {
    for (const Access& read : cell.more_reads->list)
      if (!ordered(view, read)) report(view, read, access, at);
    cells.shadow.drop_reads(cell, cells.count);
  }
  cell.write = access;
  cell.read = {};
}

/// Of the reads since the last write, keeps only concurrent ones: an access after a read is also after all that
/// happened before that read. A read by another block is concurrent with everything, so one of them is enough.
void RaceChecker::add_read(const View& view, const Access& access, const EqualCells& cells) {
  Cell& cell = cells.cell;
  const auto gone = [&](const Access& read) { return read.actor == access.actor || ordered(view, read); };
  const bool alone = cell.more_reads == nullptr;
  if (cell.read.kind == 0 || (alone && in_cluster(cell.read.block) && gone(cell.read))) {
    cell.read = access;
    return;
  }
  if (!in_cluster(cell.read.block)) return;
  if (cell.read.actor == access.actor) {
    cell.read = access;
    return;
  }
  cells.shadow.own_reads(cell, cells.count);
  std::vector<Access>& list = cell.more_reads->list;
  std::erase_if(list, gone);
  list.push_back(access);
}

void RaceChecker::report(const View& view, const Access& earlier, const Access& access, const std::byte* at) {
  for (const Race& race : launch_.races)
    if (race.earlier.pc == earlier.pc && race.later.pc == access.pc) return;
  if (launch_.races.size() == 4) return;
  const std::byte* const shared = block_.shared_at(0);
  const bool in_shared = at >= shared && at < shared + Block::kSharedSpan;
  const bool only_fence =
      in_cluster(earlier.block) && needs_fence(view, earlier) && earlier.step <= seen(view, earlier.actor);
  launch_.races.push_back(
      {earlier, access, only_fence, in_shared ? block_.shared_place(at) : launch_.find(at).range->place(at)});
}

void RaceChecker::report_stray(const Access& access, const std::function<std::string()>& what) {
  for (const Stray& stray : launch_.strays)
    if (stray.access.pc == access.pc) return;
  if (launch_.strays.size() < 4) launch_.strays.push_back({access, what()});
}

}  // namespace trireme::cuda::emu
