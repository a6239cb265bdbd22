// Byte-level BPE: the word pattern, merging against the textbook algorithm, training, files, and GPT-2's vocabulary.
#include "data/bpe_tokenizer.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <thread>

#include "core/io.h"
#include "data/bpe_train.h"
#include "data/word_patterns.h"
#include "helpers.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"

using namespace trireme;
using namespace trireme::testing;

namespace {

std::vector<std::string> words_of(std::string_view text) {
  std::vector<std::string> words;
  for_each_bpe_word(text, [&](std::string_view word) { words.emplace_back(word); });
  return words;
}

BpeTokenizer trained(std::string_view text, std::int32_t vocab) {
  return BpeTokenizer(train_bpe({&text, 1}, vocab), "test");
}

/// The textbook encoder: find the best pair, merge all of it from left to right, start again. Quadratic and obvious.
std::vector<std::int32_t> encode_slowly(const BpeMerges& vocabulary, std::string_view text) {
  std::map<std::string, std::int32_t> ids;
  for (std::size_t id = 0; id < vocabulary.tokens.size(); ++id)
    ids[vocabulary.tokens[id]] = static_cast<std::int32_t>(id);
  std::map<std::pair<std::int32_t, std::int32_t>, std::size_t> ranks;
  for (std::size_t rank = 0; rank < vocabulary.merges.size(); ++rank) ranks[vocabulary.merges[rank]] = rank;
  std::vector<std::int32_t> result;
  for (const std::string& word : words_of(text)) {
    std::vector<std::int32_t> tokens;
    for (const char c : word) tokens.push_back(ids.at(std::string(1, c)));
    while (true) {
      std::size_t best = vocabulary.merges.size();
      for (std::size_t i = 0; i + 1 < tokens.size(); ++i) {
        const auto found = ranks.find({tokens[i], tokens[i + 1]});
        if (found != ranks.end()) best = std::min(best, found->second);
      }
      if (best == vocabulary.merges.size()) break;
      const auto [left, right] = vocabulary.merges[best];
      const auto spelled =
          vocabulary.tokens[static_cast<std::size_t>(left)] + vocabulary.tokens[static_cast<std::size_t>(right)];
      for (std::size_t i = 0; i + 1 < tokens.size(); ++i) {
        if (tokens[i] != left || tokens[i + 1] != right) continue;
        tokens[i] = ids.at(spelled);
        tokens.erase(tokens.begin() + static_cast<std::ptrdiff_t>(i) + 1);
      }
    }
    result.insert(result.end(), tokens.begin(), tokens.end());
  }
  return result;
}

/// The textbook trainer: count all pairs again after every merge.
std::vector<std::pair<std::int32_t, std::int32_t>> train_slowly(std::string_view text, std::size_t merges) {
  std::vector<std::vector<std::int32_t>> words;
  for (const std::string& word : words_of(text)) {
    words.emplace_back();
    for (const char c : word) words.back().push_back(static_cast<unsigned char>(c));
  }
  std::vector<std::pair<std::int32_t, std::int32_t>> result;
  while (result.size() < merges) {
    std::map<std::pair<std::int32_t, std::int32_t>, int> counts;
    for (const auto& word : words) {
      for (std::size_t i = 0; i + 1 < word.size(); ++i) ++counts[{word[i], word[i + 1]}];
    }
    const auto best = std::max_element(counts.begin(), counts.end(), [](const auto& a, const auto& b) {
      return a.second != b.second ? a.second < b.second : a.first > b.first;
    });
    const auto merged = static_cast<std::int32_t>(256 + result.size());
    for (auto& word : words) {
      for (std::size_t i = 0; i + 1 < word.size(); ++i) {
        if (std::pair(word[i], word[i + 1]) != best->first) continue;
        word[i] = merged;
        word.erase(word.begin() + static_cast<std::ptrdiff_t>(i) + 1);
      }
    }
    result.push_back(best->first);
  }
  return result;
}

const std::string_view kTiny =
    "low low low low low lower lower newest newest newest newest newest newest widest widest widest";

}  // namespace

