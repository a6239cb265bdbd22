#include "tests/comm/fake_nccl.h"

#include <algorithm>
#include <cstring>
#include <set>
#include <tuple>
#include <type_traits>
#include <utility>

#include "core/error.h"
#include "cuda/kernels/rank_order.h"
#include "parallel/comm/rank_order.h"
#include "tests/comm/patience.h"

namespace trireme::testing {

struct Fabric::Communicator {
  struct Message {
    const std::byte* x = nullptr;
    std::size_t bytes = 0;
    std::vector<std::byte> copy;
    bool taken = false;
  };

  Sends sends = Sends::rendezvous;
  std::mutex mutex;
  std::condition_variable changed;
  int joined = 0;
  std::vector<bool> aborted;                                        // by rank
  using Route = std::tuple<int, int, int>;                          // sender, receiver, way
  std::map<Route, std::deque<std::shared_ptr<Message>>> under_way;  // of one way: other operations do not match
  std::set<std::tuple<int, int, int>> called;                       // way, the rank that called, its peer
  std::string problem;
};

namespace {

using Communicator = Fabric::Communicator;

struct EventState {
  std::mutex mutex;
  std::condition_variable changed;
  bool happened = false;

  void set() {
    {
      const std::scoped_lock lock(mutex);
      happened = true;
    }
    changed.notify_all();
  }
  void wait() {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return happened; });
  }
};
using EventHandle = std::shared_ptr<EventState>;

EventHandle& event_of(comm::NcclApi::Event event) { return *static_cast<EventHandle*>(event); }

/// The sends and receives that a rank starts together. Returns early when the rank's end is aborted.
void transfer(Communicator& communicator, int me, int way, const std::vector<FakeNccl::Transfer>& transfers) {
  std::vector<std::shared_ptr<Communicator::Message>> sent;
  std::unique_lock lock(communicator.mutex);
  const auto aborted = [&] { return communicator.aborted[static_cast<std::size_t>(me)]; };
  for (const auto& t : transfers) {
    if (t.out == nullptr || aborted()) continue;
    const auto message = std::make_shared<Communicator::Message>(Communicator::Message{t.out, t.bytes, {}, false});
    communicator.under_way[{me, t.peer, way}].push_back(message);
    if (communicator.sends == Sends::rendezvous) {
      sent.push_back(message);
    } else {
      message->copy.assign(t.out, t.out + t.bytes);
      message->x = message->copy.data();
    }
  }
  communicator.changed.notify_all();
  for (const auto& t : transfers) {
    if (t.in == nullptr) continue;
    auto& messages = communicator.under_way[{t.peer, me, way}];
    communicator.changed.wait(lock, [&] { return aborted() || !messages.empty(); });
    if (aborted()) return;
    if (messages.front()->bytes != t.bytes) communicator.problem = "sizes differ between ranks";
    std::memcpy(t.in, messages.front()->x, std::min(messages.front()->bytes, t.bytes));
    messages.front()->taken = true;
    messages.pop_front();
    communicator.changed.notify_all();
  }
  for (const auto& message : sent) communicator.changed.wait(lock, [&] { return aborted() || message->taken; });
}

}  // namespace

std::shared_ptr<Fabric::Communicator> Fabric::join(const comm::NcclApi::Id& id, int ranks) {
  const std::scoped_lock lock(mutex_);
  auto& communicator = communicators_[id];
  if (!communicator) communicator = std::make_shared<Communicator>();
  const std::scoped_lock inner(communicator->mutex);
  communicator->sends = sends_;
  communicator->problem = problem_;
  communicator->aborted.resize(static_cast<std::size_t>(ranks), false);
  ++communicator->joined;
  return communicator;
}

void Fabric::break_all(const std::string& problem) {
  const std::scoped_lock lock(mutex_);
  problem_ = problem;
  for (const auto& [id, communicator] : communicators_) {
    const std::scoped_lock inner(communicator->mutex);
    communicator->problem = problem;
  }
}

int Fabric::communicators() const {
  const std::scoped_lock lock(mutex_);
  int alive = 0;
  for (const auto& [id, communicator] : communicators_) {
    const std::scoped_lock inner(communicator->mutex);
    alive += communicator->joined;
    for (const bool aborted : communicator->aborted) alive -= aborted ? 1 : 0;
  }
  return alive;
}

