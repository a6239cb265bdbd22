#include "parallel/comm/watch/page.h"

namespace trireme {

std::string_view name(Phase phase) {
  constexpr std::array<std::string_view, phases> names = {
      "data", "forward", "backward", "waiting for communication", "optimizer", "evaluation", "sampling", "saving"};
  return names[static_cast<std::size_t>(phase)];
}

namespace watch {

std::string to_string(const Record& r) {
  const std::string group(r.group.view());
  const auto message = [&](const char* kind, const char* direction) {
    return fmt::format("{}({} {}, tag {}) {} rank {} in group '{}'", kind, r.signature.count, name(r.signature.dtype),
                       r.tag, direction, r.peer, group);
  };
  switch (r.what) {
    case Record::What::send:
      return message("send", "to");
    case Record::What::recv:
      return message("recv", "from");
    case Record::What::subgroup:
      return fmt::format("making of group '{}'", group);
    case Record::What::collective:
      break;
  }
  return fmt::format("{} #{} of group '{}'", comm::to_string(r.signature), r.sequence, group);
}

void Waiting::add(int rank) {
  if (rank >= most_ranks) {
    more = true;
    return;
  }
  ranks[static_cast<std::size_t>(rank) / 64] |= std::uint64_t{1} << (rank % 64);
}

std::vector<int> Waiting::list() const {
  std::vector<int> found;
  for (int rank = 0; rank < most_ranks; ++rank)
    if ((ranks[static_cast<std::size_t>(rank) / 64] >> (rank % 64) & 1U) != 0) found.push_back(rank);
  return found;
}

std::optional<Record> RankPage::record(std::uint64_t number) const {
  if (number == 0) return std::nullopt;
  const auto found = ring[number % records].read();
  return found && found->number == number ? found : std::nullopt;
}

std::vector<Record> RankPage::history() const {
  std::vector<Record> found;
  const std::uint64_t last = recorded;
  for (std::uint64_t number = last > records ? last - records + 1 : 1; number <= last; ++number)
    if (const auto one = record(number)) found.push_back(*one);
  return found;
}

RankPages::RankPages(int ranks) {
  for (int rank = 0; rank < ranks; ++rank) {
    own_.push_back(std::make_unique<RankPage>());
    pages_.push_back(own_.back().get());
  }
}

std::string RankPages::place(int rank) const {
  if (visible(rank)) {
    const auto place = page(rank).place.read();
    if (place && !place->view().empty()) return std::string(place->view());
  }
  return fmt::format("rank {}", rank);
}

}  // namespace watch
}  // namespace trireme
