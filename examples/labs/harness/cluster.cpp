#include "examples/labs/harness/cluster.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <exception>
#include <map>
#include <mutex>
#include <optional>
#include <semaphore>
#include <thread>
#include <utility>

#include "core/error.h"
#include "parallel/comm/process_group.h"

namespace trireme::labs {

// Who waits for whom is known at every moment, so a deadlock is seen at once, without a clock: all ranks wait or have
// ended, and none of the messages that they wait for has been sent.
struct Mail {
  struct Message {
    Tensor x;
    std::int64_t number;
  };
  struct Box {  // of the messages from one rank to another
    int from, to;
    int task;  // -1: of the ranks' own work
    auto operator<=>(const Box&) const = default;
  };
  explicit Mail(const Cluster& of) : cluster(of), waits(at(of.ranks)) {}

  std::int64_t put(const Box& box, Tensor x) {
    const std::scoped_lock lock(mutex);
    boxes[box].push_back({std::move(x), sent});
    arrived.notify_all();
    return sent++;
  }

  /// `after`: what the receiver computed last.
  Message take(const Box& box, const std::string& after) {
    std::unique_lock lock(mutex);
    auto& wait = waits[at(box.to)];
    while (boxes[box].empty()) {
      wait = {box, after};
      fail_if_stuck();
      if (failed) throw Error(ExitCode::internal, "lab", "another rank has failed");
      arrived.wait(lock);
    }
    wait.reset();
    Message message = std::move(boxes[box].front());
    boxes[box].pop_front();
    return message;
  }

  void end(bool failure) {
    const std::scoped_lock lock(mutex);
    ++ended;
    failed = failed || failure;
    arrived.notify_all();
    if (!failed) fail_if_stuck();
  }

  static int finish(Rank& rank) { return rank.finish(); }
  static Record& record(Rank& rank) { return rank.record_; }

  const Cluster cluster;
  std::mutex mutex;
  std::condition_variable arrived;
  std::map<Box, std::deque<Message>> boxes;
  struct Wait {
    Box box;
    std::string after;
  };
  std::vector<std::optional<Wait>> waits;  // by rank
  std::int64_t sent = 0;
  int ended = 0;
  bool failed = false;
  std::string deadlock;

