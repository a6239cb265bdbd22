// Implements staged_group.h. Host copies are in pinned memory of the rank's pool and count as communication.
#include "parallel/comm/staged_group.h"

#include <utility>
#include <vector>

#include "parallel/comm/collective.h"
#include "parallel/comm/times.h"

namespace trireme {
namespace {

using comm::Collective;
using comm::CollectiveKind;

bool on_device(const Tensor& x) { return x.defined() && x.device() != Device::cpu; }

/// A host tensor like `x`, which is on a device.
Tensor host_buffer(const Tensor& x) {
  const MemoryScope scope(MemoryCategory::communication);
  return Tensor::empty_pinned(x.shape(), x.dtype(), x.device());
}

Tensor download(const Tensor& x) {
  const CommunicationClock::Scope time(CommunicationClock::Scope::Event::wait);
  Tensor here = host_buffer(x);
  copy(x, here);
  return here;
}

class Staging;
/// The collectives of one group that may have results to upload, in the order of their calls.
struct UnderWay {
  std::vector<std::weak_ptr<Staging>> operations;
  std::uint64_t called = 0;
};

/// The wrapped group's operation, and where its result goes. Done when the result is uploaded. Used on the rank's
/// thread.
class Staging : public Work::State {
 public:
  /// `here` [like there]: the host tensor that will hold the result; both undefined if this rank gets no result.
  /// `line`: the group's collectives under way; null for a message.
  Staging(Work work, Tensor here, Tensor there, std::shared_ptr<UnderWay> line)
      : work_(std::move(work)), here_(std::move(here)), there_(std::move(there)), line_(std::move(line)) {
    if (line_ != nullptr) number_ = ++line_->called;
  }
  // Does not wait or upload during stack unwinding: the wrapped operation may never end.
  ~Staging() override {
    if (std::uncaught_exceptions() > exceptions_) return;
    try {
      finish();
    } catch (...) {  // the wrapped group keeps the error and throws it at its next operation
    }
  }
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;

  void wait() override { finish(); }
  bool done() override {
    if (finished_) return true;
    if (!work_.done()) return false;
    try {
      finish();
    } catch (...) {  // for wait()
    }
    return true;
  }

  /// True if the result's memory overlaps that of `x`.
  bool writes_to(const Tensor& x) const {
    if (finished_ || !there_.defined() || !x.defined() || there_.bytes() == 0 || x.bytes() == 0) return false;
    const auto* const a = static_cast<const std::byte*>(there_.device_address());
    const auto* const b = static_cast<const std::byte*>(x.device_address());
    return a < b + x.bytes() && b < a + there_.bytes();
  }
  /// Operations of a group run one after the other: when one has ended, the results of all earlier ones are ready too.
  void finish() {
    if (!finished_ && line_ != nullptr) finish_earlier();
    finish_this();
    if (error_) std::rethrow_exception(error_);
  }

 private:
  void finish_earlier() {
    for (const auto& place : std::vector(line_->operations)) {
      const auto staging = place.lock();  // null for this one when it is being destroyed
      if (staging && staging->number_ < number_) staging->finish_this();
    }
    std::erase_if(line_->operations, [](const auto& place) {
      const auto staging = place.lock();
      return !staging || staging->finished_;
    });
  }

  void finish_this() {
    if (finished_) return;
    try {
      work_.wait();
      if (here_.defined()) upload();
    } catch (...) { error_ = std::current_exception(); }
    finished_ = true;
    here_ = there_ = Tensor();
  }

  void upload() {
    const CommunicationClock::Scope time(CommunicationClock::Scope::Event::wait);
    copy(here_, there_);
  }

  Work work_;
  Tensor here_, there_;
  std::shared_ptr<UnderWay> line_;
  std::uint64_t number_ = 0;  // in the line
  bool finished_ = false;
  std::exception_ptr error_;
  int exceptions_ = std::uncaught_exceptions();
};

class StagedGroup final : public comm::CollectiveGroup {
 public:
  explicit StagedGroup(std::shared_ptr<ProcessGroup> host)
      : CollectiveGroup(host->name(), host->rank(), host->members()), host_(std::move(host)) {}

  bool verifies() const override { return host_->verifies(); }
  SumOrder fastest_order() const override { return host_->fastest_order(); }
  void abandon() override { host_->abandon(); }

  std::shared_ptr<ProcessGroup> subgroup(const std::vector<int>& world_ranks, const std::string& name) override {
    return staged(host_->subgroup(world_ranks, name));
  }

  Work send(Tensor x, int to, int tag) override {
    if (!on_device(x)) return host_->send(std::move(x), to, tag);
    return send_final(std::move(x), to, tag);  // the download is already a copy
  }

  Work send_final(Tensor x, int to, int tag) override {
    if (!on_device(x)) return host_->send_final(std::move(x), to, tag);
    comm::check_message("send", x, to, tag, *this);
    return host_->send_final(download(x), to, tag);
  }

  Work recv(Tensor y, int from, int tag) override {
    if (!on_device(y)) return host_->recv(std::move(y), from, tag);
    comm::check_message("recv", y, from, tag, *this);
    const Tensor here = host_buffer(y);
    return Work(std::make_shared<Staging>(host_->recv(here, from, tag), here, y.detach(), nullptr));
  }

 protected:
  Work submit(Collective c, Launch launch) override {
    if (!on_device(c.x) && !on_device(c.y)) return comm::dispatch(*host_, c, launch);
    comm::check(c, *this);
    require_one_device(comm::name(c.kind), {&c.x, &c.y});
    finish_before(c);
    // Whether this rank reads x, and the one tensor that it writes, if any.
    const bool is_root = rank() == c.root,
               to_root = c.kind == CollectiveKind::gather || c.kind == CollectiveKind::reduce;
    const bool from_root = c.kind == CollectiveKind::broadcast || c.kind == CollectiveKind::scatter;
    const bool two_tensors =
        c.kind != CollectiveKind::all_reduce && c.kind != CollectiveKind::broadcast && c.kind != CollectiveKind::reduce;
    const bool reads = !from_root || is_root;
    const bool writes = to_root ? is_root : c.kind != CollectiveKind::broadcast || !is_root;
    const Tensor there = !writes ? Tensor() : two_tensors ? c.y.detach() : c.x.detach();

    Collective on_host = c;
    if (c.x.defined()) on_host.x = !reads && two_tensors ? Tensor() : reads ? download(c.x) : host_buffer(c.x);
    on_host.y = two_tensors && writes ? host_buffer(c.y) : Tensor();
    const Tensor here = !writes ? Tensor() : two_tensors ? on_host.y : on_host.x;
    const auto staging = std::make_shared<Staging>(comm::dispatch(*host_, on_host, launch), here, there, under_way_);
    under_way_->operations.push_back(staging);
    return Work(staging);
  }

 private:
  // First finishes the earlier operations that still have to write to this one's tensors; all others stay under way.
  void finish_before(const Collective& c) {
    for (const auto& earlier : std::vector(under_way_->operations)) {
      const auto staging = earlier.lock();
      if (staging && (staging->writes_to(c.x) || staging->writes_to(c.y))) staging->finish();
    }
  }

  std::shared_ptr<ProcessGroup> host_;
  std::shared_ptr<UnderWay> under_way_ = std::make_shared<UnderWay>();
};

}  // namespace

std::shared_ptr<ProcessGroup> staged(std::shared_ptr<ProcessGroup> host) {
  return std::make_shared<StagedGroup>(std::move(host));
}

}  // namespace trireme