unsigned Fabric::next_id() {
  const std::scoped_lock lock(mutex_);
  return ++ids_;
}

FakeStream::FakeStream() : thread_([this] { run(); }) {}

FakeStream::~FakeStream() {
  {
    const std::scoped_lock lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void FakeStream::push(std::function<void()> work) {
  {
    const std::scoped_lock lock(mutex_);
    queue_.push_back(std::move(work));
  }
  changed_.notify_all();
}

void FakeStream::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return stop_ || !queue_.empty(); });
    if (queue_.empty()) return;
    const auto work = std::move(queue_.front());
    queue_.pop_front();
    lock.unlock();
    std::this_thread::yield();  // late, as on a GPU
    work();
    lock.lock();
  }
}

/// One rank's handle of a communicator.
struct FakeNccl::End {
  std::shared_ptr<Communicator> communicator;
  int rank = 0, ranks = 0, busy = 0;
};

FakeNccl::FakeNccl(std::shared_ptr<Fabric> fabric, std::string device, Compute compute)
    : fabric_(std::move(fabric)),
      device_(std::move(device)),
      compute_(compute == Compute::queued ? std::make_unique<FakeStream>() : nullptr) {}

void FakeNccl::compute(std::function<void()> kernel) { compute_->push(std::move(kernel)); }

comm::NcclApi::Id FakeNccl::make_id() {
  Id id{};
  const unsigned number = fabric_->next_id();
  std::memcpy(id.data(), &number, sizeof number);
  return id;
}

comm::NcclApi::Comm FakeNccl::join(const Id& id, int ranks, int rank, const std::string& name, int most_blocks) {
  if (most_blocks < 1 || most_blocks > 32)
    fail(ExitCode::internal, "fake NCCL", "{}: {} blocks for an operation; expected 1 to 32", name, most_blocks);
  return new End{fabric_->join(id, ranks), rank, ranks, 2};
}

comm::NcclApi::State FakeNccl::state(Comm comm) {
  End& end = *static_cast<End*>(comm);
  const std::scoped_lock lock(end.communicator->mutex);
  if (!end.communicator->problem.empty()) return {Health::broken, end.communicator->problem};
  bool connecting = end.communicator->joined < end.ranks;
  for (const auto& [way, from, to] : end.communicator->called) {
    if (from != end.rank || end.communicator->called.contains({way, to, from})) continue;
    connecting = true;
    if (end.communicator->aborted[static_cast<std::size_t>(to)]) return {Health::broken, "the other end has closed"};
  }
  const bool busy = connecting || end.busy > 0;
  if (end.busy > 0) --end.busy;
  return {busy ? Health::busy : Health::ready, ""};
}

void FakeNccl::end(Comm comm) noexcept {
  {
    const End& end = *static_cast<End*>(comm);
    std::unique_lock lock(end.communicator->mutex);
    end.communicator->changed.wait_for(lock, patience, [&] {
      return std::all_of(end.communicator->under_way.begin(), end.communicator->under_way.end(), [&](const auto& each) {
        const auto& [from, to, way] = each.first;
        return from != end.rank || each.second.empty() || end.communicator->aborted[static_cast<std::size_t>(to)];
      });
    });
  }
  abort(comm);
}

void FakeNccl::abort(Comm comm) noexcept {
  const std::unique_ptr<End> end(static_cast<End*>(comm));
  const std::scoped_lock lock(end->communicator->mutex);
  end->communicator->aborted[static_cast<std::size_t>(end->rank)] = true;
  for (auto& [route, messages] : end->communicator->under_way)
    if (std::get<0>(route) == end->rank) messages.clear();
  end->communicator->changed.notify_all();
}

// The first operation of each way connects with all ranks that take part.
void FakeNccl::start(End& end, Stream stream, std::vector<Transfer> transfers, Way way) {
  {
    const std::scoped_lock lock(end.communicator->mutex);
    if (std::exchange(end.busy, 1) > 0) end.communicator->problem = "called while it was busy";
    const auto connect = [&](int peer) {
      if (peer != end.rank) end.communicator->called.insert({static_cast<int>(way), end.rank, peer});
    };
    for (const Transfer& t : transfers) connect(t.peer);
    for (int r = 0; way != Way::messages && r < end.ranks; ++r) connect(r);
  }
  static_cast<FakeStream*>(stream)->push([communicator = end.communicator, me = end.rank, way = static_cast<int>(way),
                                          moved = std::move(transfers)] { transfer(*communicator, me, way, moved); });
}