TEST_CASE("the word pattern cuts as GPT-2's does") {
  using Words = std::vector<std::string>;
  CHECK(words_of("Hello world!") == Words{"Hello", " world", "!"});
  CHECK(words_of("I'll say it's 1999's") == Words{"I", "'ll", " say", " it", "'s", " 1999", "'s"});
  CHECK(words_of("a  b   c\n\n d ") == Words{"a", " ", " b", "  ", " c", "\n\n", " d", " "});
  CHECK(words_of("x=3;//\u4F60\u597D 12ab") == Words{"x", "=", "3", ";//", "\u4F60\u597D", " 12", "ab"});
  CHECK(words_of("a\u00A0b\u3000\u3000c") == Words{"a", "\u00A0", "b", "\u3000", "\u3000", "c"});
  CHECK(words_of("a\u180Eb") == Words{"a", "\u180E", "b"});  // a format character, not a space, since Unicode 6.3
  CHECK(words_of("ab\xFF\xFE c") == Words{"ab", "\xFF", "\xFE", " c"});
  CHECK(words_of("").empty());
}

TEST_CASE("the words joined are the text, also for random bytes") {
  std::mt19937_64 random(3);
  for (int round = 0; round < 20; ++round) {
    const std::string text = random_text(random, 300) + random_bytes(random, 100) + random_text(random, 10);
    std::string joined;
    for (const std::string& word : words_of(text)) joined += word;
    CHECK(joined == text);
  }
}

TEST_CASE("training on a tiny text: the merges are known") {
  const BpeTokenizer tokenizer = trained(kTiny, 256 + 6 + 1);
  std::vector<std::string> learnt(tokenizer.vocabulary().tokens.begin() + 256, tokenizer.vocabulary().tokens.end());
  // Counts by hand: es and st 9 ('e' has the smaller id), then es+t 9, lo and ow 7 ('l'), lo+w 7. Then six times each:
  // (space, n), (space, low), (e, w), (w, est): the smallest left id is the space's, and 'n' is smaller than the new
  // token "low".
  CHECK(learnt == std::vector<std::string>{"es", "est", "lo", "low", " n", " low", "<|endoftext|>"});
  CHECK(tokenizer.end_of_text() == 262);
  CHECK(tokenizer.encode(" lowest") == std::vector<std::int32_t>{261, 257});
}

TEST_CASE("training equals counting everything again after each merge") {
  std::mt19937_64 random(4);
  std::string text;
  for (int i = 0; i < 400; ++i) {
    for (auto letters = 1 + random() % 6; letters > 0; --letters) text += static_cast<char>('a' + random() % 4);
    text += random() % 5 == 0 ? "\n" : " ";
  }
  const std::string_view view = text;
  const BpeVocabulary vocabulary = train_bpe({&view, 1}, 256 + 60 + 1);
  CHECK(vocabulary.merges == train_slowly(text, 60));
  // The order of the texts decides nothing.
  const std::string_view halves[] = {view.substr(view.size() / 2), view.substr(0, view.size() / 2)};
  const std::string_view swapped[] = {halves[1], halves[0]};
  CHECK(train_bpe(halves, 300).tokens == train_bpe(swapped, 300).tokens);
}

TEST_CASE("training equals counting everything again on runs, ties and spellings that several pairs share") {
  std::mt19937_64 random(6);
  const std::string_view parts[] = {"abab", "aaa", "abc", "bca", "aab ", "a", " ", "cab"};
  for (int round = 0; round < 60; ++round) {
    std::string text;
    for (auto pieces = 20 + random() % 100; pieces > 0; --pieces)
      text += round % 3 == 0   ? std::string(random() % 9, static_cast<char>('a' + random() % 2))
              : round % 3 == 1 ? std::string(parts[random() % 8])
                               : std::string(1, static_cast<char>('a' + random() % 3));
    const std::string_view view = text;
    BpeVocabulary vocabulary;
    std::int32_t tokens = 256 + 25;  // as many as the text supports
    while (caught([&] { vocabulary = train_bpe({&view, 1}, tokens); }).code == ExitCode::usage) --tokens;
    if (tokens < 257) continue;
    // The textbook trainer gives a spelling that it meets again another id: compared up to there.
    std::size_t same = 0;
    const auto text_of = [&](std::int32_t id) { return vocabulary.tokens[static_cast<std::size_t>(id)]; };
    while (same < vocabulary.merges.size() &&
           text_of(vocabulary.merges[same].first) + text_of(vocabulary.merges[same].second) ==
               vocabulary.tokens[256 + same])
      ++same;
    vocabulary.merges.resize(same);
    CHECK(vocabulary.merges == train_slowly(text, same));
  }
}