 private:
  void fail_if_stuck() {
    int waiting = 0;
    std::vector<std::string> who;
    for (const auto& wait : waits) {
      if (!wait) continue;
      if (!boxes[wait->box].empty()) return;
      ++waiting;
      const auto& [from, to, task] = wait->box;
      who.push_back(fmt::format("rank {} waits for a message of rank {}{}{}", to, from,
                                task >= 0 ? fmt::format(" in task {}", task) : "",
                                wait->after.empty() ? "" : fmt::format(" after '{}'", wait->after)));
    }
    if (failed || waiting == 0 || waiting + ended < cluster.ranks) return;
    failed = true;
    const std::string others =
        ended == 0
            ? "; expected a rank to send what another waits for before it waits itself"
            : fmt::format(", and {} of {} ranks have ended; expected a send for every receive", ended, cluster.ranks);
    const auto unread = std::ranges::find_if(boxes, [](const auto& box) { return !box.second.empty(); });
    const std::string message = unread == boxes.end()
                                    ? ""
                                    : fmt::format(". Rank {} has sent a message to rank {}, which does not ask for it",
                                                  unread->first.from, unread->first.to);
    deadlock = fmt::format("a deadlock: {}{}{}", fmt::join(who, ", "), others, message);
    arrived.notify_all();
  }
};

namespace {

std::int64_t total(const Record& record, const std::function<std::int64_t(const Event&)>& of_send) {
  std::int64_t sum = 0;
  const auto count = [&](const Events& events) {
    for (const Event& event : events)
      if (event.kind == Event::Kind::send) sum += of_send(event);
  };
  count(record.main);
  for (const Events& task : record.tasks) count(task);
  return sum;
}

}  // namespace

std::int64_t Record::bytes_sent() const {
  return total(*this, [](const Event& send) { return send.bytes; });
}
std::int64_t Record::messages_sent() const {
  return total(*this, [](const Event&) { return std::int64_t{1}; });
}
std::int64_t Record::bytes_sent_to(int peer) const {
  return total(*this, [&](const Event& send) { return send.peer == peer ? send.bytes : 0; });
}

void Rank::check_peer(std::string_view what, int peer) const {
  require(peer != rank_, what, "rank {}: a message to or from itself; expected another rank", rank_);
  require(peer >= 0 && peer < size_, what,
          "rank {}: there is no rank {} to exchange messages with; "
          "expected another of 0 to {}",
          rank_, peer, size_ - 1);
}

void Rank::check_collective(std::string_view what, const Tensor& x) const {
  require(mail_.cluster.collectives, what,
          "this lab is about what happens inside {}; expected send() and receive() only", what);
  x.require_defined(what);
}

void Rank::send(const Tensor& x, int to) {
  check_peer("send", to);
  x.require_defined("send");
  const Tensor copy = clone(x.detach());
  const std::int64_t number = mail_.put({rank_, to, running_}, copy);
  note({.kind = Event::Kind::send, .peer = to, .bytes = x.bytes(), .message = number});
}

// A task whose turn it is runs in start() up to its first receive, and from there in wait(). So a part of what it reads is
// read as early as possible, and the rest as late as possible: whoever changes it in between, or starts too early, gets a
// wrong sum, and always the same one. The clock lets all of the task begin when it was started.
struct Rank::Task {
  std::binary_semaphore goes_on{0}, has_stopped{0};
  bool begun = false, may_receive = false, abandoned = false, ended = false;
  std::exception_ptr error;
  std::thread thread;
};

namespace {
/// Ends a task that nobody will wait for, because its rank has failed.
struct Abandoned : std::exception {};
}  // namespace

Rank::Rank(Mail& mail, int rank, int size) : mail_(mail), rank_(rank), size_(size) {}

Rank::~Rank() {
  for (const auto& task : tasks_) {
    if (!task->ended) {
      task->abandoned = true;
      task->goes_on.release();
    }
    task->thread.join();
  }
}

Tensor Rank::receive(int from) {
  check_peer("receive", from);
  if (running_ >= 0 && !tasks_[at(running_)]->may_receive) {
    Task& task = *tasks_[at(running_)];
    task.has_stopped.release();
    task.goes_on.acquire();
    if (task.abandoned) throw Abandoned{};
  }
  const auto computed =
      std::ranges::find(record_.main.rbegin(), record_.main.rend(), Event::Kind::compute, &Event::kind);
  const std::string after = computed == record_.main.rend() ? "" : computed->what;
  Mail::Message message = mail_.take({from, rank_, running_}, after);
  note({.kind = Event::Kind::receive, .peer = from, .bytes = message.x.bytes(), .message = message.number});
  return message.x;
}

void Rank::compute(double seconds, std::string_view what) {
  require(running_ < 0, "compute",
          "a background task computes; expected messages only: the processor is the rank's own");
  require(seconds >= 0, "compute", "{} seconds for {}; expected at least 0", seconds, what);
  note({.kind = Event::Kind::compute, .what = std::string(what), .seconds = seconds});
}

void Rank::let_run(int number) {
  Task& task = *tasks_[at(number)];
  running_ = number;
  task.begun = true;
  task.goes_on.release();
  task.has_stopped.acquire();
  running_ = -1;
}

int Rank::start(std::function<void()> work) {
  require(running_ < 0, "start", "a background task starts another; expected the rank itself to start it");
  const int number = static_cast<int>(tasks_.size());
  Task& task = *tasks_.emplace_back(std::make_unique<Task>());
  record_.tasks.emplace_back();
  note({.kind = Event::Kind::start, .task = number});
  task.thread = std::thread([&task, work = std::move(work), pool = MemoryPool::current()]() mutable {
    MemoryPool::set_current(std::move(pool));
    task.goes_on.acquire();
    try {
      if (!task.abandoned) std::exchange(work, {})();
    } catch (const Abandoned&) {  // nobody wants to know
    } catch (...) { task.error = std::current_exception(); }
    task.ended = true;
    task.has_stopped.release();
  });
  if (done_ == number) let_run(number);
  return number;
}

void Rank::wait(int task) {
  require(task >= 0 && task < static_cast<int>(tasks_.size()), "wait",
          "there is no task {}; expected the number that start() returned, 0 to {}", task,
          static_cast<int>(tasks_.size()) - 1);
  for (; done_ <= task; ++done_) {
    Task& next = *tasks_[at(done_)];
    next.may_receive = true;
    if (!next.ended) let_run(done_);
    if (next.error) std::rethrow_exception(next.error);
  }
  if (done_ < static_cast<int>(tasks_.size()) && !tasks_[at(done_)]->begun) let_run(done_);
  note({.kind = Event::Kind::wait, .task = task});
}

int Rank::finish() {
  const int tasks = static_cast<int>(tasks_.size()), left = tasks - done_;
  if (left > 0) wait(tasks - 1);
  return left;
}

Run run_ranks(const Cluster& cluster, const std::function<void(Rank&)>& body) {
  Mail mail(cluster);
  Run run;
  run.ranks.resize(at(cluster.ranks));
  std::string first;
  std::vector<int> not_waited_for(run.ranks.size());  // tasks
  const auto one = [&](int number) {
    Rank rank(mail, number, cluster.ranks);
    bool failure = true;
    try {
      body(rank);
      not_waited_for[at(number)] = Mail::finish(rank);
      run.ranks[at(number)] = std::move(Mail::record(rank));
      failure = false;
    } catch (const std::exception& error) {
      const std::scoped_lock lock(mail.mutex);
      if (!mail.failed) first = fmt::format("rank {}: {}", number, error.what());
    }
    mail.end(failure);
  };
  run_thread_ranks(cluster.ranks, 1, std::chrono::hours(1),
                   [&](const std::shared_ptr<ProcessGroup>& world) { one(world->rank()); });
  if (!mail.deadlock.empty()) fail(ExitCode::internal, "lab", "{}", mail.deadlock);
  if (mail.failed) fail(ExitCode::internal, "lab", "{}", first);
  for (const auto& [box, messages] : mail.boxes)
    if (!messages.empty())
      run.left.push_back(fmt::format("rank {} sent {} message{} that rank {} did not receive", box.from,
                                     messages.size(), messages.size() == 1 ? "" : "s", box.to));
  for (std::size_t rank = 0; rank < run.ranks.size(); ++rank)
    if (const int tasks = not_waited_for[rank]; tasks > 0)
      run.left.push_back(fmt::format("rank {} ended without waiting for {} of its {} background tasks", rank, tasks,
                                     run.ranks[rank].tasks.size()));
  return run;
}

void add_into(Tensor into, const Tensor& from) {
  require(into.shape() == from.shape(), "add_into", "{} is to be added to {}; expected equal shapes", from.shape(),
          into.shape());
  const Tensor dense = contiguous(from);
  const auto source = dense.span<const float>();
  const auto target = into.span<float>();
  for (std::size_t i = 0; i < target.size(); ++i) target[i] += source[i];
}

}  // namespace trireme::labs
