// Tokenized dialogues packed into rows of the model's context: each row has several dialogues, which do not see each
// other, and whose positions begin at 0.
//
//   inputs      a b c d | x y z | pad pad        each dialogue without its last token
//   targets    -1 c d e | -1 z e | -1 -1         the token after each input, if the assistant wrote it
//   documents   0 0 0 0 | 4 4 4 | 7 7            where each token's dialogue begins (RunState::document_starts)
//   positions   0 1 2 3 | 0 1 2 | 0 1
//
// Dialogues are placed by best fit, the longest first: each goes into the fullest row that has room. What of a dialogue
// is longer than the context is cut off at its end; a dialogue without a target in what is left is dropped. The rows
// are made once, and each epoch has another order of them, a pure function of (seed, epoch).
// Read next: data/chat/dialogues.h.
#pragma once

#include <cstdint>
#include <vector>

#include "data/chat/dialogues.h"
#include "data/source.h"

namespace trireme {

/// What packing did.
struct DialogueReport {
  std::int64_t dialogues = 0, dropped = 0;  ///< packed; left out, without a target
  std::int64_t rows = 0;
  std::int64_t tokens = 0, targets = 0;  ///< inputs of dialogues, and how many have a target
  std::int64_t cut = 0, padding = 0;     ///< tokens that were cut off; inputs that are padding
};

/// Dialogues packed into rows of the length of the context: see the top of this file.
class PackedDialogues : public ValidationSource {
 public:
  /// `shuffle`: epochs have orders of their own, as in training. Throws ExitCode::data if no dialogue has a target.
  PackedDialogues(const std::vector<TokenizedDialogue>& dialogues, std::int64_t context, std::uint64_t seed,
                  bool shuffle);

  std::int64_t count() const override { return report_.rows; }
  std::int64_t targets() const override { return report_.targets; }
  std::optional<std::int64_t> targets_of(std::int64_t first, std::int64_t count) const override;
  Batch make_batch(std::int64_t first, std::int64_t count) const override;
  const DialogueReport& report() const { return report_; }

 private:
  struct Row {
    std::vector<std::int32_t> inputs, targets, documents;
    std::int64_t valid = 0;  // targets
  };
  void add(Row& row, const TokenizedDialogue& dialogue, std::int64_t length);
  std::int64_t row_of(std::int64_t sample) const;

  std::int64_t context_;
  std::uint64_t seed_;
  bool shuffle_;
  std::vector<Row> rows_;
  DialogueReport report_;
};

}  // namespace trireme
