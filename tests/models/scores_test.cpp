// Scores of texts and answers, on any mesh: compared with sums over the logits of whole sequences in f64 on one rank.
#include "train/gpt/text_scores.h"

#include "data/byte_tokenizer.h"
#include "tests/models/decoder_kinds.h"
#include "tests/support/elements.h"
#include "tests/support/sanitized.h"
#include "train/gpt/generation_output.h"
#include "train/gpt/multiple_choice.h"
#include "train/gpt/prompts.h"
#include "train/gpt/sampling.h"

using namespace trireme;
using namespace trireme::testing;

namespace scores_test {
using namespace trireme::testing::decoders;

namespace {

TokenRange range_of(const Text& ids) {
  TokenBuffer buffer(test_vocab);
  buffer.append(ids);
  return TokenRange(in_memory(std::move(buffer)));
}

/// Log-probabilities of tokens from..end of a text that fits the context, and whether all are the likeliest.
std::pair<double, bool> by_logits(Gpt& model, const Text& ids, std::size_t from) {
  const Tensor logits = sequence_logits(model, ids);  // [T, V]
  double sum = 0;
  bool greedy = true;
  for (std::size_t t = from; t < ids.size(); ++t) {
    const std::span<const float> row = logits.span<float>().subspan((t - 1) * test_vocab, test_vocab);
    sum += log_probability(row, ids[t]);
    greedy = greedy && likeliest_tokens(row, 1).front().id == ids[t];
  }
  return {sum, greedy};
}

Meshes some_meshes() {
  return sanitized ? Meshes{"tp=2,pp=2"} : Meshes{"dp=1", "dp=2", "tp=2", "pp=2", "cp=2", "dp=2,tp=2,pp=2"};
}

}  // namespace

TEST_CASE("the loss of a text with a stride is the mean over its tokens, each after its window, on every mesh") {
  const Text text = text_of(50);
  const CharTokenizer tokenizer = test_tokenizer();
  for (const std::int64_t stride : {std::int64_t{5}, context}) {
    double expected = 0;
    run_mesh("dp=1", [&](const MeshPtr& mesh) {
      Gpt model = model_on(mesh, llama_kind(), DType::f64);
      std::int64_t counted = 0;
      for (std::int64_t begin = 0; counted < 49; begin += stride) {
        const std::int64_t end = std::min<std::int64_t>(begin + context, 49);
        Text window(text.begin() + begin, text.begin() + end + 1);
        if (window.size() > static_cast<std::size_t>(context)) {  // one target more than a sequence has logits for
          const Tensor logits = sequence_logits(model, {window.begin(), window.end() - 1});
          expected -= log_probability(logits.span<float>().last(test_vocab), window.back());
          window.pop_back();
        }
        expected -= by_logits(model, window, static_cast<std::size_t>(counted - begin + 1)).first;
        counted = end;
      }
    });
    for (const std::string& mesh_text : some_meshes()) {
      run_mesh(mesh_text, [&](const MeshPtr& mesh) {
        Gpt model = model_on(mesh, llama_kind(), DType::f32);
        const TextScore score = score_text(model, context, range_of(text), tokenizer, stride, 2);
        CHECK(score.tokens == 49);
        CHECK(score.bytes == 49);
        CHECK_MESSAGE(std::abs(score.loss - expected / 49) < 1e-5, mesh_text);
        CHECK(std::abs(score.perplexity() - std::exp(score.loss)) < 1e-9);
        CHECK(std::abs(score.bits_per_byte() - score.loss / std::log(2.0)) < 1e-9);
      });
    }
  }
}

TEST_CASE("continuations have the log-probabilities of the whole sequence's logits, on every mesh") {
  const Text all = text_of(200);
  std::vector<Continuation> asked;
  for (const auto& [begin, length, first] :
       {std::array{0, 9, 4}, {20, 17, 16}, {40, 2, 1}, {60, 17, 1}, {90, 30, 25}, {130, 5, 4}})
    asked.push_back({{all.begin() + begin, all.begin() + begin + length}, first});
  Text greedy = {5, 6};  // its continuation is the likeliest
  std::vector<ContinuationScore> expected;
  run_mesh("dp=1", [&](const MeshPtr& mesh) {
    Gpt model = model_on(mesh, llama_kind(), DType::f64);
    for (int i = 0; i < 3; ++i) {
      const Tensor logits = sequence_logits(model, greedy);
      greedy.push_back(likeliest_tokens(logits.span<float>().last(test_vocab), 1).front().id);
    }
    asked.push_back({greedy, 2});
    for (const Continuation& c : asked) {
      Text ids = c.ids;
      std::int64_t first = c.first;
      const std::int64_t cut = std::max<std::int64_t>(0, static_cast<std::int64_t>(ids.size()) - context - 1);
      ids.erase(ids.begin(), ids.begin() + cut);
      first -= cut;
      double logprob = 0;
      bool likeliest = true;
      if (static_cast<std::int64_t>(ids.size()) == context + 1) {
        const Tensor logits = sequence_logits(model, {ids.begin(), ids.end() - 1});
        const std::span<const float> row = logits.span<float>().last(test_vocab);
        logprob = log_probability(row, ids.back());
        likeliest = likeliest_tokens(row, 1).front().id == ids.back();
        ids.pop_back();
      }
      const auto [sum, rest] = by_logits(model, ids, static_cast<std::size_t>(first));
      expected.push_back({logprob + sum, static_cast<std::int64_t>(c.ids.size()) - c.first, likeliest && rest});
    }
  });
  for (const std::string& mesh_text : some_meshes()) {
    CAPTURE(mesh_text);
    run_mesh(mesh_text, [&](const MeshPtr& mesh) {
      Gpt model = model_on(mesh, llama_kind(), DType::f32);
      for (const std::int64_t batch : {1, 3}) {
        const std::vector<ContinuationScore> scores = score_continuations(model, asked, test_vocab, batch);
        REQUIRE(scores.size() == expected.size());
        for (std::size_t i = 0; i < scores.size(); ++i) {
          CHECK(std::abs(scores[i].logprob - expected[i].logprob) < 1e-4);
          CHECK(scores[i].tokens == expected[i].tokens);
          CHECK(scores[i].greedy == expected[i].greedy);
        }
      }
      CHECK(score_continuations(model, {{greedy, 2}}, test_vocab, 1)[0].greedy);
      CHECK_THROWS_WITH_AS(score_continuations(model, {{text_of(30), 5}}, test_vocab, 1),
                           doctest::Contains("an answer has 25 tokens, more than the model's context of 16"), Error);
    });
  }
}

TEST_CASE("questions of every form are read, and answered by probability, per token and per byte") {
  const std::string text =
      R"({"ctx": "A cat", "endings": ["sat", "flew away"], "label": "1", "ind": 3}
{"question": "What?", "choices": {"text": ["this", "that"], "label": ["A", "B"]}, "answerKey": "B"}
{"query": "1+1=", "choices": ["2", "3", "4"], "gold": 0, "delimiter": ""}
{"context_options": ["He said", "She said"], "continuation": "no", "gold": 1}
{"context": "to be or not to", "continuation": "be"})";
  const std::vector<Question> questions = parse_questions(text, "q.jsonl");
  REQUIRE(questions.size() == 5);
  CHECK(questions[0].options[1].context == "A cat");
  CHECK(questions[0].options[1].continuation == " flew away");
  CHECK(questions[0].options[1].bytes == 9);
  CHECK(questions[0].answer == 1);
  CHECK(questions[1].options[0].context == "Question: What?\nAnswer:");
  CHECK(questions[1].answer == 1);
  CHECK(questions[2].options[2].continuation == "4");
  CHECK(questions[3].options[1].context == "She said");
  CHECK(questions[3].options[0].continuation == " no");
  CHECK(questions[4].options.size() == 1);
  const auto padded = [](const std::string& more) {
    return parse_questions("{\"query\": \"a\", \"choices\": [\" b \\n\", \"c\"], \"gold\": 0" + more + "}",
                           "q.jsonl")[0]
        .options[0];
  };
  CHECK(padded("").continuation == " b");  // white space around an answer does not count, unless the line says how
  CHECK(padded("").bytes == 1);
  CHECK(padded(", \"delimiter\": \" \"").continuation == "  b \n");
  for (const auto& [line, part] : std::vector<std::pair<std::string, std::string>>{
           {"{\"ctx\": \"a\", \"endings\": [\"b\", \"c\"], \"label\": 2}", "q.jsonl line 1: 'label' is 2"},
           {"{\"ctx\": \"a\", \"endings\": [\"b\"], \"label\": 0}", "'endings' has 1; expected at least two"},
           {"{\"ctx\": \"a\", \"endings\": [], \"label\": 0}", "'endings' has 0"},
           {"{\"ctx\": \"a\", \"endings\": [\"b\", \" \"], \"label\": 0}", "an answer is empty"},
           {"{\"query\": \"a\", \"choices\": [1], \"gold\": 0}", "expected a list of texts"},
           {"{\"question\": \"a\", \"choices\": {\"text\": [\"x\", \"y\"], \"label\": [\"A\", \"B\"]}, \"answerKey\": "
            "\"C\"}",
            "answerKey"},
           {"{\"answerKey\": \"B\"}", "'choices' is missing"},
           {"{\"x\": 1}", "of no known form"},
           {"7", "expected an object"},
           {"", "has no question"}})
    CHECK_THROWS_WITH_AS(parse_questions(line, "q.jsonl"), doctest::Contains(part.c_str()), Error);

