// The group of nccl/group.h: it forms and connects a communicator, queues one collective at a time in the order of the
// calls, watches them, and ends. Read next: parallel/comm/nccl/collectives.cpp (what is queued for each collective),
// parallel/comm/progress_board.h (by which it says which ranks a late one waits for).
#include "parallel/comm/nccl/group.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <string_view>
#include <thread>
#include <utility>

#include "parallel/comm/common/diagnosis.h"
#include "parallel/comm/nccl/collectives.h"
#include "parallel/comm/nccl/messages.h"
#include "parallel/comm/nccl/operation.h"
#include "parallel/comm/nccl/world.h"
#include "parallel/comm/progress_board.h"

namespace trireme::comm {
namespace {

// Blocks of an operation. They leave most multiprocessors of an A100 or H100 to kernels, and should suffice for the
// bandwidth of NVLink. Not measured: there was no GPU.
constexpr int most_blocks = 16;
constexpr auto desync_patience = std::chrono::milliseconds(100);  // before checking the others' progress

bool on_device(const Tensor& x) { return x.defined() && x.device() != Device::cpu; }

// What other ranks of a group have begun, when an operation waits for them: for messages. NCCL itself does not say.
// `board`: null if the group has none.

/// Throws ExitCode::desync if another rank has given `operation`'s number to a different operation.
void require_same_operation(const NcclOperation& operation, const ProcessGroup& group, ProgressBoard* board) {
  for (int r = 0; board != nullptr && r < group.size(); ++r) {
    const auto other = board->read(group.world_rank(r));
    if (!other || other->sequence != operation.sequence || other->signature == operation.signature) continue;
    fail(ExitCode::desync, comm::name(operation.signature.kind), "{}",
         out_of_step(group, operation.sequence, group.rank(), operation.signature, r, other->signature));
  }
}

/// "not arrived: rank 1 (world rank 5); on other nodes, not seen from here: rank 2 (world rank 9)".
std::string who_is_missing(const NcclOperation& operation, const ProcessGroup& group, ProgressBoard* board) {
  std::vector<int> late, unseen;
  for (int r = 0; r < group.size(); ++r) {
    if (board == nullptr || !board->visible(group.world_rank(r))) {
      unseen.push_back(r);
    } else if (const auto other = board->read(group.world_rank(r)); other && other->sequence < operation.sequence) {
      late.push_back(r);
    }
  }
  std::string text =
      late.empty() ? "every rank seen from here has called it" : "not arrived: " + list_ranks(group, late);
  if (!unseen.empty()) text += "; on other nodes, not seen from here: " + list_ranks(group, unseen);
  return text;
}

class NcclGroup final : public CollectiveGroup, public Watched, public std::enable_shared_from_this<NcclGroup> {
 public:
  NcclGroup(std::shared_ptr<ProcessGroup> host, std::shared_ptr<NcclWorld> world)
      : CollectiveGroup(host->name(), host->rank(), host->members()),
        host_(std::move(host)),
        world_(std::move(world)),
        api_(world_->api()),
        messages_(std::make_shared<NcclMessages>(*host_, world_)) {
    if (size() == 1) return;
    try {
      form();
    } catch (...) {
      abort();
      if (stream_ != nullptr) api_.destroy_stream(stream_);
      throw;
    }
    world_->watch(*this);
  }

  ~NcclGroup() override {
    if (size() == 1) return;
    world_->forget(*this);
    drain();
    const std::scoped_lock lock(mutex_);
    if (comm_ != nullptr) world_->failed() || std::uncaught_exceptions() > 0 ? api_.abort(comm_) : api_.end(comm_);
    if (stream_ != nullptr) api_.destroy_stream(stream_);
    operations_.clear();  // nothing uses their tensors now
  }
  NcclGroup(const NcclGroup&) = delete;
  NcclGroup& operator=(const NcclGroup&) = delete;

  bool verifies() const override { return host_->verifies(); }
  SumOrder fastest_order() const override { return world_->options().fastest; }

