#include "parallel/comm/algorithms/message_group.h"

#include <chrono>
#include <thread>
#include <utility>

#include "parallel/comm/common/operation_queue.h"
#include "parallel/comm/rank_order.h"
#include "parallel/comm/times.h"

namespace trireme::comm {
namespace {

using Action = Step::Action;
using Clock = std::chrono::steady_clock;

double now() { return std::chrono::duration<double>(Clock::now().time_since_epoch()).count(); }

void sleep_until(double seconds) {
  const auto due = std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  std::this_thread::sleep_until(Clock::time_point(due));
}

/// The chunks of one collective on one rank: steps.h says what they are.
class Buffer {
 public:
  /// `partial`: sums of a part of the ranks travel, so 16-bit types are added in f32.
  Buffer(const Collective& c, const ProcessGroup& group, bool partial) : c_(c), n_(group.size()), rank_(group.rank()) {
    const bool reduces = c.kind == CollectiveKind::all_reduce || c.kind == CollectiveKind::reduce ||
                         c.kind == CollectiveKind::reduce_scatter;
    const bool sums = partial && reduces && c.op == ReduceOp::sum;
    const DType own = c.x.defined() ? c.x.dtype() : c.y.dtype();
    const DType dtype = sums && (own == DType::bf16 || own == DType::f16) ? DType::f32 : own;
    const bool is_root = rank_ == c.root;
    switch (c.kind) {
      case CollectiveKind::all_reduce:
      case CollectiveKind::broadcast:
        whole_ = flat(cast(c.x, dtype));
        break;
      case CollectiveKind::reduce:
      case CollectiveKind::reduce_scatter:  // x stays as it is
        whole_ = flat(dtype == own ? clone(c.x) : cast(c.x, dtype));
        break;
      case CollectiveKind::all_gather:
      case CollectiveKind::gather:
        whole_ = c.kind == CollectiveKind::gather && !is_root ? Tensor() : flat(c.y);
        lone_ = flat(c.x);
        break;
      case CollectiveKind::scatter:
        whole_ = is_root ? flat(c.x) : Tensor();
        lone_ = flat(c.y);
        break;
      default:  // all_to_all
        whole_ = flat(c.x);
        second_ = flat(c.y);
        break;
    }
    if (whole_.defined() && (c.kind == CollectiveKind::all_gather || c.kind == CollectiveKind::gather)) {
      Tensor place = chunk(rank_);
      copy(lone_, place);
    }
  }

  DType dtype() const { return (whole_.defined() ? whole_ : lone_).dtype(); }

  /// A view of one chunk.
  Tensor chunk(int i) {
    if (i >= n_) {
      if (!second_.defined()) second_ = Tensor::empty({n_ * count(rank_)}, whole_.dtype());
      const std::int64_t each = second_.count() / n_;
      return view::slice(second_, 0, (i - n_) * each, each);
    }
    if (!whole_.defined()) return lone_;
    return view::slice(whole_, 0, begin(i), count(i));
  }
  /// A view of several, if they lie one after the other.
  Tensor run(const std::vector<int>& chunks) {
    const int first = chunks.front(), last = chunks.back();
    for (std::size_t k = 0; k < chunks.size(); ++k)
      if (chunks[k] != first + static_cast<int>(k)) return {};
    if (chunks.size() == 1 || last >= n_) return chunks.size() == 1 ? chunk(first) : Tensor();
    return view::slice(whole_, 0, begin(first), begin(last + 1) - begin(first));
  }
  std::int64_t elements(const std::vector<int>& chunks) {
    std::int64_t sum = 0;
    for (const int i : chunks) sum += chunk(i).count();
    return sum;
  }

  /// Writes the result into the collective's tensor.
  void finish() {
    Tensor to = c_.y;
    switch (c_.kind) {
      case CollectiveKind::all_reduce:
      case CollectiveKind::reduce:
        to = flat(c_.x);
        if (to.raw() != whole_.raw() && (c_.kind == CollectiveKind::all_reduce || rank_ == c_.root)) copy(whole_, to);
        return;
      case CollectiveKind::reduce_scatter:
        to = flat(c_.y);
        return copy(chunk(rank_), to);
      case CollectiveKind::scatter:
        if (rank_ == c_.root) copy(chunk(rank_), lone_);
        return;
      default:
        return;
    }
  }

