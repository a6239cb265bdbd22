#include "parallel/comm/common/operation_queue.h"

#include "core/cores.h"
#include "core/parallel_for.h"
#include "parallel/comm/call_site.h"
#include "parallel/comm/common/records.h"
#include "parallel/comm/times.h"
#include "parallel/comm/watch/beacon.h"

namespace trireme::comm {
namespace {

thread_local bool communicates = false;

}  // namespace

bool on_communication_thread() { return communicates; }

// What a Work holds. Destroying the last copy waits, except during stack unwinding, when the peers may never come. The
// operation then stays in the queue, which keeps its tensors alive.
class OperationQueue::Ticket : public Work::State {
 public:
  Ticket(std::shared_ptr<ProcessGroup> owner, OperationQueue& queue, std::shared_ptr<Operation> operation)
      : owner_(std::move(owner)), queue_(queue), operation_(std::move(operation)) {}
  ~Ticket() override {
    if (std::uncaught_exceptions() > exceptions_) return;
    try {
      queue_.wait(*operation_);
    } catch (...) {  // the queue keeps the error and throws it at the next operation
    }
  }
  Ticket(const Ticket&) = delete;
  Ticket& operator=(const Ticket&) = delete;
  void wait() override { queue_.wait(*operation_); }
  bool done() override { return queue_.done(*operation_); }

 private:
  std::shared_ptr<ProcessGroup> owner_;
  OperationQueue& queue_;
  std::shared_ptr<Operation> operation_;
  int exceptions_ = std::uncaught_exceptions();
};

OperationQueue::OperationQueue(Run run, std::function<void()> abandon)
    : run_(std::move(run)), abandon_(std::move(abandon)) {}

OperationQueue::~OperationQueue() {
  {
    const std::scoped_lock lock(mutex_);
    stop_ = true;
    if (busy_ || !queue_.empty()) abandon_();
  }
  work_.notify_all();
  Heartbeat::beat();
  if (thread_.joinable()) thread_.join();
  Heartbeat::beat();
}

Work OperationQueue::push(std::shared_ptr<ProcessGroup> owner, Collective collective, Launch launch) {
  check(collective, *owner);
  auto operation = std::make_shared<Operation>();
  operation->collective = std::move(collective);
  for (Tensor* x : {&operation->collective.x, &operation->collective.y}) {
    if (x->requires_grad()) *x = x->detach();  // keep the elements alive, not the tape
  }
  operation->collective.site = watch::FixedText<40>(CallSite::current()).bytes;
  operation->background = launch == Launch::background;
  {
    const std::scoped_lock lock(mutex_);
    operation->sequence = ++launched_;
    if (Profiler::recording() != nullptr)
      operation->event = collective_event(*owner, operation->collective, operation->sequence);
    queue_.push_back(operation);
    if (operation->background) {
      ++background_;
      if (!thread_.joinable()) {
        thread_ = std::thread([this, pool = MemoryPool::current(), clock = CommunicationClock::current(),
                               beacon = watch::Beacon::current(), profiler = Profiler::current()] {
          use_all_cores();
          MemoryPool::set_current(pool);
          Profiler::set_current(profiler, 1);
          CommunicationClock::set_current(clock);
          watch::Beacon::set_current(beacon);
          set_threads(1);
          communicates = true;
          communicate();
        });
      }
    }
  }
  if (operation->background) work_.notify_one();
  return Work(std::make_shared<Ticket>(std::move(owner), *this, std::move(operation)));
}

// Runs the first operation with the lock released. Requires !busy_ and a queue that is not empty.
void OperationQueue::run_front(std::unique_lock<std::mutex>& lock) {
  const std::shared_ptr<Operation> operation = queue_.front();
  queue_.pop_front();
  if (operation->background) --background_;
  busy_ = true;
  std::exception_ptr error = failure_;
  lock.unlock();
  if (!error) {
    try {
      const MemoryScope scope(MemoryCategory::communication);
      const CommunicationClock::Scope time(CommunicationClock::Scope::Event::run);
      std::optional<ProfileScope> event;
      if (operation->event) event.emplace([&] { return *std::move(operation->event); });
      run_(operation->collective, operation->sequence);
    } catch (...) { error = std::current_exception(); }
  }
  lock.lock();
  busy_ = false;
  operation->error = failure_ = error;
  operation->finished = true;
  operation->collective.x = operation->collective.y = Tensor();
  progress_.notify_all();
}

void OperationQueue::wait(Operation& operation) {
  const CommunicationClock::Scope time(CommunicationClock::Scope::Event::wait);
  const watch::Blocked blocked;
  std::unique_lock lock(mutex_);
  while (!operation.finished) {
    if (busy_) {
      progress_.wait(lock);
    } else {
      run_front(lock);
    }
  }
  if (background_ > 0) work_.notify_one();
  if (operation.error) std::rethrow_exception(operation.error);
}

bool OperationQueue::done(const Operation& operation) {
  const std::scoped_lock lock(mutex_);
  return operation.finished;
}

void OperationQueue::communicate() {
  std::unique_lock lock(mutex_);
  while (true) {
    work_.wait(lock, [&] { return stop_ || (background_ > 0 && !busy_); });
    if (stop_) return;
    run_front(lock);
  }
}

}  // namespace trireme::comm
