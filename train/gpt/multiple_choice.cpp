#include "train/gpt/multiple_choice.h"

#include <algorithm>

#include "core/error.h"

namespace trireme {
namespace {

constexpr const char* here = "questions";

/// The option with the largest value; of equals, the first.
template <class F>
std::size_t best_of(const std::vector<ContinuationScore>& options, const F& value) {
  std::size_t best = 0;
  for (std::size_t i = 1; i < options.size(); ++i)
    if (value(i) > value(best)) best = i;
  return best;
}

/// The option that is chosen for its probability. Of one option: 0 if each of its tokens is the likeliest, otherwise 1.
std::size_t choose(const std::vector<ContinuationScore>& options) {
  if (options.size() == 1) return options[0].greedy ? 0 : 1;
  return best_of(options, [&](std::size_t i) { return options[i].logprob; });
}

ChoiceScore summary(const std::vector<Question>& questions, const ScoredQuestions& scored) {
  std::int64_t right = 0, by_token = 0, by_byte = 0, cut = 0;
  for (std::size_t q = 0; q < questions.size(); ++q) {
    const Question& question = questions[q];
    const std::vector<ContinuationScore>& s = scored.options[q];
    const bool is_right = scored.chosen[q] == question.answer;
    right += is_right;
    cut += std::any_of(s.begin(), s.end(), [](const ContinuationScore& option) { return option.cut > 0; });
    if (s.size() == 1) {
      by_token += is_right, by_byte += is_right;
      continue;
    }
    const auto bytes = [&](std::size_t i) {
      return static_cast<double>(std::max<std::size_t>(1, question.options[i].bytes));
    };
    by_token +=
        best_of(s, [&](std::size_t i) { return s[i].logprob / static_cast<double>(s[i].tokens); }) == question.answer;
    by_byte += best_of(s, [&](std::size_t i) { return s[i].logprob / bytes(i); }) == question.answer;
  }
  const auto all = static_cast<double>(questions.size());
  return {.questions = static_cast<std::int64_t>(questions.size()),
          .cut = cut,
          .accuracy = static_cast<double>(right) / all,
          .accuracy_per_token = static_cast<double>(by_token) / all,
          .accuracy_per_byte = static_cast<double>(by_byte) / all};
}

}  // namespace

Continuation encode_option(const Tokenizer& tokenizer, const Question::Option& option) {
  std::string context = option.context, continuation = option.continuation;
  const std::size_t end = context.find_last_not_of(" \t\n\r\f\v") + 1;  // 0 if there is nothing else
  continuation = context.substr(end) + continuation;
  context.resize(end);
  std::vector<std::int32_t> before = tokenizer.encode_with_special(context);
  Continuation result{.ids = tokenizer.encode_with_special(context + continuation),
                      .first = static_cast<std::int64_t>(before.size())};
  if (result.first == 0) {
    if (!tokenizer.end_of_text())
      fail(ExitCode::data, here, "the context is empty, and the tokenizer has no {} to begin with; give a context",
           end_of_text_name);
    result.ids.insert(result.ids.begin(), *tokenizer.end_of_text());
    result.first = 1;
  }
  if (result.first >= static_cast<std::int64_t>(result.ids.size()))
    fail(ExitCode::data, here, "the answer '{}' has no token of its own; expected a longer answer",
         option.continuation);
  return result;
}

ScoredQuestions score_questions(Gpt& model, const Tokenizer& tokenizer, const std::vector<Question>& questions,
                                std::int64_t batch) {
  std::vector<Continuation> continuations;
  for (const Question& question : questions) {
    for (const Question::Option& option : question.options) {
      try {
        continuations.push_back(encode_option(tokenizer, option));
        continuations.back().where = question.where;
      } catch (const Error& error) { fail(error.code(), here, "{}: {}", question.where, error.reason()); }
    }
  }
  const std::vector<ContinuationScore> scores =
      score_continuations(model, std::move(continuations), tokenizer.vocab_size(), batch);
  ScoredQuestions result;
  auto next = scores.begin();
  for (const Question& question : questions) {
    const auto end = next + static_cast<std::ptrdiff_t>(question.options.size());
    result.options.emplace_back(next, end);
    result.chosen.push_back(choose(result.options.back()));
    next = end;
  }
  result.score = summary(questions, result);
  return result;
}

}  // namespace trireme