  run_mesh("tp=2", [&](const MeshPtr& mesh) {
    Kind kind = gpt2();
    kind.config.vocab = 256;
    kind.config.context = 64;
    Gpt model = model_on(mesh, kind, DType::f32);
    const ByteTokenizer tokenizer;
    const ScoredQuestions scored = score_questions(model, tokenizer, questions, 2);
    REQUIRE(scored.options.size() == 5);
    CHECK(scored.score.questions == 5);
    CHECK(scored.score.cut == 0);
    std::vector<Question> longer = questions;
    longer[1].options[1].context += std::string(64, 'x');
    const ScoredQuestions cut = score_questions(model, tokenizer, longer, 2);
    CHECK(cut.score.cut == 1);
    CHECK(cut.options[1][0].cut == 0);
    longer[1].options[1].continuation = std::string(70, 'x');
    CHECK_THROWS_WITH_AS(score_questions(model, tokenizer, longer, 2),
                         doctest::Contains("q.jsonl line 2: an answer has 70 tokens"), Error);
    CHECK(cut.options[1][1].cut == 64 + 23 + 5 - 65);  // "Question: What?\nAnswer:" and " that"
    double right = 0, by_token = 0, by_byte = 0;
    for (std::size_t q = 0; q < 5; ++q) {
      const auto& s = scored.options[q];
      REQUIRE(s.size() == questions[q].options.size());
      if (s.size() == 1) {
        for (double* sum : {&right, &by_token, &by_byte}) *sum += s[0].greedy ? 1 : 0;
        continue;
      }
      const auto wins = [&](const auto& value) {
        for (std::size_t i = 0; i < s.size(); ++i)
          if (i != questions[q].answer && value(i) >= value(questions[q].answer)) return 0;
        return 1;
      };
      right += wins([&](std::size_t i) { return s[i].logprob; });
      by_token += wins([&](std::size_t i) { return s[i].logprob / static_cast<double>(s[i].tokens); });
      by_byte += wins([&](std::size_t i) { return s[i].logprob / static_cast<double>(questions[q].options[i].bytes); });
    }
    CHECK(scored.score.accuracy == right / 5);
    CHECK(scored.score.accuracy_per_token == by_token / 5);
    CHECK(scored.score.accuracy_per_byte == by_byte / 5);
  });
}