 private:
  static Tensor flat(const Tensor& x) { return view::reshape(x.detach(), {x.count()}); }
  std::int64_t begin(int i) const { return whole_.count() * i / n_; }
  std::int64_t count(int i) const { return begin(i + 1) - begin(i); }

  const Collective& c_;
  int n_, rank_;
  Tensor whole_, lone_, second_;
};

/// A recv that completes when the message has arrived and its time on the artificial links is over.
class DelayedReceive : public Work::State {
 public:
  DelayedReceive(Work header, Work payload, Tensor arrival)
      : header_(std::move(header)), payload_(std::move(payload)), arrival_(std::move(arrival)) {}
  void wait() override {
    const CommunicationClock::Scope time(CommunicationClock::Scope::Event::wait);
    header_.wait();
    payload_.wait();
    sleep_until(arrival_.item());
  }
  bool done() override { return header_.done() && payload_.done() && now() >= arrival_.item(); }

 private:
  Work header_, payload_;
  Tensor arrival_;  // f64 [1], seconds of the steady clock
};

class MessageGroup final : public CollectiveGroup, public std::enable_shared_from_this<MessageGroup> {
 public:
  MessageGroup(std::shared_ptr<ProcessGroup> inner, const AlgorithmOptions& options)
      : CollectiveGroup(inner->name(), inner->rank(), inner->members()),
        inner_(std::move(inner)),
        channel_(inner_->subgroup(members(), name() + " (messages)")),
        options_(options),
        queue_([this](const Collective& c, std::uint64_t) { run(c); }, [this] { inner_->abandon(); }) {
    if (const std::string why = refusal(options_.algorithm, spec(CollectiveKind::all_reduce, 0)); !why.empty())
      fail(ExitCode::usage, "--collectives", "group '{}': {}; change --collectives or --mesh", name(), why);
  }

  SumOrder fastest_order() const override {
    return options_.algorithm == Algorithm::exact || options_.exact_sums ? SumOrder::ranks : SumOrder::any;
  }
  void abandon() override { inner_->abandon(); }
  bool verifies() const override { return inner_->verifies(); }

  std::shared_ptr<ProcessGroup> subgroup(const std::vector<int>& world_ranks, const std::string& name) override {
    return with_algorithm(inner_->subgroup(world_ranks, name), options_);
  }

  Work send(Tensor x, int to, int tag) override {
    if (options_.network == nullptr) return inner_->send(std::move(x), to, tag);
    check_message("send", x, to, tag, *this);
    return timed_send(*inner_, clone(x), to, tag, false);
  }
  Work send_final(Tensor x, int to, int tag) override {
    if (options_.network == nullptr) return inner_->send_final(std::move(x), to, tag);
    check_message("send", x, to, tag, *this);
    return timed_send(*inner_, x.detach(), to, tag, false);
  }
  Work recv(Tensor y, int from, int tag) override {
    if (options_.network == nullptr) return inner_->recv(std::move(y), from, tag);
    check_message("recv", y, from, tag, *this);
    return timed_recv(*inner_, std::move(y), from, tag);
  }

 protected:
  Work submit(Collective collective, Launch launch) override {
    return queue_.push(shared_from_this(), std::move(collective), launch);
  }

 private:
  CollectiveSpec spec(CollectiveKind kind, int root) const {
    CollectiveSpec spec{.kind = kind, .ranks = size(), .root = root};
    for (const int member : members())
      spec.nodes.push_back(options_.network == nullptr ? 0 : options_.network->links().node_of(member));
    return spec;
  }

  /// Sums in rank order are those of `exact`.
  Algorithm algorithm_of(const Collective& c) const {
    const bool sum =
        (c.kind == CollectiveKind::all_reduce || c.kind == CollectiveKind::reduce_scatter) && c.op == ReduceOp::sum;
    return sum && c.order == SumOrder::ranks ? Algorithm::exact : algorithm_for(options_.algorithm, c.kind);
  }

  void run(const Collective& c) {
    const Algorithm algorithm = algorithm_of(c);
    if (c.kind == CollectiveKind::barrier || (algorithm == Algorithm::exact && options_.network == nullptr))
      return dispatch(*inner_, c, Launch::lazy).wait();
    Buffer buffer(c, *this, algorithm != Algorithm::exact);
    std::vector<Work> sent;
    for (const Step& step : steps_of(algorithm, spec(c.kind, c.root), rank())) make(step, c, buffer, sent);
    for (Work& work : sent) work.wait();
    buffer.finish();
  }