TEST_CASE("training looks at each byte of a word a few times, however long the word and large the vocabulary") {
  std::mt19937_64 random(7);
  std::string text;
  for (int i = 0; i < 100'000; ++i) text += "ACGT"[random() % 4];
  const std::string_view view = text;
  for (const std::int32_t vocab : {300, 600, 1200}) {
    std::int64_t work = 0;
    train_bpe({&view, 1}, vocab, &work);
    CAPTURE(vocab);
    CHECK(work > 0);
    CHECK(work < 3 * 100'000);  // the words that contain a pair, read again for each merge: vocab - 257 times
  }
}

TEST_CASE("training refuses sizes that cannot be, with the largest that can") {
  CHECK(caught([] { trained(kTiny, 256); }).code == ExitCode::usage);
  const Caught large = caught([] { trained(kTiny, 10'000); });
  CHECK(large.code == ExitCode::usage);
  REQUIRE(large.has("supports a vocabulary of "));
  const auto at = large.message.find("vocabulary of ") + 14;
  const int most = std::stoi(large.message.substr(at));
  CHECK(trained(kTiny, most).vocab_size() == most);
  CHECK(caught([&] { trained(kTiny, most + 1); }).code == ExitCode::usage);
}

TEST_CASE("encoding equals the textbook algorithm and round trips") {
  std::mt19937_64 random(5);
  std::string corpus;
  for (int i = 0; i < 30; ++i) corpus += random_text(random, 60) + std::string(kTiny);
  const BpeTokenizer tokenizer = trained(corpus, 400);
  for (int round = 0; round < 30; ++round) {
    const std::string text = random_text(random, 100) + random_bytes(random, 20) +
                             std::string(kTiny).substr(random() % 50) + std::string(random() % 40, 'e');
    const auto ids = tokenizer.encode(text);
    CHECK(ids == encode_slowly(tokenizer.vocabulary(), text));
    CHECK(ids == tokenizer.encode(text));  // now from the cache
    CHECK(tokenizer.decode(ids) == text);
  }
  CHECK(tokenizer.encode("").empty());
}

TEST_CASE("a megabyte without a word boundary round trips") {
  const BpeTokenizer tokenizer = trained(kTiny, 263);
  for (const std::string& text :
       {std::string(1 << 20, 'e'), std::string(1 << 20, ' '), std::string(1 << 20, '\n') + "x"})
    CHECK(tokenizer.decode(tokenizer.encode(text)) == text);
}

TEST_CASE("<|endoftext|> is text unless asked for") {
  const BpeTokenizer tokenizer = trained(kTiny, 263);
  const std::string text = "low<|endoftext|>new<|endoftext|>";
  const auto plain = tokenizer.encode(text), special = tokenizer.encode_with_special(text);
  CHECK(std::count(plain.begin(), plain.end(), 262) == 0);
  CHECK(std::count(special.begin(), special.end(), 262) == 2);
  CHECK(special.back() == 262);
  CHECK(tokenizer.decode(plain) == text);
  CHECK(tokenizer.decode(special) == text);
  CHECK(tokenizer.encode_with_special("low") == tokenizer.encode("low"));
}

TEST_CASE("threads may share one tokenizer") {
  std::mt19937_64 random(6);
  const std::string text = random_text(random, 3000) + std::string(kTiny);
  const BpeTokenizer tokenizer = trained(text, 300);
  const auto expected = trained(text, 300).encode(text);
  std::vector<std::vector<std::int32_t>> results(4);
  std::vector<std::thread> threads;
  for (auto& result : results) threads.emplace_back([&] { result = tokenizer.encode(text); });
  for (auto& thread : threads) thread.join();
  for (const auto& result : results) CHECK(result == expected);
}

TEST_CASE("our file and the Hugging Face layout hold the same tokenizer") {
  const TempFolder folder;
  const BpeTokenizer tokenizer = trained(kTiny, 270);
  tokenizer.save(folder / "tokenizer.json");
  const auto ours = make_tokenizer("bpe:" + folder.path().string(), {});
  CHECK(ours->hash() == tokenizer.hash());
  CHECK(ours->encode(kTiny) == tokenizer.encode(kTiny));

  const auto& vocabulary = tokenizer.vocabulary();
  std::string vocab = "{", merges = "#version: 0.2\n";
  for (std::size_t id = vocabulary.tokens.size(); id-- > 0;) {  // any order
    std::string spelled = spell_bytes(vocabulary.tokens[id]), escaped;
    for (const char c : spelled) escaped += (c == '"' || c == '\\') ? std::string("\\") + c : std::string(1, c);
    vocab += fmt::format("\"{}\": {}{}", escaped, id, id == 0 ? "}" : ", ");
  }
  for (const auto& [left, right] : vocabulary.merges)
    merges += spell_bytes(vocabulary.tokens[static_cast<std::size_t>(left)]) + " " +
              spell_bytes(vocabulary.tokens[static_cast<std::size_t>(right)]) + "\n";
  const TempFolder other;
  write_file(other / "tiny_vocab.json", vocab);
  write_file(other / "tiny_merges.txt", merges);
  const auto theirs = make_tokenizer("bpe:" + other.path().string(), {});
  CHECK(theirs->hash() == tokenizer.hash());
  CHECK(theirs->end_of_text() == tokenizer.end_of_text());

  write_file(other / "tiny_merges.txt", "\xEF\xBB\xBF" + merges);
  CHECK(make_tokenizer("bpe:" + other.path().string(), {})->hash() == tokenizer.hash());
  write_file(other / "tiny_merges.txt", merges + "x\n");
  const Caught line = caught([&] { load_bpe(other.path()); });
  CHECK(line.code == ExitCode::data);
  CHECK(line.has(fmt::format("tiny_merges.txt byte {}: line 15: expected two tokens", merges.size())));
  write_file(other / "tiny_merges.txt", merges + "e\u0120 x\n");
  CHECK(caught([&] { load_bpe(other.path()); }).has("not in the vocabulary"));
  write_file(other / "tiny_merges.txt", merges + "e s\n");
  CHECK(caught([&] { load_bpe(other.path()); }).has("repeats an earlier one"));
  const std::string cut = merges.substr(0, merges.rfind('\n', merges.size() - 2) + 1);
  for (const auto& [text, count] :
       {std::pair(cut, 12), std::pair(std::string("#version: 0.2\n"), 0), std::pair(std::string(), 0)}) {
    write_file(other / "tiny_merges.txt", text);
    CHECK(caught([&] { load_bpe(other.path()); }).has(fmt::format("tiny_merges.txt has {} merges, which make", count)));
  }
  write_file(other / "tiny_vocab.json", R"({"a": 0, "b": 5})");
  CHECK(caught([&] { load_bpe(other.path()); }).has("tiny_vocab.json byte 9: token \"b\" has id 5, but none has 1"));
  write_file(other / "tiny_vocab.json", R"({"a": 0, "b": 0})");
  CHECK(caught([&] {
          load_bpe(other.path());
        }).has("tiny_vocab.json byte 9: token \"b\" has the id 0 of \"a\"; expected one of its own"));
}

TEST_CASE("GPT-2's vocabulary") {
  const auto folder = test_data_folder();
  if (folder.empty()) {
    MESSAGE("skipped: set TRIREME_TEST_DATA to a folder with GPT-2's vocab.json and merges.txt");
    return;
  }
  const auto tokenizer = make_tokenizer("bpe:" + folder.string(), {});
  CHECK(tokenizer->vocab_size() == 50257);
  CHECK(tokenizer->end_of_text() == 50256);
  CHECK(tokenizer->encode("indivisible") == std::vector<std::int32_t>{521, 452, 12843});
  CHECK(tokenizer->encode("Hello world") == std::vector<std::int32_t>{15496, 995});
  std::mt19937_64 random(8);
  const std::string tricky = random_text(random, 2000) + random_bytes(random, 200);
  CHECK(tokenizer->decode(tokenizer->encode(tricky)) == tricky);
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() != ".txt") continue;
    const std::string text = read_file(entry.path());
    CHECK(tokenizer->decode(tokenizer->encode(text)) == text);
  }
}
