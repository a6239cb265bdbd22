#include "data/parallel_encode.h"

#include <exception>

#include "core/parallel_for.h"

namespace trireme {

namespace {

constexpr std::size_t kPartBytes = 1 << 19;  // large against the cost of a part, small enough to balance the threads

}  // namespace

void encode_in_parallel(const Tokenizer& tokenizer, std::string_view text,
                        const std::function<void(std::span<const std::int32_t>)>& f) {
  const auto most = static_cast<std::size_t>(threads()) * 4;  // parts at once
  for (std::size_t begin = 0; begin < text.size();) {
    std::vector<std::size_t> cuts = {begin};
    while (cuts.size() <= most && text.size() - cuts.back() > 2 * kPartBytes) {
      const auto cut = tokenizer.safe_cut(text, cuts.back() + kPartBytes);
      if (!cut) break;
      cuts.push_back(*cut);
    }
    if (cuts.size() <= most) cuts.push_back(text.size());
    const std::size_t parts = cuts.size() - 1;
    std::vector<std::vector<std::int32_t>> results(parts);
    std::vector<std::exception_ptr> errors(parts);
    parallel_for(static_cast<std::int64_t>(parts), 1, [&](std::int64_t first, std::int64_t last) {
      for (auto i = static_cast<std::size_t>(first); i < static_cast<std::size_t>(last); ++i) {
        try {
          tokenizer.append_part_ids(text, cuts[i], cuts[i + 1], results[i]);
        } catch (...) { errors[i] = std::current_exception(); }
      }
    });
    for (const std::exception_ptr& error : errors)
      if (error) std::rethrow_exception(error);
    for (const std::vector<std::int32_t>& result : results) f(result);
    begin = cuts.back();
  }
}

}  // namespace trireme
