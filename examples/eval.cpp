// How well a saved model predicts a text, and how many questions it answers rightly, on any mesh:
//
//   build/bin/eval --checkpoint run1 --data book.txt --stride 128
//   build/bin/eval --checkpoint run1 --data dialogues.jsonl --chat-template chatml
//   build/bin/eval --checkpoint run1 --choices questions.jsonl --mesh dp=2,tp=2 --json
//   build/bin/eval --checkpoint run1 --ids ids.json --logits logits.npy
//
// Read next: train/gpt/text_scores.h, train/gpt/multiple_choice.h.
#include <fmt/format.h>

#include <cmath>

#include "core/io.h"
#include "data/corpus.h"
#include "data/json.h"
#include "data/npy.h"
#include "train/gpt/dialogue_data.h"
#include "train/gpt/inference.h"
#include "train/gpt/multiple_choice.h"
#include "train/launch/ranks.h"
#include "train/program/output.h"
#include "train/program/program.h"
#include "train/program/screen.h"
#include "train/step/evaluate.h"

using namespace trireme;

namespace {

struct Options {
  GptOptions run;  // mesh, device, threads
  std::string checkpoint, adapter, data, chat_template, choices, ids, logits;
  std::optional<std::int64_t> context, stride;
  std::int64_t batch = 4;
  bool json = false, each = false, ema = false;
};

void declare(Flags& flags, Options& o) {
  flags.example("eval --checkpoint run1 --data book.txt --stride 128");
  flags.group("what");
  flags.add("checkpoint", "PATH", o.checkpoint, "the --out folder of train_gpt, or one checkpoint, as for generate");
  flags.add("adapter", "DIR", o.adapter,
            "adapters that the library PEFT has saved, or convert peft, for the model of --checkpoint");
  flags.not_empty();
  flags.add_switch("ema", o.ema, "the average of the weights, which a run with --ema-decay has", true);
  flags.add(
      "data", "PATH", o.data,
      "a text file, a folder of them, or token shards: loss per token, perplexity, bits per byte; or dialogues in a "
      ".jsonl file: loss of the answers");
  flags.add(
      "context", "N", o.context, "model",
      "tokens of a window of --data, or of a row of dialogues, at most; model: its context. Published models name "
      "contexts of 32,768 tokens and more",
      Range::count());
  flags.only_with("data", "given", [&o] { return !o.data.empty(); });
  flags.add("stride", "N", o.stride, "context",
            "tokens from one window of --data to the next; fewer give each token more context, and take longer",
            Range::count());
  flags.only_with("data", "given", [&o] { return !o.data.empty(); });
  flags.add("chat-template", "FILE", o.chat_template, "of dialogues, as for train_gpt; without it, that of the model");
  flags.only_with("data", "a .jsonl file", [&o] { return is_json_lines(o.data); });
  flags.add("choices", "FILE", o.choices,
            "questions with answers, a JSON object on each line (HellaSwag, ARC, CORE): how many are answered rightly");
  flags.add("ids", "FILE", o.ids, "a JSON list of token ids, for --logits");
  flags.add("logits", "FILE", o.logits, "where the logits of --ids are written: .npy, f32 [T, V]");
  flags.only_with("ids", "given", [&o] { return !o.ids.empty(); });
  flags.group("how");
  declare_ranks(flags, o.run, "ranks along dp, tp, pp, cp and ep, as in dp=2,tp=2; the results are the same");
  flags.add("batch", "N", o.batch, "sequences in a forward on one dp rank, at most", Range::count());
  flags.group("output");
  flags.add_switch("json", o.json, "print one JSON object", true);
  flags.add_switch("each", o.each,
                   "with --choices: a line of JSON for each question, with its log-probabilities; without --json, the "
                   "sum is then printed on standard error",
                   true);
  flags.only_with("choices", "given", [&o] { return !o.choices.empty(); });
}

void validate_request(const Options& o) {
  if (o.checkpoint.empty())
    fail(ExitCode::usage, "checkpoint", "--checkpoint is missing; expected the --out folder of train_gpt");
  if (o.data.empty() && o.choices.empty() && o.ids.empty())
    fail(ExitCode::usage, "eval", "there is nothing to do; expected --data, --choices or --ids; give one of them");
  if (!o.ids.empty() && o.logits.empty())
    fail(ExitCode::usage, "logits", "--ids {} without --logits; expected a file to write; give --logits FILE.npy",
         o.ids);
  if (!o.logits.empty()) require_own_kind("--logits", o.logits, array_file);
}

std::vector<std::int32_t> read_ids(const std::string& path, std::int64_t vocab, std::int64_t context) {
  const nlohmann::json list = parse_json(read_file(path, read_limits::prompt), path);
  std::vector<std::int32_t> ids;
  for (const auto& id : list) {
    if (!list.is_array() || !id.is_number_integer() || id < 0 || id >= vocab)
      fail(ExitCode::data, "eval", "{}: entry {} is {}; expected a list of token ids from 0 to {}", path, ids.size(),
           shown(id), vocab - 1);
    ids.push_back(id.get<std::int32_t>());
  }
  if (ids.empty() || static_cast<std::int64_t>(ids.size()) > context)
    fail(ExitCode::data, "eval", "{} has {} token ids; expected 1 to {}, the model's context", path, ids.size(),
         context);
  return ids;
}

/// Writes the logits of --ids. Every rank takes part.
void write_logits(Gpt& model, const Options& o, std::int64_t vocab) {
  const std::vector<std::int32_t> ids = read_ids(o.ids, vocab, model.context());
  const Tensor logits = sequence_logits(model, ids);  // [T, V] on the last stage
  if (logits.defined() && model.mesh().coord(Axis::dp) == 0 && model.mesh().coord(Axis::tp) == 0 &&
      model.mesh().coord(Axis::cp) == 0)
    write_npy(o.logits, view::slice(logits, 1, 0, vocab));
}

/// What is printed; the same on all ranks.
struct Result {
  nlohmann::ordered_json json;
  std::string text, each, warning;
};

/// Throws ExitCode::numerical for a score that is NaN or infinite: the model's weights or logits must be, too.
void require_finite(double score, std::string_view name) {
  if (!std::isfinite(score))
    fail(ExitCode::numerical, "eval",
         "{} is {}; expected a finite number; the model's logits are not finite, so it was not trained well; use "
         "another checkpoint",
         name, score);
}

void add_text(Result& result, const TextScore& score, std::int64_t stride) {
  require_finite(score.loss, "the loss");
  result.json["tokens"] = score.tokens;
  result.json["bytes"] = score.bytes;
  result.json["stride"] = stride;
  result.json["loss"] = score.loss;
  result.json["perplexity"] = score.perplexity();
  result.json["bits_per_byte"] = score.bits_per_byte();
  result.text += fmt::format("{} tokens, {} bytes, stride {}: loss {:.4f}, perplexity {:.4f}, bits per byte {:.4f}\n",
                             score.tokens, score.bytes, stride, score.loss, score.perplexity(), score.bits_per_byte());
}

/// The loss of the answers in dialogues.
void add_dialogues(Result& result, LanguageModel& model, const PackedDialogues& data, std::int64_t length,
                   std::int64_t batch) {
  const DialogueReport& report = data.report();
  const double loss = loss_of_rows(model, data, length, batch);
  require_finite(loss, "the loss");
  result.json["dialogues"] = report.dialogues;
  result.json["targets"] = report.targets;
  result.json["loss"] = loss;
  result.json["perplexity"] = std::exp(loss);
  result.text +=
      fmt::format("{}\nloss of a target {:.4f}, perplexity {:.4f}\n", describe(report), loss, std::exp(loss));
}

void add_choices(Result& result, const std::vector<Question>& questions, const ScoredQuestions& scored,
                 std::int64_t context) {
  const ChoiceScore& s = scored.score;
  result.json["questions"] = s.questions;
  result.json["cut"] = s.cut;
  result.json["accuracy"] = s.accuracy;
  result.json["accuracy_per_token"] = s.accuracy_per_token;
  result.json["accuracy_per_byte"] = s.accuracy_per_byte;
  result.text += fmt::format("{} questions: accuracy {:.4f}, per token {:.4f}, per byte {:.4f}\n", s.questions,
                             s.accuracy, s.accuracy_per_token, s.accuracy_per_byte);
  if (s.cut > 0)
    result.warning = fmt::format(
        "{} of {} questions {} longer than the model's context of {} tokens: {} beginning was "
        "cut off",
        s.cut, s.questions, s.cut == 1 ? "is" : "are", context, s.cut == 1 ? "its" : "their");
  for (std::size_t q = 0; q < questions.size(); ++q) {
    nlohmann::ordered_json options = nlohmann::json::array();
    for (std::size_t i = 0; i < scored.options[q].size(); ++i) {
      const ContinuationScore& option = scored.options[q][i];
      require_finite(option.logprob, fmt::format("the log-probability of option {} of question {}", i, q));
      options.push_back({{"logprob", option.logprob},
                         {"tokens", option.tokens},
                         {"bytes", questions[q].options[i].bytes},
                         {"greedy", option.greedy}});
    }
    const nlohmann::ordered_json line = {{"question", q},
                                         {"answer", questions[q].answer},
                                         {"right", scored.chosen[q] == questions[q].answer},
                                         {"options", options}};
    result.each += line.dump() + "\n";
  }
}

Result evaluate(Rank& rank, Options& o, const std::vector<Question>& questions) {
  GptSource source(*rank.world, o.checkpoint, o.adapter);
  if (rank.first()) Screen::of_process().warn(source.description());
  const GptConfig& config = source.config();
  const std::int64_t context = o.context.value_or(config.context);
  if (context > config.context)
    fail(ExitCode::usage, "context", "--context {} is more than the model's context of {}; expected at most that",
         context, config.context);
  const std::unique_ptr<Gpt> model = load_on_mesh(rank, o.run, source, o.ema);
  Result result;
  const std::shared_ptr<const Tokenizer> tokenizer = o.data.empty() && questions.empty() ? nullptr : source.tokenizer();
  if (is_json_lines(o.data)) {
    if (o.stride)
      fail(ExitCode::usage, "stride",
           "--stride {} is for windows of a text, and {} has dialogues; expected none; drop --stride", *o.stride,
           o.data);
    const ChatTemplate chat = o.chat_template.empty() ? source.chat_template()
                                                      : chat_template_named(o.chat_template, "--chat-template",
                                                                            source.usage().special_tokens);
    std::int64_t length = 0;
    const auto length_for = [&](std::int64_t tokens) { return length = row_length(*model, context, tokens); };
    const PackedDialogues dialogues = dialogues_to_evaluate(o.data, chat, length_for, *tokenizer);
    add_dialogues(result, *model, dialogues, length, o.batch);
  } else if (!o.data.empty()) {
    const Corpus corpus = load_corpus({.path = o.data, .val_fraction = 0}, tokenizer);
    const std::int64_t stride = o.stride.value_or(context);
    if (stride > context)
      fail(ExitCode::usage, "stride",
           "--stride {} is more than the context of {}, so tokens would be left out; expected at most that", stride,
           context);
    add_text(result, score_text(*model, context, corpus.train, *tokenizer, stride, o.batch), stride);
  }
  if (!questions.empty())
    add_choices(result, questions, score_questions(*model, *tokenizer, questions, o.batch), model->context());
  if (!o.ids.empty()) write_logits(*model, o, config.vocab);
  return result;
}

void print(const Options& o, const Result& result) {
  Screen& screen = Screen::of_process();
  if (!result.warning.empty()) screen.warning(result.warning);
  if (o.each) write_out(result.each);
  if (o.json) {
    write_out(result.json.dump() + "\n");
  } else if (o.each) {
    screen.warn(result.text.substr(0, result.text.size() - 1));  // standard output is JSON
  } else {
    write_out(result.text);
  }
}

}  // namespace

int main(int argc, char** argv) {
  return run_program([&] {
    Options options;
    Flags flags("eval", "Evaluates a model that train_gpt has saved: loss of a text, answers to questions.");
    declare(flags, options);
    if (!flags.parse_or_print(argc, argv)) return 0;
    require_output();
    validate_request(options);
    flags.refuse_unused();
    resolve_ranks(options.run, flags.config_text());
    const std::vector<Question> questions = options.choices.empty()
                                                ? std::vector<Question>()
                                                : parse_questions(read_file(options.choices), options.choices);
    return run_ranks(options.run, [&](Rank& rank) {
      const Result result = evaluate(rank, options, questions);
      if (rank.first()) print(options, result);
    });
  });
}
