#include "parallel/comm/texts.h"

#include <algorithm>
#include <cstring>

#include "parallel/comm/values.h"

namespace trireme {
namespace {

/// Every rank's text, padded to the longest, and their lengths; on rank 0 or on all ranks.
std::vector<std::string> gathered(ProcessGroup& group, const std::string& text, bool on_all) {
  const auto sizes = all_gather_values(group, static_cast<std::int64_t>(text.size()));
  const std::int64_t longest = std::max<std::int64_t>(*std::max_element(sizes.begin(), sizes.end()), 1);
  const Tensor mine = Tensor::zeros({longest}, DType::u8);
  std::memcpy(mine.raw(), text.data(), text.size());
  const bool here = on_all || group.rank() == 0;
  const Tensor texts = here ? Tensor::empty({group.size(), longest}, DType::u8) : Tensor();  // [ranks, longest]
  (on_all ? group.all_gather(mine, texts) : group.gather(mine, texts, 0)).wait();
  std::vector<std::string> result;
  for (std::int64_t rank = 0; here && rank < group.size(); ++rank)
    result.emplace_back(static_cast<const char*>(texts.raw()) + rank * longest,
                        static_cast<std::size_t>(sizes[static_cast<std::size_t>(rank)]));
  return result;
}

}  // namespace

std::vector<std::string> gather_texts(ProcessGroup& group, const std::string& text) {
  return gathered(group, text, false);
}

std::vector<std::string> all_gather_texts(ProcessGroup& group, const std::string& text) {
  return gathered(group, text, true);
}

std::string broadcast_text(ProcessGroup& group, const std::string& text, int root) {
  const Tensor size = Tensor::full({1}, 0, DType::i64);
  *size.data<std::int64_t>() = static_cast<std::int64_t>(text.size());
  group.broadcast(size, root).wait();
  const Tensor bytes = Tensor::zeros({std::max<std::int64_t>(*size.data<std::int64_t>(), 1)}, DType::u8);
  if (group.rank() == root) std::memcpy(bytes.raw(), text.data(), text.size());
  group.broadcast(bytes, root).wait();
  return {static_cast<const char*>(bytes.raw()), static_cast<std::size_t>(*size.data<std::int64_t>())};
}

std::string first_text(ProcessGroup& group, const std::string& text) {
  const std::vector<std::string> all = gather_texts(group, text);
  const auto found = std::find_if(all.begin(), all.end(), [](const std::string& t) { return !t.empty(); });
  return broadcast_text(group, found == all.end() ? std::string() : *found);
}

bool any_rank(ProcessGroup& group, bool mine) {
  if (group.size() == 1) return mine;
  const std::int64_t one = mine ? 1 : 0;
  const Tensor sum = Tensor::from(std::span(&one, 1), {1});
  group.all_reduce(sum).wait();
  return *sum.data<std::int64_t>() > 0;
}

void fail_together(ProcessGroup& group, const std::function<void()>& f) {
  std::string problem;  // code, where, what, with zeros between them
  try {
    f();
  } catch (const Error& error) {
    problem = fmt::format("{}{}{}{}{}", static_cast<int>(error.code()), '\0', error.where(), '\0', error.reason());
  }
  problem = first_text(group, problem);
  if (problem.empty()) return;
  const std::size_t first = problem.find('\0'), second = problem.find('\0', first + 1);
  throw Error(static_cast<ExitCode>(std::stoi(problem.substr(0, first))), problem.substr(first + 1, second - first - 1),
              problem.substr(second + 1));
}

}  // namespace trireme