// One per calling thread, as in NCCL.
struct FakeNccl::Together {
  bool begun = false;
  End* end = nullptr;
  Stream stream = nullptr;
  std::vector<Transfer> transfers;
};
thread_local FakeNccl::Together FakeNccl::together;

void FakeNccl::begin_together() { together.begun = true; }

void FakeNccl::end_together() {
  together.begun = false;
  if (!together.transfers.empty()) start(*together.end, together.stream, std::move(together.transfers), Way::messages);
  together.transfers.clear();
}

// Outside begin_together ... end_together each transfer is started alone.
void FakeNccl::add(Comm comm, Stream stream, const Transfer& transfer) {
  together.end = static_cast<End*>(comm);
  together.stream = stream;
  together.transfers.push_back(transfer);
  if (!together.begun) end_together();
}

void FakeNccl::send(const void* x, std::size_t bytes, int to, Comm comm, Stream stream) {
  add(comm, stream, {static_cast<const std::byte*>(x), nullptr, bytes, to});
}

void FakeNccl::receive(void* y, std::size_t bytes, int from, Comm comm, Stream stream) {
  add(comm, stream, {nullptr, static_cast<std::byte*>(y), bytes, from});
}

void FakeNccl::all_gather(const void* x, void* y, std::size_t bytes, Comm comm, Stream stream) {
  End& end = *static_cast<End*>(comm);
  const auto* const from = static_cast<const std::byte*>(x);
  auto* const to = static_cast<std::byte*>(y);
  std::vector<Transfer> transfers;
  for (int r = 0; r < end.ranks; ++r) {
    std::byte* const place = to + static_cast<std::size_t>(r) * bytes;
    if (r != end.rank) {
      transfers.push_back({from, nullptr, bytes, r});
      transfers.push_back({nullptr, place, bytes, r});
    } else if (place != from) {
      copy(place, from, bytes, stream);
    }
  }
  start(end, stream, std::move(transfers), Way::gather);
}

void FakeNccl::broadcast(void* x, std::size_t bytes, int root, Comm comm, Stream stream) {
  End& end = *static_cast<End*>(comm);
  auto* const data = static_cast<std::byte*>(x);
  std::vector<Transfer> transfers;
  for (int r = 0; end.rank == root && r < end.ranks; ++r)
    if (r != root) transfers.push_back({data, nullptr, bytes, r});
  if (end.rank != root) transfers.push_back({nullptr, data, bytes, root});
  start(end, stream, std::move(transfers), bytes > 64 * 1024 ? Way::large_broadcast : Way::broadcast);
}

namespace {

/// rows [ranks, count] -> y [count]. `chunk_of`: the chunk of an element, which is also the rank that adds last.
void add_on_ring(DType dtype, const std::vector<std::byte>& rows, int ranks, std::int64_t count,
                 const std::function<int(std::int64_t)>& chunk_of, void* y) {
  visit_any(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    using Wide = std::conditional_t<sizeof(T) == 2, float, T>;  // what one addition is computed in
    const auto* const x = reinterpret_cast<const T*>(rows.data());
    for (std::int64_t i = 0; i < count; ++i) {
      const int last = chunk_of(i);
      T sum = x[(last + 1) % ranks * count + i];
      for (int hop = 2; hop <= ranks; ++hop)
        sum = static_cast<T>(static_cast<Wide>(sum) + static_cast<Wide>(x[(last + hop) % ranks * count + i]));
      static_cast<T*>(y)[i] = sum;
    }
  });
}

}  // namespace