TEST_CASE("spaces at the end of a context belong to the continuation") {
  const ByteTokenizer tokenizer;
  const Continuation c = encode_option(tokenizer, {"ab  ", "cd", 2});
  CHECK(c.ids == Text{'a', 'b', ' ', ' ', 'c', 'd'});
  CHECK(c.first == 2);
  CHECK_THROWS_WITH_AS(encode_option(tokenizer, {" ", "cd", 2}), doctest::Contains("the context is empty"), Error);
  CHECK_THROWS_WITH_AS(encode_option(tokenizer, {"ab", "", 0}), doctest::Contains("no token of its own"), Error);
}

TEST_CASE("stop strings end a text across the borders of tokens, and nothing of them is shown") {
  const ByteTokenizer tokenizer;  // each byte is a token
  const auto run = [&](const std::string& bytes, const std::vector<std::string>& stops) {
    TextUntil text(tokenizer, stops);
    std::string shown;
    for (const char c : bytes) {
      shown += text.push(static_cast<unsigned char>(c));
      CHECK((valid_utf8_prefix(shown) == shown.size()));  // never half a character
      if (text.ended()) break;
    }
    const bool ended = text.ended();
    shown += text.finish();
    CHECK(shown == text.text());
    return std::pair(shown, ended);
  };
  CHECK(run("hello END more", {"END"}) == std::pair(std::string("hello "), true));
  CHECK(run("hello EN", {"END"}) == std::pair(std::string("hello EN"), false));
  CHECK(run("EEEND", {"EEND", "x"}) == std::pair(std::string("E"), true));
  CHECK(run("ab\n\nc", {"zz", "\n\n"}) == std::pair(std::string("ab"), true));
  CHECK(run("aab", {"ab", "aab"}) == std::pair(std::string(""), true));
  CHECK(run("Grüße 👋", {}) == std::pair(std::string("Grüße 👋"), false));
  CHECK(run("é|é", {"|"}) == std::pair(std::string("é"), true));
  CHECK(run("ü", {"\xbc"}) == std::pair(std::string("\xef\xbf\xbd"), true));  // a stop inside a character
  CHECK(run("a\xf0\x9f", {}) == std::pair(std::string("a\xef\xbf\xbd"), false));
  CHECK(parse_stop_strings("") == std::vector<std::string>{});
  CHECK(parse_stop_strings("a\\n") == std::vector<std::string>{"a\\n"});
  CHECK(parse_stop_strings(R"(["\n", "User:"])") == std::vector<std::string>{"\n", "User:"});
  CHECK_THROWS_WITH_AS(parse_stop_strings("[1]"), doctest::Contains("expected a text, or a JSON list"), Error);
  CHECK_THROWS_WITH_AS(parse_stop_strings("["), doctest::Contains("--stop"), Error);
}

