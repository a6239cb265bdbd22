#include "parallel/comm/verifying_group.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "core/error.h"
#include "parallel/comm/call_site.h"
#include "parallel/comm/collective.h"
#include "parallel/comm/values.h"

namespace trireme {
namespace {

using comm::Collective;

/// One rank's next operation as text, so that the error can show it.
struct Fingerprint {
  std::array<char, 248> text{};
  std::uint64_t sequence = 0;

  std::string_view view() const { return {text.data(), strnlen(text.data(), text.size())}; }
  bool operator==(const Fingerprint&) const = default;
};

class VerifyingGroup final : public comm::CollectiveGroup {
 public:
  explicit VerifyingGroup(std::shared_ptr<ProcessGroup> inner)
      : CollectiveGroup(inner->name(), inner->rank(), inner->members()),
        inner_(std::move(inner)),
        channel_(size() > 1 ? inner_->subgroup(members(), name() + " (verify)") : nullptr) {}

  bool verifies() const override { return true; }
  SumOrder fastest_order() const override { return inner_->fastest_order(); }
  void abandon() override { inner_->abandon(); }

  std::shared_ptr<ProcessGroup> subgroup(const std::vector<int>& world_ranks, const std::string& name) override {
    return std::make_shared<VerifyingGroup>(inner_->subgroup(world_ranks, name));
  }
  Work send(Tensor x, int to, int tag) override { return inner_->send(std::move(x), to, tag); }
  Work send_final(Tensor x, int to, int tag) override { return inner_->send_final(std::move(x), to, tag); }
  Work recv(Tensor y, int from, int tag) override { return inner_->recv(std::move(y), from, tag); }

 protected:
  Work submit(Collective c, Launch launch) override {
    comm::check(c, *this);
    if (size() > 1) compare(fmt::format("{} in {}", to_string(c.signature(size())), CallSite::current()));
    return comm::dispatch(*inner_, c, launch);
  }

 private:
  /// Collective: all ranks find the same difference, if any.
  void compare(const std::string& operation) {
    Fingerprint mine;
    std::copy_n(operation.data(), std::min(operation.size(), mine.text.size()), mine.text.data());
    mine.sequence = ++sequence_;
    const std::vector<Fingerprint> ranks = all_gather_values(*channel_, mine);
    const auto odd = std::find_if(ranks.begin(), ranks.end(), [&](const Fingerprint& f) { return f != ranks[0]; });
    if (odd == ranks.end()) return;
    fail(ExitCode::desync, "verify",
         "operation #{} of group '{}' differs between ranks: {} is at {}, {} is at {} (#{}); every rank must call the "
         "same operations in the same order",
         ranks[0].sequence, name(), comm::list_ranks(*this, {0}), ranks[0].view(),
         comm::list_ranks(*this, {static_cast<int>(odd - ranks.begin())}), odd->view(), odd->sequence);
  }

  std::shared_ptr<ProcessGroup> inner_;
  std::shared_ptr<ProcessGroup> channel_;  // the same ranks; does not queue behind background operations
  std::uint64_t sequence_ = 0;
};

}  // namespace

std::shared_ptr<ProcessGroup> verifying(std::shared_ptr<ProcessGroup> inner) {
  return std::make_shared<VerifyingGroup>(std::move(inner));
}

}  // namespace trireme
