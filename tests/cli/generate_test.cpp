// generate: text from what a run saved.
#include <doctest/doctest.h>

#include <fstream>

#include "tests/cli/support.h"

using namespace trireme::testing;

TEST_CASE("generate continues a prompt with the saved model, the same for the same seed") {
  const Workplace work;
  const Result trained = run("train_gpt", work.small_run() + "--mesh tp=2 --out " + work.path("run"));
  INFO(trained.output);
  REQUIRE(trained.code == 0);

  const std::string flags = "--checkpoint " + work.path("run") + " --prompt ABC --length 20 ";
  const Result text = run("generate", flags);
  INFO(text.output);
  CHECK(text.code == 0);
  const std::string said = "checkpoint: " + work.path("run") + "/checkpoints/step_00000006\n";  // on standard error
  CHECK(text.output.starts_with(said + "ABC"));
  const Result alone = run("generate", flags + "2>/dev/null");
  CHECK(said + alone.output == text.output);
  CHECK(alone.output.size() == 24);  // prompt, 20 characters, newline
  CHECK(run("generate", flags).output == text.output);
  CHECK(run("generate", flags + "--seed 2").output != text.output);
  CHECK(run("generate", flags + "--temperature 0 --seed 1").output ==
        run("generate", flags + "--temperature 0 --seed 2").output);
  CHECK(run("generate", flags + "--top-k 1").output == run("generate", flags + "--temperature 0").output);

  const Result outside = run("generate", "--checkpoint " + work.path("run") + " --prompt 'AB!C'");
  CHECK(outside.code == 64);
  CHECK(occurrences(outside.output, "trireme: FATAL[64] ") == 1);
  CHECK(occurrences(outside.output, "trireme: ") == 1);  // the tokenizer's message comes without its own prefix
  CHECK(contains(outside.output, "--prompt"));
  CHECK(contains(outside.output, "byte 2"));

  for (const std::string unused : {"--top-k 3", "--top-p 0.5"}) {
    const Result ignored = run("generate", flags + "--temperature 0 " + unused);
    CHECK(ignored.code == 64);
    CHECK(contains(ignored.output, "have no effect with --temperature 0"));
  }

  const Result absent = run("generate", "--checkpoint " + work.path("none") + " --prompt A");
  CHECK(absent.code == 64);
  CHECK(contains(absent.output, work.path("none")));
}

TEST_CASE("threads and processors that cannot be are refused before any text") {
  const Result threads = run("generate", "--checkpoint none --prompt A --threads 4097");
  CHECK(threads.code == 64);
  CHECK(contains(threads.output, "--threads: expected an integer in [1, 4096]"));
  const Result processor = run_with("TRIREME_ISA=nonsense", "generate", "--checkpoint none --prompt A");
  CHECK(processor.code == 64);
  CHECK(contains(processor.output, "TRIREME_ISA is 'nonsense'"));
}

TEST_CASE("ranks that share a model write the text of one rank, and ranks with equal weights are refused") {
  const Workplace work;
  REQUIRE(run("train_gpt", work.small_run() + "--positions rope --out " + work.path("run")).code == 0);
  std::ofstream(work.folder / "prompts.txt") << "ABC\nBCDEFG\n";
  const std::string flags = "--checkpoint " + work.path("run") + " --length 24 --batch 3 --samples 2 --json ";
  const auto texts = [&](const std::string& more) {
    const Result result = run("generate", flags + more + " 2>/dev/null");
    CHECK_MESSAGE(result.code == 0, more);
    std::string without_logprobs;  // which differ in rounding
    for (std::size_t at = 0; at < result.output.size();) {
      const std::size_t end = result.output.find('\n', at), cut = result.output.find("\"logprobs\"", at);
      without_logprobs += result.output.substr(at, cut - at) + "\n";
      at = end + 1;
    }
    return without_logprobs;
  };
  const std::string prompts = "--prompts " + work.path("prompts.txt"), one = texts(prompts);
  CHECK(occurrences(one, "\n") == 4);
  for (const std::string mesh : {"tp=2", "pp=2", "tp=2,pp=2", "cp=2"}) CHECK(texts(prompts + " --mesh " + mesh) == one);
  CHECK(texts("--prompts - --mesh tp=2 < " + work.path("prompts.txt")) == one);
  const std::string stop = one.substr(one.find("\"text\":\"") + 9, 1);
  CHECK(texts(prompts + " --stop " + stop + " --mesh pp=2") == texts(prompts + " --stop " + stop));
  const Result processes =
      run_mpi(2, "generate", "--checkpoint " + work.path("run") + " --length 24 --prompt ABC --mesh tp=2 2>/dev/null");
  CHECK(processes.code == 0);
  CHECK(contains(processes.output,
                 run("generate", "--checkpoint " + work.path("run") + " --length 24 --prompt ABC 2>/dev/null").output));
  check_refused(run("generate", flags + prompts + " --mesh ep=2"), 64, {"ep"});
  check_refused(run("generate", flags + prompts + " --mesh tp=3"), 64, {"--heads 2 cannot be shared by tp=3 ranks"});
}