TEST_CASE("prompts from lines and from JSON") {
  CHECK(parse_prompts("one\n\ntwo \n", "p.txt").size() == 2);
  CHECK(parse_prompts("one\n\ntwo \n", "p.txt")[1].text == "two ");
  const std::vector<Prompt> json = parse_prompts("\"a\\nb\"\n{\"prompt\": \"c\"}\n{\"ids\": [5, 6]}", "p.jsonl");
  REQUIRE(json.size() == 3);
  CHECK(json[0].text == "a\nb");
  CHECK(json[1].text == "c");
  CHECK(json[2].ids == Text{5, 6});
  for (const auto& [line, part] :
       std::vector<std::pair<std::string, std::string>>{{"{\"ids\": []}", "p.jsonl line 1: 'ids' is []"},
                                                        {"{\"ids\": [-1]}", "expected a list of token ids"},
                                                        {"{}", "'prompt' is missing"},
                                                        {"{\"prompt\": \"a\", \"ids\": [1]}", "expected one of them"},
                                                        {"\"\"", "the prompt is empty"},
                                                        {"3", "expected a text, or an object"},
                                                        {"{\"prompt\"", "p.jsonl line 1"},
                                                        {"", "has no prompt"}})
    CHECK_THROWS_WITH_AS(parse_prompts(line, "p.jsonl"), doctest::Contains(part.c_str()), Error);
  CHECK(parse_ids("5,16,49", "--prompt-ids") == Text{5, 16, 49});
  for (const char* list : {"5,", ",5", "a", "5;6", "-1", "99999999999"})
    CHECK_THROWS_WITH_AS(parse_ids(list, "--prompt-ids"), doctest::Contains("expected token ids such as"), Error);
  const CharTokenizer tokenizer = test_tokenizer();
  CHECK(prompt_ids(tokenizer, {.text = "!\""}) == Text{1, 2});
  CHECK_THROWS_WITH_AS(prompt_ids(tokenizer, {.text = {}, .ids = {65}, .where = "p.jsonl line 7"}),
                       doctest::Contains("p.jsonl line 7: token 65 is outside the vocabulary"), Error);
}

TEST_CASE("texts are written in order, as text and as JSON") {
  const ByteTokenizer tokenizer;
  std::string written;
  const auto write = [&](std::string_view text) { written += text; };
  const auto token = [](char c) { return GeneratedToken{.id = c, .logprob = -0.5F}; };
  const std::vector<GeneratedText> texts = {{{token('a'), token('b')}, TextEnd::length},
                                            {{token('c'), token('|')}, TextEnd::stop}};
  for (const bool json : {false, true}) {
    written.clear();
    GenerationOutput output(tokenizer, {{"", "X", 0, 0}, {"-- 2 --", "Y", 1, 0}},
                            {.json = json, .stops = {"|"}, .write = write, .write_bold = write});
    CHECK(output.add(1, token('c')));
    CHECK(output.add(0, token('a')));
    CHECK(written == (json ? "" : "Xa"));  // the first is shown at once
    CHECK_FALSE(output.add(1, token('|')));
    CHECK(output.add(0, token('b')));
    output.finish(texts);
    if (!json) CHECK(written == "Xab\n\n-- 2 --\nYc\n");
    if (json)
      CHECK(written ==
            "{\"prompt\":0,\"sample\":0,\"ids\":[97,98],\"text\":\"ab\",\"logprobs\":[-0.5,-0.5],\"end\":\"length\"}\n"
            "{\"prompt\":1,\"sample\":0,\"ids\":[99,124],\"text\":\"c\",\"logprobs\":[-0.5,-0.5],\"end\":\"stop\"}\n");
  }
}

}  // namespace scores_test
