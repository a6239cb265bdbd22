#include "train/step/replica_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <sstream>

#include "core/error.h"
#include "core/hash.h"
#include "parallel/comm/call_site.h"
#include "parallel/comm/texts.h"
#include "parallel/comm/values.h"
#include "parallel/mesh/verify.h"

namespace trireme {
namespace {

/// A tensor that is listed for several groups is hashed only once.
std::vector<std::uint64_t> hashes_of(const std::vector<ReplicatedTensor>& copies) {
  std::map<const void*, std::uint64_t> known;  // by address: only tensors that are not empty
  std::vector<std::uint64_t> hashes;
  for (const ReplicatedTensor& copy : copies) {
    if (copy.value.count() == 0) {
      hashes.push_back(0);
      continue;
    }
    const auto [found, is_new] = known.emplace(copy.value.device_address(), 0);
    if (is_new) found->second = hash_of(copy.value);
    hashes.push_back(found->second);
  }
  return hashes;
}

/// True if all ranks of the group have the same hash.
bool agrees(ProcessGroup& group, std::uint64_t hash) {
  const std::vector<std::uint64_t> hashes = all_gather_values(group, hash);
  return std::all_of(hashes.begin(), hashes.end(), [&](std::uint64_t h) { return h == hash; });
}

bool all_agree(const std::vector<ReplicatedTensor>& copies, const std::vector<std::uint64_t>& hashes,
               const DeviceMesh& mesh) {
  std::vector<ProcessGroup*> groups;
  for (const ReplicatedTensor& copy : copies)
    if (std::find(groups.begin(), groups.end(), copy.group) == groups.end()) groups.push_back(copy.group);
  const Tensor parted = Tensor::zeros({1}, DType::i64);
  for (ProcessGroup* group : groups) {
    Hasher hasher;
    for (std::size_t i = 0; i < copies.size(); ++i)
      if (copies[i].group == group) hasher.add(std::as_bytes(std::span(&hashes[i], 1)));
    if (!agrees(*group, hasher.value())) ++*parted.data<std::int64_t>();
  }
  mesh.world().all_reduce(parted).wait();
  return *parted.data<std::int64_t>() == 0;
}

std::string list(const std::vector<int>& ranks) {
  return fmt::format("rank{} {}", ranks.size() == 1 ? "" : "s", fmt::join(ranks, ", "));
}

std::string describe_one(const std::string& tensor, const std::map<std::string, std::vector<int>>& by_hash) {
  std::vector<std::vector<int>> parties;  // the largest first; of equal sizes, the one with the lowest rank first
  std::size_t copies = 0;
  for (const auto& [hash, ranks] : by_hash) {
    parties.push_back(ranks);
    copies += ranks.size();
  }
  std::sort(parties.begin(), parties.end(), [](const auto& a, const auto& b) {
    return a.size() != b.size() ? a.size() > b.size() : a.front() < b.front();
  });
  if (2 * parties.front().size() <= copies) {
    std::string text = list(parties.front());
    for (std::size_t i = 1; i < parties.size(); ++i) text += " and " + list(parties[i]);
    return fmt::format("{} differs between {}, and no majority tells which is right", tensor, text);
  }
  std::vector<int> odd;
  for (std::size_t i = 1; i < parties.size(); ++i) odd.insert(odd.end(), parties[i].begin(), parties[i].end());
  std::sort(odd.begin(), odd.end());
  return fmt::format("{} on {} differs from {} copies that are equal, on {}", tensor, list(odd), parties.front().size(),
                     list(parties.front()));
}

}  // namespace

std::string describe_difference(const std::vector<CopyHash>& hashes) {
  constexpr std::size_t most_named = 3;                                    // in addition to the first
  std::map<std::string, std::map<std::string, std::vector<int>>> tensors;  // name -> hash -> ranks
  for (const CopyHash& h : hashes) tensors[h.tensor][h.hash].push_back(h.rank);
  std::string first;
  std::vector<std::string> others;
  for (const auto& [tensor, by_hash] : tensors) {
    if (by_hash.size() == 1) continue;
    if (first.empty()) {
      first = describe_one(tensor, by_hash);
    } else {
      others.push_back(tensor);
    }
  }
  if (others.empty()) return first;
  const std::size_t named = std::min(others.size(), most_named);
  const std::string names =
      fmt::format("{}", fmt::join(others.begin(), others.begin() + static_cast<std::ptrdiff_t>(named), ", "));
  const std::string more = others.size() > named ? fmt::format(" and {} more", others.size() - named) : "";
  return fmt::format("{}; {}{} differ{} too", first, names, more, others.size() == 1 ? "s" : "");
}

void check_replicas(const std::vector<ReplicatedTensor>& copies, const DeviceMesh& mesh) {
  const CallSite site("the check of copies");
  const std::vector<std::uint64_t> hashes = hashes_of(copies);
  if (all_agree(copies, hashes, mesh)) return;
  std::string mine;
  std::set<std::string> told;
  for (std::size_t i = 0; i < copies.size(); ++i) {
    const std::string place = to_string(copies[i].rectangle.start);
    const std::string tensor =
        copies[i].name + (place.find_first_of("123456789") == std::string::npos ? "" : " at " + place);
    if (told.insert(tensor).second) mine += fmt::format("{:016x}\t{}\n", hashes[i], tensor);
  }
  const std::vector<std::string> texts = gather_texts(mesh.world(), mine);
  std::vector<CopyHash> all;
  for (std::size_t rank = 0; rank < texts.size(); ++rank) {
    std::istringstream lines(texts[rank]);
    for (std::string line; std::getline(lines, line);) {
      const std::size_t tab = line.find('\t');
      all.push_back({line.substr(tab + 1), static_cast<int>(rank), line.substr(0, tab)});
    }
  }
  const std::string what = broadcast_text(mesh.world(), mesh.rank() == 0 ? describe_difference(all) : "");
  fail(ExitCode::retryable, "replicas",
       "{}; expected the same bits; nothing was saved: a bit changed in that rank's memory or processor; start again "
       "with --resume auto, and without that machine if it happens again",
       what);
}

}  // namespace trireme
