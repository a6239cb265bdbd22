#include "parallel/comm/threads/world.h"

#include <algorithm>
#include <condition_variable>
#include <numeric>
#include <optional>
#include <thread>

#include "core/parallel_for.h"
#include "parallel/comm/watch/watchdog.h"

namespace trireme {
namespace comm {

void ThreadWorld::fail(std::exception_ptr error) {
  std::vector<std::shared_ptr<GroupState>> waiting;
  {
    const std::scoped_lock lock(mutex_);
    if (!error_) error_ = std::move(error);
    failed_ = true;
    waiting = groups();
  }
  for (const auto& group : waiting) group->wake();
}

void ThreadWorld::end(int world_rank) {
  std::vector<std::shared_ptr<GroupState>> waiting;
  {
    const std::scoped_lock lock(mutex_);
    ended_.push_back(world_rank);
    waiting = groups();
  }
  for (const auto& group : waiting) group->leave(world_rank);
}

std::vector<std::shared_ptr<GroupState>> ThreadWorld::groups() {
  std::vector<std::shared_ptr<GroupState>> living;
  for (const auto& group : groups_) {
    if (auto state = group.lock()) living.push_back(std::move(state));
  }
  return living;
}

std::exception_ptr ThreadWorld::error() const {
  const std::scoped_lock lock(mutex_);
  return error_;
}

std::shared_ptr<GroupState> ThreadWorld::join(const std::vector<int>& members, const std::string& name,
                                              int world_rank) {
  const std::scoped_lock lock(mutex_);
  const Key key(members, name);
  const std::pair<Key, int> instance(key, calls_[{key, world_rank}]++);
  Forming& forming = forming_[instance];
  if (!forming.state) {
    std::erase_if(groups_, [](const auto& group) { return group.expired(); });
    forming.state = std::make_shared<GroupState>(shared_from_this(), members);
    for (const int ended : ended_) forming.state->leave(ended);
    groups_.push_back(forming.state);
  }
  std::shared_ptr<GroupState> state = forming.state;
  if (++forming.joined == static_cast<int>(members.size())) forming_.erase(instance);
  return state;
}

void ThreadWorld::close() {
  decltype(forming_) unfinished;  // destroyed after the lock is released
  const std::scoped_lock lock(mutex_);
  unfinished.swap(forming_);
}

GroupState::GroupState(std::shared_ptr<ThreadWorld> shared_world, std::vector<int> world_ranks)
    : world(std::move(shared_world)),
      members(std::move(world_ranks)),
      barrier(static_cast<int>(members.size()), world->failed()),
      slots(members.size()) {
  for (std::size_t rank = 0; rank < members.size(); ++rank)
    mailboxes.push_back(std::make_unique<Mailbox>(world->failed()));
}

void GroupState::leave(int world_rank) {
  const auto place = std::find(members.begin(), members.end(), world_rank);
  if (place == members.end()) return;
  const auto rank = static_cast<int>(place - members.begin());
  barrier.leave(rank);
  for (const auto& mailbox : mailboxes) mailbox->leave(rank);
}

void GroupState::wake() {
  barrier.wake();
  for (const auto& mailbox : mailboxes) mailbox->wake();
}

}  // namespace comm

namespace {

// How long the other ranks may take to return after one is lost. Then on_lost is called, as the process cannot end by
// itself.
constexpr auto time_to_end = std::chrono::milliseconds(500);

/// Counts the ranks that have returned.
class Returns {
 public:
  explicit Returns(int ranks) : left_(ranks) {}
  void add_one() {
    const std::scoped_lock lock(mutex_);
    --left_;
    changed_.notify_all();
  }
  /// Waits at most `time`; true if all have returned.
  bool all_within(std::chrono::milliseconds time) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, time, [this] { return left_ == 0; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int left_;
};

}  // namespace

void run_thread_ranks(int ranks, int threads_per_rank, const WatchOptions& options,
                      const std::function<void(std::shared_ptr<ProcessGroup>)>& body) {
  require(ranks >= 1 && threads_per_rank >= 1, "run_thread_ranks",
          "{} ranks of {} threads; expected at least one of each", ranks, threads_per_rank);
  require(body != nullptr, "run_thread_ranks", "the function is empty; expected what each rank does");
  require(options.timeout.count() > 0, "run_thread_ranks", "a deadline of {} s; expected more than 0",
          options.timeout.count());
  const auto world = std::make_shared<comm::ThreadWorld>(ranks);
  const auto pages = std::make_shared<watch::RankPages>(ranks);
  Returns returns(ranks);
  std::vector<int> members(static_cast<std::size_t>(ranks));
  std::iota(members.begin(), members.end(), 0);
  std::optional<watch::Watchdog> watchdog;
  if (ranks > 1) {
    const auto on_lost = [&](const std::exception_ptr& error) {
      world->fail(error);
      if (!returns.all_within(time_to_end) && options.on_lost) options.on_lost(error);
    };
    watchdog.emplace(pages, options.timeout, on_lost, std::function<void()>(), options.now);
  }

  const auto run_rank = [&](int rank) {
    const auto beacon = std::make_shared<watch::Beacon>(pages, rank);
    watch::Beacon::set_current(beacon);
    if (watchdog) watchdog->add(beacon);
    try {
      MemoryPool::set_current(std::make_shared<MemoryPool>());
      set_threads(threads_per_rank);
      body(comm::thread_group(world->join(members, "world", rank), "world", rank, members));
      beacon->set_state(watch::RankState::ended);
      world->end(rank);
    } catch (const comm::PeerFailed&) {
      beacon->set_state(watch::RankState::failed);
      world->fail(nullptr);  // the rank that failed reports the error
    } catch (...) {
      beacon->set_state(watch::RankState::failed);
      world->fail(std::current_exception());
    }
    if (watchdog) watchdog->remove(*beacon);
    returns.add_one();
  };
  std::vector<std::thread> threads;
  threads.reserve(static_cast<std::size_t>(ranks));
  try {
    for (int rank = 0; rank < ranks; ++rank) threads.emplace_back(run_rank, rank);
  } catch (...) { world->fail(std::current_exception()); }  // could not start a thread: ends the ranks that wait for it
  for (std::thread& thread : threads) thread.join();
  watchdog.reset();
  world->close();
  if (world->failed())
    std::rethrow_exception(world->error() ? world->error() : std::make_exception_ptr(comm::PeerFailed()));
}

void run_thread_ranks(int ranks, int threads_per_rank, ProcessGroup::Deadline deadline,
                      const std::function<void(std::shared_ptr<ProcessGroup>)>& body) {
  run_thread_ranks(ranks, threads_per_rank, WatchOptions{.timeout = deadline}, body);
}

}  // namespace trireme
