#include "data/parallel_encode.h"

#include <exception>

#include "core/parallel_for.h"

namespace trireme {

namespace {

constexpr std::size_t kPartBytes = 1 << 19;  // large against the cost of a part, small enough to balance the threads

}  // namespace

void append_ids_in_parallel(const Tokenizer& tokenizer, std::string_view text, std::vector<std::int32_t>& ids) {
  std::vector<std::size_t> cuts = {0};
  while (text.size() - cuts.back() > 2 * kPartBytes) {
    const auto cut = tokenizer.safe_cut(text, cuts.back() + kPartBytes);
    if (!cut) break;
    cuts.push_back(*cut);
  }
  cuts.push_back(text.size());
  const std::size_t parts = cuts.size() - 1;
  if (parts == 1 || threads() == 1) return tokenizer.append_ids(text, ids);
  std::vector<std::vector<std::int32_t>> results(parts);
  std::vector<std::exception_ptr> errors(parts);
  parallel_for(static_cast<std::int64_t>(parts), 1, [&](std::int64_t begin, std::int64_t end) {
    for (auto i = static_cast<std::size_t>(begin); i < static_cast<std::size_t>(end); ++i) {
      try {
        tokenizer.append_part_ids(text, cuts[i], cuts[i + 1], results[i]);
      } catch (...) { errors[i] = std::current_exception(); }
    }
  });
  for (const std::exception_ptr& error : errors)
    if (error) std::rethrow_exception(error);
  for (std::vector<std::int32_t>& result : results) {
    ids.insert(ids.end(), result.begin(), result.end());
    result = {};
  }
}

}  // namespace trireme