void FakeNccl::all_reduce(void* x, std::int64_t count, DType dtype, Comm comm, Stream stream) {
  End& end = *static_cast<End*>(comm);
  const std::size_t bytes = static_cast<std::size_t>(count) * size_of(dtype);
  const auto rows = std::make_shared<std::vector<std::byte>>(static_cast<std::size_t>(end.ranks) * bytes);
  std::vector<Transfer> transfers;
  for (int r = 0; r < end.ranks; ++r) {
    if (r == end.rank) continue;
    transfers.push_back({static_cast<const std::byte*>(x), nullptr, bytes, r});
    transfers.push_back({nullptr, rows->data() + static_cast<std::size_t>(r) * bytes, bytes, r});
  }
  start(end, stream, std::move(transfers), Way::all_reduce);
  static_cast<FakeStream*>(stream)->push([=, ranks = end.ranks, me = static_cast<std::size_t>(end.rank)] {
    std::memcpy(rows->data() + me * bytes, x, bytes);
    const std::int64_t chunk = (count + ranks - 1) / ranks;
    add_on_ring(
        dtype, *rows, ranks, count, [=](std::int64_t i) { return static_cast<int>(i / chunk); }, x);
  });
}

void FakeNccl::reduce_scatter(const void* x, void* y, std::int64_t count, DType dtype, Comm comm, Stream stream) {
  End& end = *static_cast<End*>(comm);
  const std::size_t bytes = static_cast<std::size_t>(count) * size_of(dtype);
  const auto* const from = static_cast<const std::byte*>(x);
  const auto rows = std::make_shared<std::vector<std::byte>>(static_cast<std::size_t>(end.ranks) * bytes);
  std::vector<Transfer> transfers;
  for (int r = 0; r < end.ranks; ++r) {
    if (r == end.rank) continue;
    transfers.push_back({from + static_cast<std::size_t>(r) * bytes, nullptr, bytes, r});
    transfers.push_back({nullptr, rows->data() + static_cast<std::size_t>(r) * bytes, bytes, r});
  }
  start(end, stream, std::move(transfers), Way::reduce_scatter);
  static_cast<FakeStream*>(stream)->push([=, ranks = end.ranks, me = end.rank] {
    const std::size_t own = static_cast<std::size_t>(me) * bytes;
    std::memcpy(rows->data() + own, from + own, bytes);
    add_on_ring(
        dtype, *rows, ranks, count, [=](std::int64_t) { return me; }, y);
  });
}

// The emulated kernel computes sums. Under sanitizers the host's function does, with the same bits: ThreadSanitizer
// cannot follow the emulator, and AddressSanitizer makes it twenty times slower.
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr bool by_kernel = false;
#else
constexpr bool by_kernel = true;
#endif

void FakeNccl::combine(DType dtype, Reduction op, const void* x, int rows, std::int64_t count, void* y, Stream stream) {
  static_cast<FakeStream*>(stream)->push([=] {
    if constexpr (by_kernel) return cuda::combine_in_order(dtype, op, x, rows, count, y);
    std::vector<const std::byte*> sources;
    const std::size_t row = static_cast<std::size_t>(count) * size_of(dtype);
    for (int r = 0; r < rows; ++r)
      sources.push_back(static_cast<const std::byte*>(x) + static_cast<std::size_t>(r) * row);
    auto* const to = static_cast<std::byte*>(y);
    comm::combine(dtype, op == Reduction::sum ? ReduceOp::sum : ReduceOp::max, sources, {&to, 1}, 0, count);
  });
}

void FakeNccl::copy(void* to, const void* from, std::size_t bytes, Stream stream) {
  if (stream == nullptr) return static_cast<void>(std::memcpy(to, from, bytes));
  static_cast<FakeStream*>(stream)->push([=] { std::memcpy(to, from, bytes); });
}

comm::NcclApi::Event FakeNccl::make_event() { return new EventHandle(std::make_shared<EventState>()); }
void FakeNccl::destroy_event(Event event) noexcept { delete static_cast<EventHandle*>(event); }

void FakeNccl::record(Event event, Stream stream) {
  if (stream == nullptr) return event_of(event)->set();
  static_cast<FakeStream*>(stream)->push([state = event_of(event)] { state->set(); });
}

void FakeNccl::make_wait(Stream stream, Event event) {
  if (stream == nullptr) return event_of(event)->wait();
  static_cast<FakeStream*>(stream)->push([state = event_of(event)] { state->wait(); });
}

bool FakeNccl::happened(Event event) {
  EventState& state = *event_of(event);
  const std::scoped_lock lock(state.mutex);
  return state.happened;
}

}  // namespace trireme::testing
