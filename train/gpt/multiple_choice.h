// Questions with several answers: the model chooses the likeliest.
//
// Spaces at the end of a context count as the beginning of the answer, and both are encoded together, as in lm-eval: a
// space is usually part of the next token.
// Read next: train/gpt/questions.h, which says what a file may hold; train/gpt/text_scores.h.
#pragma once

#include <vector>

#include "train/gpt/questions.h"
#include "train/gpt/text_scores.h"

namespace trireme {

/// The tokens of an option. A context without a token is the end-of-text token; without one, ExitCode::data.
Continuation encode_option(const Tokenizer& tokenizer, const Question::Option& option);

/// The fraction of the questions that were answered correctly, if the answer is that with the largest ...
struct ChoiceScore {
  std::int64_t questions = 0;
  std::int64_t cut = 0;           ///< questions longer than the model's context: their beginning was not seen
  double accuracy = 0;            ///< ... probability
  double accuracy_per_token = 0;  ///< ... mean log-probability of a token
  double accuracy_per_byte = 0;   ///< ... log-probability divided by the bytes of the answer
};

/// The scores of all options of all questions, question by question, and their summary.
struct ScoredQuestions {
  std::vector<std::vector<ContinuationScore>> options;
  std::vector<std::size_t> chosen;  ///< of each question the option with the largest probability
  ChoiceScore score;
};
/// Scores all options of all questions, `batch` at once on a dp rank. Collective over the model's mesh.
ScoredQuestions score_questions(Gpt& model, const Tokenizer& tokenizer, const std::vector<Question>& questions,
                                std::int64_t batch);

}  // namespace trireme
