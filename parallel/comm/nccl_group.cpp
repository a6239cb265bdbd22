// The collectives of nccl_group.h. Each group runs one at a time, in the order of the calls.
#include "parallel/comm/nccl_group.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <string_view>
#include <thread>
#include <utility>

#include "parallel/comm/diagnosis.h"
#include "parallel/comm/nccl_messages.h"
#include "parallel/comm/nccl_operation.h"
#include "parallel/comm/nccl_world.h"

namespace trireme::comm {
namespace {

constexpr std::size_t small_bytes = 64 * 1024;  // up to here one all-gather and the whole sum everywhere are faster
// Blocks of an operation. They leave most multiprocessors of an A100 or H100 to kernels, and should suffice for the
// bandwidth of NVLink. Not measured: there was no GPU.
constexpr int most_blocks = 16;
constexpr auto desync_patience = std::chrono::milliseconds(100);  // before checking the others' progress

/// What is sent to one rank and what is received from it.
struct Parcel {
  const std::byte* out = nullptr;
  std::size_t out_bytes = 0;
  std::byte* in = nullptr;
  std::size_t in_bytes = 0;
};

bool on_device(const Tensor& x) { return x.defined() && x.device() != Device::cpu; }

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
  void settle(const std::string& operation);
  template <class Test>
  void poll(const std::string& operation, const Test& over);
  void connect();
  template <class Start>
  void queue(const std::shared_ptr<NcclOperation>& operation, const Start& start);
  void take_buffers(const Signature& s, NcclOperation& operation) const;
  void carry_out(const Collective& c, const Signature& s, NcclOperation& operation);
  void sum_by_nccl(const Collective& c, const Signature& s);
  void all_reduce(const Collective& c, const Signature& s, NcclOperation& operation);
  void reduce(const Collective& c, const Signature& s, NcclOperation& operation);
  void move_parts(const Collective& c, const Signature& s);
  void gather_all(const std::byte* x, std::byte* y, std::size_t bytes);
  void exchange(const std::vector<Parcel>& by_rank);
  std::int64_t gather_chunks(const std::byte* x, const Signature& s, std::byte* rows);
  void combine(const Signature& s, const Tensor& rows, std::int64_t count, std::byte* to);
  Work move_alone(const Collective& c);

