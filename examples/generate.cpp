// Continues a text with a model that train_gpt has saved, or one in Hugging Face's layout:
//
//   build/bin/generate --checkpoint run1 --prompt "The "
//   build/bin/generate --checkpoint run1 --prompt-file - --samples 3 < beginning.txt
//   build/bin/generate --checkpoint run1 --prompts questions.jsonl --stop '["\n"]' --json > answers.jsonl
//   build/bin/generate --checkpoint run1 --chat --chat-template chat_template.jinja
//   build/bin/generate --checkpoint run1 --questions questions.jsonl --json --mesh dp=2,tp=2
//
// Read next: train/gpt/generate.h, train/gpt/generation_output.h, train/gpt/gpt_source.h.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <optional>

#include "core/cpu/level.h"
#include "core/io.h"
#include "data/file_kind.h"
#include "models/gpt.h"
#include "parallel/comm/texts.h"
#include "train/gpt/conversation.h"
#include "train/gpt/dialogue_data.h"
#include "train/gpt/generate.h"
#include "train/gpt/generation_output.h"
#include "train/gpt/inference.h"
#include "train/gpt/prompts.h"
#include "train/gpt/text_batches.h"
#include "train/launch/ranks.h"
#include "train/options/flags.h"
#include "train/program/input_lines.h"
#include "train/program/output.h"
#include "train/program/program.h"
#include "train/program/screen.h"
#include "train/program/signals.h"
#include "train/program/units.h"
#include "train/validate/validate.h"

using namespace trireme;

namespace {

struct Options {
  GptOptions run;  // mesh, device, threads
  std::string checkpoint, adapter, prompt, prompt_file, prompt_list, ids, questions, stop, stop_tokens, chat_template,
      system;
  GenerateOptions generate;
  std::int64_t samples = 1, seed = 1337, batch = 8;
  bool stop_at_end = true, speed = false, ema = false, json = false, chat = false;