  std::shared_ptr<ProcessGroup> subgroup(const std::vector<int>& world_ranks, const std::string& name) override {
    world_->throw_failure();
    return std::make_shared<NcclGroup>(host_->subgroup(world_ranks, name), world_);
  }

  Work send(Tensor x, int to, int tag) override {
    if (!on_device(x)) return host_->send(std::move(x), to, tag);
    check_message("send", x, to, tag, *this);
    const MemoryScope scope(MemoryCategory::communication);
    return send_final(clone(x), to, tag);  // `x` may be changed by the kernels that follow
  }
  Work send_final(Tensor x, int to, int tag) override {
    if (!on_device(x)) return host_->send_final(std::move(x), to, tag);
    check_message("send", x, to, tag, *this);
    messages_->send(x, to, tag);
    return {};
  }
  Work recv(Tensor y, int from, int tag) override {
    if (!on_device(y)) return host_->recv(std::move(y), from, tag);
    check_message("recv", y, from, tag, *this);
    return messages_->recv(y, from, tag);
  }

  // Called by the watch.
  void look() override;
  void abort() noexcept override;

 protected:
  Work submit(Collective c, Launch launch) override;

 private:
  class Pending;

  void form();
  void wait_until_ready(const std::string& operation);
  template <class Test>
  void poll(const std::string& operation, const Test& over);
  void connect();
  template <class Start>
  void queue(const std::shared_ptr<NcclOperation>& operation, const Start& start);
  NcclCollectives collectives();
  Work move_alone(const Collective& c);
  void drain();

  std::shared_ptr<ProcessGroup> host_;
  std::shared_ptr<NcclWorld> world_;
  NcclApi& api_;
  std::shared_ptr<NcclMessages> messages_;
  std::unique_ptr<ProgressBoard> board_;

  std::mutex mutex_;  // guards all members below; held while operations are queued
  NcclApi::Comm comm_ = nullptr;
  NcclApi::Stream stream_ = nullptr;
  std::uint64_t sequence_ = 0;
  std::deque<std::shared_ptr<NcclOperation>> operations_;  // not known to have ended
};

// What a Work holds. Destroying the last copy waits, which costs the host nothing. During stack unwinding it does not
// wait: the operation stays with its group until it has ended.
class NcclGroup::Pending : public Work::State {
 public:
  Pending(std::shared_ptr<NcclGroup> group, std::shared_ptr<NcclOperation> operation)
      : group_(std::move(group)), operation_(std::move(operation)) {}
  ~Pending() override {
    if (std::uncaught_exceptions() > exceptions_) return;
    try {
      wait();
    } catch (...) {  // the world keeps the error
    }
  }
  Pending(const Pending&) = delete;
  Pending& operator=(const Pending&) = delete;

  void wait() override {
    group_->world_->throw_failure();
    if (!joined_) group_->api_.make_wait(group_->api_.compute_stream(), operation_->done.get());
    group_->world_->throw_failure();
    if (joined_) return;
    joined_ = true;
    const std::scoped_lock lock(group_->mutex_);
    operation_->tensors.clear();  // memory freed now is reused only after the kernels that wait
  }
  bool done() override { return group_->world_->failed() || group_->api_.happened(operation_->done.get()); }