TEST_CASE("copies of the model along dp share the batches, and write what one copy writes, bit for bit") {
  const Workplace work;
  REQUIRE(run("train_gpt", work.small_run() + "--positions rope --out " + work.path("run")).code == 0);
  std::ofstream(work.folder / "prompts.txt") << "ABC\nBCDEFG\nA\nCDCD\nEFGHEFGH\n";
  const std::string flags =
      "--checkpoint " + work.path("run") + " --prompts " + work.path("prompts.txt") + " --length 20 --batch 2 ";
  const auto output = [&](const std::string& more) {
    const Result result = run("generate", flags + more + " 2>/dev/null");
    CHECK_MESSAGE(result.code == 0, more);
    return result.output;
  };
  const std::string json = "--samples 3 --json --logprobs 2 ", one = output(json);  // 15 texts: 8 batches
  CHECK(occurrences(one, "\n") == 15);
  for (const std::string mesh : {"dp=2", "dp=3", "dp=8", "dp=9"}) CHECK(output(json + "--mesh " + mesh) == one);
  for (const std::string model : {"tp=2", "pp=2", "cp=2"})
    CHECK(output(json + "--mesh dp=2," + model) == output(json + "--mesh " + model));
  const std::string stop = one.substr(one.find("\"text\":\"") + 9, 1), stopped = "--stop '" + stop + "' ";
  CHECK(output(stopped + "--mesh dp=2") == output(stopped));
  CHECK(output("--samples 3 --mesh dp=3") == output("--samples 3"));
  const Result processes = run_mpi(2, "generate", flags + json + "--mesh dp=2 2>/dev/null");
  CHECK(processes.code == 0);
  CHECK(contains(processes.output, one));

  // Fewer batches than copies: some have nothing to do, and the first rank says so.
  const std::string alone = "--checkpoint " + work.path("run") + " --length 20 --prompt ABC ";
  const Result idle = run("generate", alone + "--mesh dp=2");
  CHECK(idle.code == 0);
  CHECK(contains(idle.output, run("generate", alone + "2>/dev/null").output));
  CHECK(contains(idle.output,
                 "1 of the 2 copies of the model (dp) have nothing to do: 1 text in batches of 8 is 1 batch"));
  CHECK(contains(run("generate", flags + "--batch 4 --mesh dp=3").output,
                 "5 texts in batches of 4 are 2 batches; lower --batch"));
  CHECK_FALSE(contains(run("generate", flags + "--mesh dp=3").output, "nothing to do"));
  check_refused(run("generate", "--checkpoint " + work.path("run") + " --chat --mesh dp=2,tp=2"), 64,
                {"--chat with --mesh dp=2", "tp and pp"});
}

TEST_CASE("with experts divided over dp ranks, these are one copy of the model") {
  const Workplace work;
  REQUIRE(run("train_gpt", work.small_run() + "--experts 4 --top-k 2 --out " + work.path("run")).code == 0);
  const auto output = [&](const std::string& mesh) {
    const Result result =
        run("generate", "--checkpoint " + work.path("run") +
                            " --prompt ABC --samples 5 --batch 2 --length 20 --json --mesh " + mesh + " 2>/dev/null");
    CHECK_MESSAGE(result.code == 0, mesh);
    return result.output;
  };
  const std::string one = output("dp=2,ep=2");
  CHECK(occurrences(one, "\n") == 5);
  CHECK(output("dp=4,ep=2") == one);
}

TEST_CASE("a damaged checkpoint is bad data") {
  const Workplace work;
  std::filesystem::create_directories(work.folder / "run/checkpoints/step_00000001");
  std::ofstream(work.folder / "run/checkpoints/step_00000001/manifest.json") << "not a checkpoint at all";
  const Result result = run("generate", "--checkpoint " + work.path("run") + " --prompt A");
  INFO(result.output);
  CHECK(result.code == 65);
  CHECK(occurrences(result.output, "trireme: FATAL[65] ") == 1);
  CHECK(contains(result.output, "step_00000001"));
}