  void make(const Step& step, const Collective& c, Buffer& buffer, std::vector<Work>& sent) {
    if (step.action == Action::combine) return combine_chunks(step, c, buffer);
    const std::int64_t count = buffer.elements(step.chunks);
    if (count == 0) return;  // on the other rank, too
    Tensor run = buffer.run(step.chunks);
    const bool whole = run.defined();
    if (step.action == Action::send) {
      Tensor message = whole ? clone(run) : Tensor::empty({count}, buffer.dtype());
      if (!whole) between(message, step, buffer, [](Tensor part, const Tensor& chunk) { copy(chunk, part); });
      sent.push_back(options_.network == nullptr ? channel_->send_final(message, step.peer, 0)
                                                 : timed_send(*channel_, message, step.peer, 0, true));
      return;
    }
    const bool in_place = whole && step.action == Action::receive;
    const Tensor message = in_place ? run : Tensor::empty({count}, buffer.dtype());
    (options_.network == nullptr ? channel_->recv(message, step.peer, 0) : timed_recv(*channel_, message, step.peer, 0))
        .wait();
    if (in_place) return;
    between(message, step, buffer, [&](const Tensor& part, Tensor chunk) {
      if (step.action == Action::receive) return copy(part, chunk);
      reduce(c.op, {chunk, part}, chunk);
    });
  }

  /// f(part of the message, chunk) for each chunk of a step.
  template <class F>
  static void between(const Tensor& message, const Step& step, Buffer& buffer, const F& f) {
    std::int64_t at = 0;
    for (const int i : step.chunks) {
      const Tensor chunk = buffer.chunk(i);
      f(view::slice(message, 0, at, chunk.count()), chunk);
      at += chunk.count();
    }
  }

  void combine_chunks(const Step& step, const Collective& c, Buffer& buffer) {
    Tensor to = buffer.chunk(step.chunks.front());
    std::vector<Tensor> from;
    for (std::size_t i = 1; i < step.chunks.size(); ++i) from.push_back(buffer.chunk(step.chunks[i]));
    reduce(c.op, from, to);
  }

  static void reduce(ReduceOp op, const std::vector<Tensor>& from, const Tensor& to) {
    std::vector<const std::byte*> sources;
    for (const Tensor& x : from) sources.push_back(static_cast<const std::byte*>(x.raw()));
    std::byte* destination = static_cast<std::byte*>(to.raw());
    combine(to.dtype(), op, sources, {&destination, 1}, 0, to.count());
  }

  // The header of a message says when it arrives. `x`: nobody writes to it any more. `waits`: until it has left.
  Work timed_send(ProcessGroup& group, Tensor x, int to, int tag, bool waits) {
    const Network::Times times = options_.network->deliver(world_rank(rank()), world_rank(to), x.bytes(), now());
    Work header = group.send_final(Tensor::full({1}, times.arrives, DType::f64), to, 2 * tag);
    Work payload = group.send_final(std::move(x), to, 2 * tag + 1);
    if (waits) sleep_until(times.leaves);
    return Work(
        std::make_shared<DelayedReceive>(std::move(header), std::move(payload), Tensor::zeros({1}, DType::f64)));
  }
  Work timed_recv(ProcessGroup& group, Tensor y, int from, int tag) {
    const Tensor arrival = Tensor::empty({1}, DType::f64);
    Work header = group.recv(arrival, from, 2 * tag);
    return Work(
        std::make_shared<DelayedReceive>(std::move(header), group.recv(std::move(y), from, 2 * tag + 1), arrival));
  }

  std::shared_ptr<ProcessGroup> inner_, channel_;  // the same ranks; the channel has the messages of collectives
  AlgorithmOptions options_;
  OperationQueue queue_;
};

}  // namespace

std::shared_ptr<ProcessGroup> with_algorithm(std::shared_ptr<ProcessGroup> group, const AlgorithmOptions& options) {
  if (group->size() == 1 || (options.algorithm == Algorithm::exact && options.network == nullptr)) return group;
  return std::make_shared<MessageGroup>(std::move(group), options);
}

}  // namespace trireme::comm