 private:
  std::shared_ptr<NcclGroup> group_;
  std::shared_ptr<NcclOperation> operation_;
  bool joined_ = false;
  int exceptions_ = std::uncaught_exceptions();
};

// All ranks of the group come here at the same time. The unique id travels over the host group.
void NcclGroup::form() {
  NcclApi::Id id{};
  Tensor carrier = Tensor::zeros({static_cast<std::int64_t>(id.size())}, DType::u8);
  if (rank() == 0) {
    id = api_.make_id();
    std::memcpy(carrier.raw(), id.data(), id.size());
  }
  host_->broadcast(carrier, 0).wait();
  std::memcpy(id.data(), carrier.raw(), id.size());
  if (world_->options().open_board) {
    const auto instance = std::hash<std::string_view>()({reinterpret_cast<const char*>(id.data()), id.size()}) | 1U;
    board_ = world_->options().open_board(instance);
  }
  stream_ = api_.make_stream();
  comm_ = api_.join(id, size(), rank(), name(), most_blocks);
  wait_until_ready(fmt::format("the communicator of group '{}'", name()));
  connect();
}

// NCCL connects ranks at their first operation, and then waits on the host for the peers. So do this here, where all
// ranks are, with each kind of NCCL's operations that the group uses.
void NcclGroup::connect() {
  const MemoryScope scope(MemoryCategory::communication);
  auto operation = std::make_shared<NcclOperation>(api_, Signature());
  operation->tensors = {Tensor::empty({3, size()}, DType::u8, Device::cuda)};
  queue(operation, [&] { collectives().run_each_kind(operation->tensors.front(), fastest_order()); });
  poll(fmt::format("the first exchange of group '{}'", name()), [&] { return api_.happened(operation->done.get()); });
  operations_.clear();
}

// Runs after the kernels launched so far. Memory that `start` needs must be allocated before: those kernels may still
// use it.
template <class Start>
void NcclGroup::queue(const std::shared_ptr<NcclOperation>& operation, const Start& start) {
  const NcclEvent ready(api_);
  api_.record(ready.get(), api_.compute_stream());
  api_.make_wait(stream_, ready.get());
  api_.record(operation->begun.get(), stream_);
  operations_.push_back(operation);
  try {
    start();
  } catch (...) {  // operations already queued keep their tensors
    api_.record(operation->done.get(), stream_);
    throw;
  }
  api_.record(operation->done.get(), stream_);
}

// Waits until NCCL accepts the next call, which is once it has queued the last: soon, after the ranks are connected.
void NcclGroup::wait_until_ready(const std::string& operation) {
  poll(operation, [this] { return api_.state(comm_).health == NcclApi::Health::ready; });
}

template <class Test>
void NcclGroup::poll(const std::string& operation, const Test& over) {
  const auto start = Clock::now();
  const auto deadline = world_->options().connect_deadline;
  while (!over()) {
    world_->throw_failure();
    if (const NcclApi::State state = api_.state(comm_); state.health == NcclApi::Health::broken)
      fail(ExitCode::retryable, "nccl", "{}: {}; look at the messages of other ranks, or set NCCL_DEBUG=INFO",
           operation, state.problem);
    if (Clock::now() - start > deadline)
      fail(ExitCode::retryable, "nccl", "{}",
           too_late(operation, *this, deadline, "NCCL has no connection with all ranks of it"));
    std::this_thread::sleep_for(nccl_poll_interval);
  }
}

// An operation on the device is queued at once, lazy or background.
Work NcclGroup::submit(Collective c, Launch launch) {
  if (!on_device(c.x) && !on_device(c.y)) return dispatch(*host_, c, launch);
  check(c, *this);
  require_one_device(comm::name(c.kind), {&c.x, &c.y});
  world_->throw_failure();
  if (size() == 1) return move_alone(c);
  const Signature s = c.signature(size());
  auto operation = std::make_shared<NcclOperation>(api_, s);
  operation->tensors = {c.x.detach(), c.y.detach()};
  std::string problem;
  ExitCode code = ExitCode::retryable;
  try {
    const std::scoped_lock lock(mutex_);
    if (comm_ == nullptr) world_->throw_failure();
    operation->sequence = ++sequence_;
    if (board_) board_->begin({operation->sequence, s});
    NcclCollectives device = collectives();
    operation->tensors.push_back(device.sum_buffer(s));
    queue(operation, [&] {
      if (s.count > 0) device.run(c, s, operation->tensors.back());
    });
    return Work(std::make_shared<Pending>(shared_from_this(), operation));
  } catch (const Error& error) {
    if (world_->failed()) throw;
    code = error.code();
    problem = error.what();
  } catch (const std::exception& error) { problem = error.what(); }
  world_->lose(code, "nccl", fmt::format("{}: {}", numbered(s, operation->sequence, *this), problem));
}

NcclCollectives NcclGroup::collectives() {
  return {*this, api_, comm_, stream_, [this](const std::string& operation) { wait_until_ready(operation); }};
}

Work NcclGroup::move_alone(const Collective& c) {
  const auto bytes = static_cast<std::size_t>(c.y.defined() ? c.y.bytes() : 0);
  if (bytes > 0 && device_bytes(c.x) != device_bytes(c.y))
    backend(c.y.device()).copy_on_device(device_bytes(c.y), device_bytes(c.x), bytes);
  return {};
}

void NcclGroup::look() {
  // Do not block here: a thread that queues an operation holds the lock, and may wait for other ranks, which may need
  // this thread to move messages.
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock() || comm_ == nullptr) return;
  while (!operations_.empty()) {
    NcclOperation& first = *operations_.front();
    const bool done = api_.happened(first.done.get()), begun = done || api_.happened(first.begun.get());
    const auto stage = first.advance(begun, done, Clock::now(), world_->options().deadline);
    if (stage == NcclOperation::Stage::over) {
      operations_.pop_front();
      continue;
    }
    if (stage == NcclOperation::Stage::under_way && first.waited(Clock::now()) > desync_patience)
      require_same_operation(first, *this, board_.get());
    if (stage == NcclOperation::Stage::late)
      fail(ExitCode::retryable, comm::name(first.signature.kind), "{}",
           too_late(numbered(first.signature, first.sequence, *this), *this, world_->options().deadline,
                    who_is_missing(first, *this, board_.get())));
    break;
  }
  const NcclApi::State state = api_.state(comm_);
  if (state.health != NcclApi::Health::broken) return;
  const std::string operation = operations_.empty()
                                    ? fmt::format("group '{}'", name())
                                    : numbered(operations_.front()->signature, operations_.front()->sequence, *this);
  fail(ExitCode::retryable, "nccl", "{}: {}; look at the messages of other ranks, or set NCCL_DEBUG=INFO", operation,
       state.problem);
}

void NcclGroup::abort() noexcept {
  const std::scoped_lock lock(mutex_);
  if (comm_ != nullptr) api_.abort(comm_);
  comm_ = nullptr;
}

// When the group is destroyed, operations that were waited for may still run on the GPU.
void NcclGroup::drain() {
  try {
    while (!world_->failed()) {
      look();
      {
        const std::scoped_lock lock(mutex_);
        if (operations_.empty()) return;
      }
      std::this_thread::sleep_for(nccl_poll_interval);
    }
  } catch (...) { world_->fail(std::current_exception()); }
}

/// NCCL refuses two ranks on one GPU, but its message names neither.
void require_own_devices(ProcessGroup& host, const std::string& device) {
  constexpr std::int64_t longest = 96;
  Tensor own = Tensor::zeros({longest}, DType::u8), all = Tensor::empty({host.size(), longest}, DType::u8);
  std::memcpy(own.raw(), device.data(), std::min<std::size_t>(device.size(), longest));
  host.all_gather(own, all).wait();
  const auto* const texts = reinterpret_cast<const char*>(all.data<std::uint8_t>());
  for (int r = 0; r < host.size(); ++r) {
    for (int other = r + 1; other < host.size(); ++other) {
      if (std::memcmp(texts + r * longest, texts + other * longest, longest) != 0) continue;
      fail(ExitCode::usage, "nccl",
           "{} share one GPU ({}); expected one GPU for each rank; start no more ranks on a node than it has GPUs, or "
           "stage through the host",
           list_ranks(host, {r, other}), std::string_view(texts + r * longest, strnlen(texts + r * longest, longest)));
    }
  }
}

}  // namespace

std::shared_ptr<ProcessGroup> nccl_group(const std::shared_ptr<ProcessGroup>& host, std::shared_ptr<NcclApi> api,
                                         NcclOptions options) {
  require_own_devices(*host, api->device());
  return std::make_shared<NcclGroup>(host, std::make_shared<NcclWorld>(std::move(api), std::move(options)));
}

}  // namespace trireme::comm