TEST_CASE("a prompt from a file or standard input, several samples, and the end of a text") {
  const Workplace work;
  std::ofstream(work.folder / "prompt.txt") << "ABC";
  std::ofstream(work.folder / "nothing.txt");
  REQUIRE(run("train_gpt", work.small_run() + "--out " + work.path("run")).code == 0);
  const std::string flags = "--checkpoint " + work.path("run") + " --length 20 ";
  const auto text_of = [&](const std::string& arguments) {
    return run("generate", flags + arguments + " 2>/dev/null").output;
  };
  const std::string text = text_of("--prompt ABC");
  CHECK(text_of("--prompt-file " + work.path("prompt.txt")) == text);
  CHECK(text_of("--prompt-file - < " + work.path("prompt.txt")) == text);
  const auto refused = [&](const std::string& arguments, int code, const std::string& part) {
    const Result result = run("generate", flags + arguments);
    INFO(result.output);
    CHECK(result.code == code);
    CHECK(occurrences(result.output, "trireme: ") == 1);
    CHECK(contains(result.output, part));
  };
  refused("--prompt-file " + work.path("nothing.txt"), 64, "nothing.txt is empty");
  refused("--prompt-file " + work.path("absent.txt"), 74, "absent.txt");
  refused("--prompt-file " + work.path("prompt.txt") + " --prompt A", 64, "two prompts");
  std::ofstream(work.folder / "outside.txt") << "AB!C";
  refused("--prompt-file " + work.path("outside.txt"), 64, "byte 2");
  refused("--prompt A --samples 2 --temperature 0", 64, "--samples 2 with --temperature 0");
  refused("--prompt \"AB$(printf '\\377')\"", 64, "--prompt");

  const Result two = run("generate", flags + "--prompt ABC --samples 2 --speed");
  INFO(two.output);
  CHECK(contains(two.output, "--- sample 1 of 2 ---\n" + text + "\n--- sample 2 of 2 ---\n"));
  CHECK(contains(two.output, text_of("--prompt ABC --seed 1338")));
  CHECK(contains(two.output, "40 tokens in "));
  CHECK(contains(two.output, " tok/s\n"));
}