  void drain();
  void check_progress(const NcclOperation& operation);
  std::string missing(const NcclOperation& operation);

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
  settle(fmt::format("the communicator of group '{}'", name()));
  connect();
}

// NCCL connects ranks at their first operation, and then waits on the host for the peers. So do this here, where all
// ranks are, with each kind of NCCL's operations that the group uses.
void NcclGroup::connect() {
  const MemoryScope scope(MemoryCategory::communication);
  auto operation = std::make_shared<NcclOperation>(api_, Signature());
  const auto ranks = static_cast<std::size_t>(size());
  operation->tensors = {Tensor::empty({3, size()}, DType::u8, Device::cuda)};  // sent, received, gathered
  std::byte* const bytes = device_bytes(operation->tensors.front());
  queue(operation, [&] {
    std::vector<Parcel> parcels;
    for (std::size_t r = 0; r < ranks; ++r) parcels.push_back({bytes + r, 1, bytes + ranks + r, 1});
    exchange(parcels);
    gather_all(bytes, bytes + 2 * ranks, 1);
    api_.broadcast(bytes, 1, 0, comm_, stream_);
    settle("broadcast");
    if (fastest_order() == SumOrder::ranks) return;
    api_.all_reduce(bytes, size(), DType::u8, comm_, stream_);
    settle("all_reduce");
    api_.reduce_scatter(bytes, bytes + ranks, 1, DType::u8, comm_, stream_);
    settle("reduce_scatter");
  });
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
void NcclGroup::settle(const std::string& operation) {
  poll(operation, [this] { return api_.state(comm_).health == NcclApi::Health::ready; });
}

template <class Test>
void NcclGroup::poll(const std::string& operation, const Test& over) {
  const auto start = Clock::now();
  const auto deadline = world_->options().connect_deadline;
  while (!over()) {
    world_->throw_failure();
    if (const NcclApi::State state = api_.state(comm_); state.health == NcclApi::Health::broken)
      fail(ExitCode::retryable, "nccl", "{}: {}; see what other ranks say, or NCCL_DEBUG=INFO", operation,
           state.problem);
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
    take_buffers(s, *operation);
    queue(operation, [&] {
      if (s.count > 0) carry_out(c, s, *operation);
    });
    return Work(std::make_shared<Pending>(shared_from_this(), operation));
  } catch (const Error& error) {
    if (world_->failed()) throw;
    code = error.code();
    problem = error.what();
  } catch (const std::exception& error) { problem = error.what(); }
  world_->lose(code, "nccl", fmt::format("{}: {}", numbered(s, operation->sequence, *this), problem));
}

Work NcclGroup::move_alone(const Collective& c) {
  const auto bytes = static_cast<std::size_t>(c.y.defined() ? c.y.bytes() : 0);
  if (bytes > 0 && device_bytes(c.x) != device_bytes(c.y))
    backend(c.y.device()).copy_on_device(device_bytes(c.y), device_bytes(c.x), bytes);
  return {};
}

// Allocates the buffers that sums in rank order need beside the operation's tensors.
void NcclGroup::take_buffers(const Signature& s, NcclOperation& operation) const {
  if (s.order == SumOrder::any) return;
  const MemoryScope scope(MemoryCategory::communication);
  const bool small = s.kind == Kind::all_reduce && contribution_bytes(s, size()) <= small_bytes;
  const bool whole = small || s.kind == Kind::reduce_scatter,
             sums = whole || s.kind == Kind::all_reduce || s.kind == Kind::reduce;
  const std::int64_t row = whole ? s.count : (s.count + size() - 1) / size();
  if (sums) operation.tensors.push_back(Tensor::empty({size(), row}, s.dtype, Device::cuda));
}

void NcclGroup::carry_out(const Collective& c, const Signature& s, NcclOperation& operation) {
  if (s.order == SumOrder::any) return sum_by_nccl(c, s);
  if (c.kind == Kind::all_reduce) return all_reduce(c, s, operation);
  if (c.kind == Kind::reduce || c.kind == Kind::reduce_scatter) return reduce(c, s, operation);
  move_parts(c, s);
}

void NcclGroup::exchange(const std::vector<Parcel>& by_rank) {
  const Parcel& own = by_rank[static_cast<std::size_t>(rank())];
  if (own.out_bytes > 0 && own.in != nullptr && own.in != own.out) api_.copy(own.in, own.out, own.out_bytes, stream_);
  api_.begin_together();
  for (int r = 0; r < size(); ++r) {
    const Parcel& parcel = by_rank[static_cast<std::size_t>(r)];
    if (r != rank() && parcel.out_bytes > 0) api_.send(parcel.out, parcel.out_bytes, r, comm_, stream_);
    if (r != rank() && parcel.in_bytes > 0) api_.receive(parcel.in, parcel.in_bytes, r, comm_, stream_);
  }
  api_.end_together();
  settle("exchange");
}

void NcclGroup::gather_all(const std::byte* x, std::byte* y, std::size_t bytes) {
  api_.all_gather(x, y, bytes, comm_, stream_);
  settle("all_gather");
}

/// Rank r's chunk of a tensor of s.count elements, which the ranks share out.
struct Chunk {
  std::int64_t first, count;
  Chunk(const Signature& s, int ranks, int r) {
    const std::int64_t longest = (s.count + ranks - 1) / ranks;
    first = std::min(s.count, r * longest);
    count = std::min(longest, s.count - first);
  }
  std::size_t offset(const Signature& s) const { return static_cast<std::size_t>(first) * size_of(s.dtype); }
  std::size_t bytes(const Signature& s) const { return static_cast<std::size_t>(count) * size_of(s.dtype); }
};

void NcclGroup::combine(const Signature& s, const Tensor& rows, std::int64_t count, std::byte* to) {
  if (count == 0) return;
  const Reduction op = s.op == ReduceOp::sum ? Reduction::sum : Reduction::max;
  api_.combine(s.dtype, op, device_bytes(rows), size(), count, to, stream_);
}

// Brings this rank's chunk of everyone's x [s.count] here: rows [ranks, chunk]. Returns the chunk's length.
std::int64_t NcclGroup::gather_chunks(const std::byte* x, const Signature& s, std::byte* rows) {
  const Chunk mine(s, size(), rank());
  std::vector<Parcel> parcels;
  for (int r = 0; r < size(); ++r) {
    const Chunk theirs(s, size(), r);
    parcels.push_back(
        {x + theirs.offset(s), theirs.bytes(s), rows + static_cast<std::size_t>(r) * mine.bytes(s), mine.bytes(s)});
  }
  exchange(parcels);
  return mine.count;
}

void NcclGroup::sum_by_nccl(const Collective& c, const Signature& s) {
  if (c.kind == Kind::all_reduce) {
    api_.all_reduce(device_bytes(c.x), s.count, s.dtype, comm_, stream_);
  } else {
    api_.reduce_scatter(device_bytes(c.x), device_bytes(c.y), s.count, s.dtype, comm_, stream_);
  }
  settle(comm::name(c.kind));
}

void NcclGroup::all_reduce(const Collective& c, const Signature& s, NcclOperation& operation) {
  std::byte* const x = device_bytes(c.x);
  const Tensor& rows = operation.tensors.back();  // [ranks, count or chunk]
  if (rows.count() == s.count * size()) {
    gather_all(x, device_bytes(rows), static_cast<std::size_t>(c.x.bytes()));
    return combine(s, rows, s.count, x);
  }
  const Chunk mine(s, size(), rank());
  combine(s, rows, gather_chunks(x, s, device_bytes(rows)), x + mine.offset(s));
  if (s.count % size() == 0) return gather_all(x + mine.offset(s), x, mine.bytes(s));
  std::vector<Parcel> parcels;
  for (int r = 0; r < size(); ++r) {
    const Chunk theirs(s, size(), r);
    parcels.push_back({x + mine.offset(s), mine.bytes(s), x + theirs.offset(s), theirs.bytes(s)});
  }
  exchange(parcels);
}

// reduce_scatter: chunk r of x is row r. reduce: the chunks' sums then go to the root; other ranks' x stays as it is.
void NcclGroup::reduce(const Collective& c, const Signature& s, NcclOperation& operation) {
  std::byte *const x = device_bytes(c.x), *const rows = device_bytes(operation.tensors.back());
  if (c.kind == Kind::reduce_scatter) {
    Signature whole = s;
    whole.count = s.count * size();
    return combine(s, operation.tensors.back(), gather_chunks(x, whole, rows), device_bytes(c.y));
  }
  const Chunk mine(s, size(), rank());
  std::byte* const sum = rank() == c.root ? x + mine.offset(s) : rows;
  combine(s, operation.tensors.back(), gather_chunks(x, s, rows), sum);
  std::vector<Parcel> parcels(static_cast<std::size_t>(size()));
  for (int r = 0; r < size(); ++r) {
    Parcel& parcel = parcels[static_cast<std::size_t>(r)];
    const Chunk theirs(s, size(), r);
    if (r == c.root && r != rank()) parcel = {sum, mine.bytes(s), nullptr, 0};
    if (rank() == c.root && r != rank()) parcel = {nullptr, 0, x + theirs.offset(s), theirs.bytes(s)};
  }
  exchange(parcels);
}

void NcclGroup::move_parts(const Collective& c, const Signature& s) {
  std::byte *const x = device_bytes(c.x), *const y = device_bytes(c.y);
  const std::size_t share = static_cast<std::size_t>(s.count) * size_of(s.dtype);
  const auto part = [&](int r) { return static_cast<std::size_t>(r) * share; };
  if (c.kind == Kind::all_gather) return gather_all(x, y, share);
  if (c.kind == Kind::broadcast) {
    api_.broadcast(x, share, c.root, comm_, stream_);
    return settle("broadcast");
  }
  const bool is_root = rank() == c.root;
  std::vector<Parcel> parcels(static_cast<std::size_t>(size()));
  for (int r = 0; r < size(); ++r) {
    Parcel& parcel = parcels[static_cast<std::size_t>(r)];
    if (c.kind == Kind::all_to_all) parcel = {x + part(r), share, y + part(r), share};
    if (c.kind == Kind::gather) {
      if (r == c.root) parcel = {x, share, nullptr, 0};
      if (is_root) parcel = {parcel.out, parcel.out_bytes, y + part(r), share};
    }
    if (c.kind == Kind::scatter) {
      if (is_root) parcel = {x + part(r), share, nullptr, 0};
      if (r == c.root) parcel = {parcel.out, parcel.out_bytes, y, share};
    }
  }
  exchange(parcels);
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
    if (stage == NcclOperation::Stage::under_way && first.waited(Clock::now()) > desync_patience) check_progress(first);
    if (stage == NcclOperation::Stage::late)
      fail(ExitCode::retryable, comm::name(first.signature.kind), "{}",
           too_late(numbered(first.signature, first.sequence, *this), *this, world_->options().deadline,
                    missing(first)));
    break;
  }
  const NcclApi::State state = api_.state(comm_);
  if (state.health != NcclApi::Health::broken) return;
  const std::string operation = operations_.empty()
                                    ? fmt::format("group '{}'", name())
                                    : numbered(operations_.front()->signature, operations_.front()->sequence, *this);
  fail(ExitCode::retryable, "nccl", "{}: {}; see what other ranks say, or NCCL_DEBUG=INFO", operation, state.problem);
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

void NcclGroup::check_progress(const NcclOperation& operation) {
  for (int r = 0; board_ && r < size(); ++r) {
    const auto other = board_->read(world_rank(r));
    if (!other || other->sequence != operation.sequence || other->signature == operation.signature) continue;
    fail(ExitCode::desync, comm::name(operation.signature.kind), "{}",
         out_of_step(*this, operation.sequence, rank(), operation.signature, r, other->signature));
  }
}

std::string NcclGroup::missing(const NcclOperation& operation) {
  std::vector<int> late, unseen;
  for (int r = 0; r < size(); ++r) {
    if (!board_ || !board_->visible(world_rank(r))) {
      unseen.push_back(r);
    } else if (const auto other = board_->read(world_rank(r)); other && other->sequence < operation.sequence) {
      late.push_back(r);
    }
  }
  std::string text =
      late.empty() ? "every rank seen from here has called it" : "not arrived: " + list_ranks(*this, late);
  if (!unseen.empty()) text += "; on other nodes, not seen from here: " + list_ranks(*this, unseen);
  return text;
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