  bool talks() const { return chat || !questions.empty(); }  ///< by a chat template
};

void declare(Flags& flags, Options& o) {
  flags.example("generate --checkpoint run1 --prompt \"The \" --length 200 --temperature 0.8");
  flags.group("what");
  flags.add(
      "checkpoint", "PATH", o.checkpoint,
      "the --out folder of train_gpt, for its newest checkpoint; with /best after it, for the one with the lowest "
      "validation loss; or one checkpoint; or a model in Hugging Face's layout");
  flags.add("adapter", "DIR", o.adapter,
            "adapters that the library PEFT has saved, or convert peft, for the model of --checkpoint");
  flags.not_empty();
  flags.add_switch("ema", o.ema, "the average of the weights, which a run with --ema-decay has", true);
  flags.add("prompt", "TEXT", o.prompt, "what the text begins with");
  flags.add("prompt-file", "FILE", o.prompt_file,
            "file with what the text begins with, its last newline included; -: standard input");
  flags.not_empty();
  flags.add("prompt-ids", "LIST", o.ids, "the tokens that the text begins with: 5,16,49");
  flags.add("prompts", "FILE", o.prompt_list,
            "many prompts: one on each line, or in a .jsonl file one JSON text or object with \"prompt\" or \"ids\" on "
            "each line; -: lines of standard input");
  flags.not_empty();
  flags.add(
      "questions", "FILE", o.questions,
      "many questions, each for a conversation of its own: one on each line, or in a .jsonl file one JSON text or "
      "dialogue on each line, as for fine-tuning (its answer is left out); -: lines of standard input");
  flags.not_empty();
  flags.add("length", "N", o.generate.length, "tokens to generate, at most", Range{.low = 1, .high = 1e15});
  flags.add("samples", "N", o.samples, "texts to generate; the seed of number i, from 0, is --seed + i",
            Range{.low = 1, .high = 1 << 20});
  flags.add_switch("stop-at-end", o.stop_at_end,
                   "a text ends at the tokenizer's end-of-text token; off: it goes on with the next document");
  flags.add("stop", "TEXT", o.stop,
            "a text ends before this string, also if several tokens make it up; several: a JSON list, '[\"\\n\", "
            "\"User:\"]'");
  flags.add("stop-tokens", "LIST", o.stop_tokens, "ids of tokens that end a text, too: 13,198");
  flags.add_switch("chat", o.chat,
                   "a conversation: each line of standard input is a question; /clear begins another one, /exit ends",
                   true);
  flags.add("chat-template", "FILE", o.chat_template,
            "the Jinja template of the conversation: a file, a tokenizer_config.json, a folder with one of them, or "
            "chatml; without it, that in the folder of --checkpoint");
  flags.only_with("chat", "on, or --questions FILE", [&o] { return o.talks(); });
  flags.add("system", "TEXT", o.system, "the first message of the conversation, of the role system");
  flags.only_with("chat", "on, or --questions FILE", [&o] { return o.talks(); });
  flags.group("how");
  flags.add("temperature", "F", o.generate.temperature,
            "below 1: safer, above 1: wilder, 0: always the likeliest token", Range::at_least(0));
  flags.add("top-k", "N", o.generate.top_k, "choose among the N likeliest tokens; 0: all", Range::at_least(0));
  flags.add("top-p", "F", o.generate.top_p, "choose among the likeliest tokens with this total probability",
            Range{.low = 0, .high = 1, .low_open = true});
  flags.add("min-p", "F", o.generate.min_p,
            "choose among tokens that are at least F times as likely as the likeliest; 0: all",
            Range{.low = 0, .high = 1});
  flags.add("repetition-penalty", "F", o.generate.repetition_penalty,
            "divides positive logits of tokens in prompt and text, and multiplies negative ones; 1: none",
            Range::above(0));
  flags.add("presence-penalty", "F", o.generate.presence_penalty,
            "subtracted from the logits of tokens that the text already has");
  flags.add("frequency-penalty", "F", o.generate.frequency_penalty,
            "subtracted from them for each time that the text has the token");
  flags.add_choice("past-context", o.generate.past_context,
                   std::vector<std::pair<std::string, PastContext>>{{"slide", PastContext::slide},
                                                                    {"recompute", PastContext::recompute}},
                   "a text longer than the context; slide: keys and values of earlier tokens stay; recompute: the last "
                   "tokens are computed again for each new one, which is slow");
  flags.add("batch", "N", o.batch, "texts that are generated at once", Range::count());
  flags.add("seed", "N", o.seed, "of the choices", Range::at_least(0));
  declare_ranks(flags, o.run,
                "ranks that share the model: along tp, pp, cp and ep, as in tp=2; dp: copies of the model, which take "
                "turns with the batches of texts; the texts are the same");
  flags.add_switch("speed", o.speed,
                   "print tokens per second on standard error; without this flag only if that is a terminal", true);
  flags.group("output");
  flags.add_switch("json", o.json, "print a line of JSON for each text: prompt, sample, ids, text, logprobs, end",
                   true);
  flags.add("logprobs", "N", o.generate.top_logprobs,
            "with --json: also the N likeliest tokens at each place, as top_logprobs", Range{.low = 0, .high = 1000});
  flags.only_with("json", "on", [&o] { return o.json; });
}

void validate(const Options& o) {
  if (o.checkpoint.empty())
    fail(ExitCode::usage, "checkpoint", "--checkpoint is missing; expected the --out folder of train_gpt");
  const auto texts = {o.prompt, o.prompt_file, o.prompt_list, o.ids, o.questions};
  const auto given = std::count_if(texts.begin(), texts.end(), [](const std::string& text) { return !text.empty(); });
  if (given > 1)
    fail(ExitCode::usage, "prompt",
         "--prompt, --prompt-file, --prompt-ids, --prompts and --questions are two prompts if more than one is given, "
         "got {}; expected one; drop the others",
         given);
  if (o.chat && (given > 0 || o.json || o.samples > 1))
    fail(ExitCode::usage, "chat",
         "--chat reads its questions from standard input and has one reply for each; expected no --prompt, "
         "--prompt-file, --prompt-ids, --prompts, --questions, --json and --samples; drop them, or --chat: --questions "
         "FILE answers many questions by themselves");
  if (given == 0 && !o.chat)
    fail(ExitCode::usage, "prompt", "--prompt is missing or empty; expected at least one character");
  const GenerateOptions initial;
  if (o.generate.temperature == 0 &&
      (o.generate.top_k != initial.top_k || o.generate.top_p != initial.top_p || o.generate.min_p != initial.min_p))
    fail(ExitCode::usage, "generate",
         "--top-k, --top-p and --min-p have no effect with --temperature 0, which always takes the likeliest token; "
         "expected --temperature above 0; drop them or change --temperature");
  if (o.generate.temperature == 0 && o.samples > 1)
    fail(ExitCode::usage, "generate",
         "--samples {} with --temperature 0, which always takes the likeliest token, are {} equal texts; expected "
         "--temperature above 0; drop --samples or change --temperature",
         o.samples, o.samples);
  parse_stop_strings(o.stop);
  if (!o.stop_tokens.empty()) parse_ids(o.stop_tokens, "--stop-tokens");
  validate_device(o.run.precision.device);
  cpu::require_processor();
}

void validate_mesh(const Options& o) {
  const MeshShape& mesh = o.run.mesh.shape;
  if (o.chat && model_copies(mesh) > 1)
    fail(ExitCode::usage, "mesh",
         "--chat with --mesh dp={}: each reply depends on the one before it, so copies of the model have nothing to "
         "divide; expected ranks that share the model: tp and pp, cp, or ep up to dp x cp; change dp in --mesh",
         mesh.size(Axis::dp));
}

/// The file's text, which the first rank reads.
std::string text_of(ProcessGroup& world, const std::string& path) {
  std::string text;
  fail_together(world, [&] {
    if (world.rank() == 0)
      text = path == "-" ? InputLines().rest(read_limits::prompt) : read_file(path, read_limits::prompt);
  });
  return std::string(without_mark(broadcast_text(world, text)));
}

std::vector<Prompt> read_prompts(ProcessGroup& world, const Options& o) {
  if (!o.prompt_list.empty()) return parse_prompts(text_of(world, o.prompt_list), o.prompt_list);
  if (!o.ids.empty()) return {{.text = {}, .ids = parse_ids(o.ids, "--prompt-ids"), .where = "--prompt-ids"}};
  const std::string text = o.prompt_file.empty() ? o.prompt : text_of(world, o.prompt_file);
  if (text.empty())
    fail(ExitCode::usage, "prompt", "--prompt-file {} is empty; expected at least one character", o.prompt_file);
  return {{.text = text, .where = o.prompt_file.empty() ? "--prompt" : "--prompt-file"}};
}

/// A text to continue: what is shown of it, and its tokens.
struct Beginning {
  std::string shown;
  std::vector<std::int32_t> ids;
};

std::vector<Beginning> prompts(ProcessGroup& world, const Options& o, const Tokenizer& tokenizer) {
  std::vector<Beginning> result;
  for (const Prompt& prompt : read_prompts(world, o)) {
    const std::vector<std::int32_t> ids = prompt_ids(tokenizer, prompt);
    result.push_back({prompt.ids.empty() ? prompt.text : tokenizer.decode(ids), ids});
  }
  return result;
}

std::vector<Beginning> questions(ProcessGroup& world, const Options& o, const Tokenizer& tokenizer,
                                 const ChatTemplate& chat) {
  std::vector<Beginning> result;
  for (auto& [messages, where] : parse_chat_questions(text_of(world, o.questions), o.questions)) {
    if (!o.system.empty() && messages.front().role != "system") messages.insert(messages.begin(), {"system", o.system});
    try {
      result.push_back({messages.back().content + "\n", reply_prompt(chat, tokenizer, messages)});
    } catch (const Error& error) { fail(error.code(), error.where(), "{}: {}", where, error.reason()); }
  }
  return result;
}

/// What is generated: each prompt `samples` times.
struct Work {
  std::vector<TextRequest> requests;
  std::vector<TextLabel> labels;
};

Work plan(const std::vector<Beginning>& beginnings, const Options& o) {
  Work work;
  for (std::size_t p = 0; p < beginnings.size(); ++p) {
    for (std::int64_t i = 0; i < o.samples; ++i) {
      work.requests.push_back({beginnings[p].ids, static_cast<std::uint64_t>(o.seed + i)});
      std::string heading;
      if (beginnings.size() > 1) heading = fmt::format("prompt {} of {}", p + 1, beginnings.size());
      if (o.samples > 1) heading += fmt::format("{}sample {} of {}", heading.empty() ? "" : ", ", i + 1, o.samples);
      work.labels.push_back({.heading = heading.empty() ? "" : "--- " + heading + " ---",
                             .prompt = beginnings[p].shown,
                             .number = static_cast<std::int64_t>(p),
                             .sample = i});
    }
  }
  return work;
}

void warn_of_long(const std::vector<Beginning>& beginnings, std::int64_t context) {
  const auto longer = std::count_if(beginnings.begin(), beginnings.end(), [&](const Beginning& beginning) {
    return static_cast<std::int64_t>(beginning.ids.size()) > context;
  });
  if (longer > 0)
    Screen::of_process().warning(
        fmt::format("{} of {} prompts {} more tokens than the model's context of {}: the model does not see {} "
                    "beginning",
                    longer, beginnings.size(), longer == 1 ? "has" : "have", context, longer == 1 ? "its" : "their"));
}

/// Copies of the model without a batch do nothing.
void warn_of_idle(const Work& work, const Options& o, int copies) {
  const auto texts = static_cast<std::int64_t>(work.requests.size()), batches = (texts + o.batch - 1) / o.batch;
  if (batches < copies)
    Screen::of_process().warning(fmt::format(
        "{} of the {} copies of the model (dp) have nothing to do: {} text{} in batches of {} {} {} batch{}{}",
        copies - batches, copies, texts, texts == 1 ? "" : "s", o.batch, texts == 1 ? "is" : "are", batches,
        batches == 1 ? "" : "es", o.batch > 1 && texts > batches ? "; lower --batch" : ""));
}

/// Generates all texts, --batch at once, which the first rank writes. Returns the number of generated tokens.
std::int64_t write_texts(Rank& rank, const ModelCopy& copy, Gpt& model, const Tokenizer& tokenizer, const Work& work,
                         const Options& o, const GenerateOptions& options, const std::vector<std::string>& stops) {
  const auto nowhere = [](std::string_view) {};
  const auto output = [&](std::size_t begin, std::size_t end) {
    const auto at = [&](std::size_t i) { return work.labels.begin() + static_cast<std::ptrdiff_t>(i); };
    return GenerationOutput(tokenizer, std::vector(at(begin), at(end)),
                            {.json = o.json,
                             .stops = stops,
                             .write = rank.first() ? &write_out : +nowhere,
                             .write_bold = rank.first() ? &write_out_bold : +nowhere,
                             .first = begin == 0});
  };
  const BatchCounts made = generate_batches(*rank.world, copy, model, work.requests, o.batch, options, output);
  if (made.told) {
    rank.exit_code = static_cast<int>(ExitCode::retryable);
    if (rank.first())
      Screen::of_process().warn(
          fmt::format("trireme: told to stop; texts complete: {}, cut short: {}, not begun: {}; the same command makes "
                      "all of them",
                      made.whole, made.cut, static_cast<std::int64_t>(work.requests.size()) - made.whole - made.cut));
  }
  return made.tokens;
}

void print_speed(std::int64_t tokens, double seconds) {
  Screen::of_process().warn(fmt::format("{} token{} in {:.2f} s, {} tok/s", tokens, tokens == 1 ? "" : "s", seconds,
                                        format_count(static_cast<double>(tokens) / std::max(seconds, 1e-9))));
}

ChatTemplate chat_template_of(const Options& o, const GptSource& source) {
  if (!o.chat_template.empty())
    return chat_template_named(o.chat_template, "--chat-template", source.usage().special_tokens);
  return source.chat_template();
}

GenerateOptions generate_options(const Options& o, const GptSource& source, const Tokenizer& tokenizer) {
  GenerateOptions options = o.generate;
  options.vocab_size = tokenizer.vocab_size();
  options.seed = static_cast<std::uint64_t>(o.seed);
  options.leave = leave_asked;
  if (o.stop_at_end) options.stop = source.end_tokens();
  if (!o.stop_tokens.empty()) {
    for (const std::int32_t id : parse_ids(o.stop_tokens, "--stop-tokens")) {
      if (id >= options.vocab_size)
        fail(ExitCode::usage, "stop-tokens", "--stop-tokens {}: the vocabulary has {} tokens; expected ids below that",
             id, options.vocab_size);
      options.stop.push_back(id);
    }
  }
  return options;
}

/// On one rank.
void run(Rank& rank, const Options& o) {
  GptSource source(*rank.world, o.checkpoint, o.adapter);
  if (rank.first()) Screen::of_process().warn(source.description());
  const std::shared_ptr<const Tokenizer> tokenizer = source.tokenizer();
  const std::optional<ChatTemplate> chat = o.talks() ? std::optional(chat_template_of(o, source)) : std::nullopt;
  std::vector<Beginning> beginnings;
  if (!o.chat) beginnings = chat ? questions(*rank.world, o, *tokenizer, *chat) : prompts(*rank.world, o, *tokenizer);
  const ModelCopy copy = model_copy(rank.world, o.run.mesh.shape);
  const std::unique_ptr<Gpt> model = load_on_mesh(rank, o.run, source, o.ema, copy);
  const Work work = plan(beginnings, o);
  if (rank.first()) warn_of_long(beginnings, model->context());
  if (rank.first() && !o.chat) warn_of_idle(work, o, copy.copies);

  const GenerateOptions options = generate_options(o, source, *tokenizer);
  std::vector<std::string> stops = parse_stop_strings(o.stop);
  catch_signals_of_texts();
  const auto begin = std::chrono::steady_clock::now();
  std::int64_t tokens = 0;
  if (o.chat) {
    ChatSession session(*model, *tokenizer, *chat, o.system, options, stops);
    rank.exit_code = converse(*rank.world, session);
    tokens = session.tokens();
  } else {
    if (chat) stops = stops_of_reply(*chat, std::move(stops));
    tokens = write_texts(rank, copy, *model, *tokenizer, work, o, options, stops);
  }
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  if (rank.first() && (o.speed || ::isatty(STDERR_FILENO) == 1)) print_speed(tokens, seconds);
}

}  // namespace

int main(int argc, char** argv) {
  return run_program([&] {
    Options options;
    Flags flags("generate", "Continues a text with a model that train_gpt has saved.");
    declare(flags, options);
    if (!flags.parse_or_print(argc, argv)) return 0;
    flags.refuse_unused();
    validate(options);
    resolve_ranks(options.run, flags.config_text());
    validate_mesh(options);
    return run_ranks(options.run, [&](Rank& rank) { run(rank, options); });
  });
}