TEST_CASE("many prompts at once give the texts of each alone, with stop strings, log-probabilities and JSON") {
  const Workplace work;
  REQUIRE(run("train_gpt", work.small_run() + "--out " + work.path("run")).code == 0);
  std::ofstream(work.folder / "prompts.txt") << "ABC\n\nBCDEFG\nA\n";
  std::ofstream(work.folder / "prompts.jsonl") << "\"ABC\"\n{\"prompt\": \"BCDEFG\"}\n{\"prompt\": \"A\"}\n";
  const std::string flags = "--checkpoint " + work.path("run") + " --length 20 ";
  const auto text_of = [&](const std::string& arguments) {
    const Result result = run("generate", flags + arguments + " 2>/dev/null");
    INFO(result.output);
    CHECK(result.code == 0);
    return result.output;
  };
  const std::string all = text_of("--prompts " + work.path("prompts.txt"));
  CHECK(all == "--- prompt 1 of 3 ---\n" + text_of("--prompt ABC") + "\n--- prompt 2 of 3 ---\n" +
                   text_of("--prompt BCDEFG") + "\n--- prompt 3 of 3 ---\n" + text_of("--prompt A"));
  CHECK(text_of("--prompts " + work.path("prompts.jsonl")) == all);
  CHECK(text_of("--batch 2 --prompts " + work.path("prompts.txt")) == all);
  std::ofstream(work.folder / "marked.txt") << "\xEF\xBB\xBF" << content_of(work.path("prompts.txt"));
  CHECK(text_of("--prompts " + work.path("marked.txt")) == all);

  const std::string json = text_of("--json --logprobs 2 --prompts " + work.path("prompts.txt") + " --samples 2");
  CHECK(occurrences(json, "\n") == 6);
  CHECK(json.starts_with("{\"prompt\":0,\"sample\":0,\"ids\":["));
  CHECK(contains(json, "{\"prompt\":2,\"sample\":1,\"ids\":["));
  CHECK(occurrences(json, "\"end\":\"length\"}\n") == 6);
  CHECK(occurrences(json, "\"top_logprobs\":[[{\"id\":") == 6);

  const std::string text = text_of("--prompt ABC");  // prompt, 20 characters, newline
  const auto is_letter = [](char c) { return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z'); };
  std::size_t from = 6;  // two letters in the text, which need no escape in JSON
  while (from + 2 < text.size() && !(is_letter(text[from]) && is_letter(text[from + 1]))) ++from;
  const std::string stop = text.substr(from, 2);
  const std::size_t end = text.find(stop, 3);
  CHECK(text_of("--prompt ABC --stop '" + stop + "'") == text.substr(0, end) + "\n");
  CHECK(text_of("--prompt ABC --stop '[\"never\", \"" + stop + "\"]'") == text.substr(0, end) + "\n");
  const std::string first = text_of("--prompt ABC --json --length 1");
  const std::string id = first.substr(first.find("[") + 1, first.find("]") - first.find("[") - 1);
  CHECK(text_of("--prompt ABC --stop-tokens " + id) == "ABC\n");
  CHECK(text_of("--prompt-ids " + id + " --json --length 2 --temperature 0") ==
        text_of("--prompt-ids " + id + " --json --length 2 --temperature 0 --past-context recompute"));
  CHECK(text_of("--prompt ABC --repetition-penalty 1.5 --frequency-penalty 2 --presence-penalty 2 --temperature 0") !=
        text_of("--prompt ABC --temperature 0"));
  CHECK(text_of("--prompt ABC --min-p 1") == text_of("--prompt ABC --temperature 0"));

  const auto refused = [&](const std::string& arguments, int code, const std::string& part) {
    const Result result = run("generate", flags + arguments);
    INFO(result.output);
    CHECK(result.code == code);
    CHECK(occurrences(result.output, "trireme: FATAL") == 1);
    CHECK(contains(result.output, part));
  };
  refused("--prompt A --prompts x", 64, "are two prompts");
  refused("--prompt A --stop '[1]'", 64, "--stop");
  refused("--prompt A --stop-tokens x", 64, "--stop-tokens");
  refused("--prompt A --stop-tokens 4000", 64, "--stop-tokens 4000: the vocabulary has ");
  refused("--prompt A --logprobs 3", 64, "--logprobs");
  refused("--prompt-ids 4000", 64, "outside the vocabulary");
  refused("--prompt A --min-p 0.1 --temperature 0", 64, "--min-p");
  std::ofstream(work.folder / "bad.jsonl") << "\"A\"\n{\"text\": 1}\n";
  refused("--prompts " + work.path("bad.jsonl"), 65, "bad.jsonl line 2: 'prompt' is missing");
  std::ofstream(work.folder / "outside.txt") << "A\nB!\n";
  refused("--prompts " + work.path("outside.txt"), 64, "outside.txt line 2");
}

TEST_CASE("a conversation is read line by line, with a chat template") {
  const Workplace work;
  std::string lines;
  for (int i = 0; i < 20; ++i) lines += "{\"prompt\": \"Q" + std::to_string(i) + "\", \"answer\": \"yes.\"}\n";
  std::ofstream(work.folder / "d.jsonl") << lines;
  std::ofstream(work.folder / "chat.jinja") << "{% for m in messages %}{{ m.role[0] }}: {{ m.content }}\n{% endfor "
                                               "%}{% if add_generation_prompt %}a: {% endif %}";
  const Result trained =
      run("train_gpt",
          "--data " + work.path("d.jsonl") + " --chat-template " + work.path("chat.jinja") +
              " --layers 2 --heads 2 --width 32 --context 48 --micro-batch 2 --global-batch 4 --steps 60 --lr 1e-2 "
              "--positions rope --eval-every 30 --mesh dp=2 " +
              patient + "--out " + work.path("run"));
  INFO(trained.output);
  REQUIRE(trained.code == 0);
  CHECK(contains(trained.output, "18 dialogues in "));
  const std::string flags =
      "--checkpoint " + work.path("run") + " --chat --length 12 --temperature 0 --stop '[\"\\n\"]' ";
  const std::string chat = " --chat-template " + work.path("chat.jinja");
  std::ofstream(work.folder / "asked.txt") << "Q3\n\n/clear\nQ7\n/exit\nQ9\n";
  const Result talked = run("generate", flags + chat + " 2>/dev/null < " + work.path("asked.txt"));
  INFO(talked.output);
  CHECK(talked.code == 0);
  CHECK(talked.output == "yes.\nyes.\n");
  const Result by_its_own = run("generate", flags + " 2>/dev/null < " + work.path("asked.txt"));
  CHECK(by_its_own.output == talked.output);  // the run has the template it was trained with
  REQUIRE(run("train_gpt", work.small_run() + "--out " + work.path("plain")).code == 0);
  check_refused(run("generate", "--checkpoint " + work.path("plain") + " --chat < /dev/null"), 64,
                {"has no chat template", "--chat-template"});
  check_refused(run("generate", flags + chat + " --prompt A"), 64, {"--chat reads its questions from standard input"});

  // A question that the tokenizer does not know is passed over; the code says so at the end.
  std::ofstream(work.folder / "unknown.txt") << "Q3\n\u00e9?\nQ7\n/clear\nQ5\n";
  const Result passed = run("generate", flags + "--mesh tp=2 < " + work.path("unknown.txt"));
  INFO(passed.output);
  CHECK(passed.code == 64);
  CHECK(occurrences(passed.output, "yes.\n") == 3);
  CHECK(contains(passed.output, "trireme: [chat] line 2: the character"));
  CHECK(contains(passed.output, "goes on without this question"));
  std::ofstream(work.folder / "long.txt") << "Q1\nQ2\nQ3\nQ4\nQ5\nQ6\nQ7\n/clear\nQ1\n";
  const Result slid = run("generate", flags + "< " + work.path("long.txt"));
  CHECK(slid.code == 0);
  CHECK(occurrences(slid.output, "more than the model's context of 48") == 1);

  // The loss of the answers, which the run knows by heart: of each once, in any batches.
  const auto scored = [&](const std::string& more) {
    const Result result = run(
        "eval", "--checkpoint " + work.path("run") + " --data " + work.path("d.jsonl") + " --json 2>/dev/null " + more);
    const std::string start = "{\"dialogues\":20,\"targets\":100,\"loss\":";
    REQUIRE_MESSAGE(result.output.starts_with(start), result.output);
    return std::stod(result.output.substr(start.size()));
  };
  const double answers = scored("--batch 1");
  CHECK(answers < 0.2);
  for (const std::string& more : {std::string("--batch 3"), std::string("--mesh dp=2"), "--mesh pp=2" + chat})
    CHECK(scored(more) == doctest::Approx(answers).epsilon(1e-4));

  // Questions by themselves: lines, or the questions of dialogues.
  const std::string asks = "--checkpoint " + work.path("run") + " --length 12 --temperature 0 --stop '[\"\\n\"]' ";
  std::ofstream(work.folder / "questions.txt") << "Q3\nQ7\n";
  std::ofstream(work.folder / "questions.jsonl") << "\"Q3\"\n{\"prompt\": \"Q7\", \"answer\": \"?\"}\n";
  const Result answered = run("generate", asks + "--json --questions " + work.path("questions.txt") + " 2>/dev/null");
  INFO(answered.output);
  CHECK(answered.code == 0);
  CHECK(occurrences(answered.output, "\"text\":\"yes.\"") == 2);
  const std::string each = asks + "--json --batch 1 --questions " + work.path("questions.txt");
  CHECK(run("generate", each + " --mesh dp=2 2>/dev/null").output == run("generate", each + " 2>/dev/null").output);
  CHECK(
      run("generate", asks + "--json --mesh pp=2 --questions " + work.path("questions.jsonl") + " 2>/dev/null").code ==
      0);
  CHECK(run("generate", asks + "--questions " + work.path("questions.jsonl") + " 2>/dev/null").output ==
        "--- prompt 1 of 2 ---\nQ3\nyes.\n\n--- prompt 2 of 2 ---\nQ7\nyes.\n");
  std::ofstream(work.folder / "nothing.jsonl") << "\"Q3\"\n{\"messages\": []}\n";
  check_refused(run("generate", asks + "--questions " + work.path("nothing.jsonl")), 65,
                {"nothing.jsonl line 2: there is nothing to answer"});
  std::ofstream(work.folder / "empty.jinja");
  check_refused(run("generate", asks + "--questions " + work.path("questions.txt") + " --chat-template " +
                                    work.path("empty.jinja")),
                65, {"the template makes an empty text"});
  check_refused(run("generate", "--checkpoint x --prompt A --system S"), 64, {"--system"});
  std::ofstream(work.folder / "bad.jinja") << "\n{% for x %}";
  check_refused(run("generate", flags + " --chat-template " + work.path("bad.jinja") + " < /dev/null"), 65,
                {"bad.jinja line 2: expected 'in', got '%}'"});
  check_refused(run("train_gpt", "--data " + work.path("d.jsonl") + " --chat-template " + work.path("none")), 64,
                {"does not exist"});
  std::ofstream(work.folder / "bad.jsonl") << "{\"prompt\": \"a\", \"answer\": \"b\"}\n{}\n";
  check_refused(run("train_gpt", "--out none --data " + work.path("bad.jsonl") + " --chat-template chatml"), 65,
                {"bad.jsonl line 2"});
}
