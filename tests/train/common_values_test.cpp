// Values that must be equal on all ranks: the first one that differs is named, with the value of each rank.
#include "train/launch/common_values.h"

#include <doctest/doctest.h>

#include <atomic>
#include <fstream>

#include "core/cpu/processor.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"
#include "train/gpt/gpt_options.h"

using namespace trireme;
using namespace trireme::testing;
using trireme::testing::contains;
using trireme::testing::TempFolder;

namespace {

GptOptions options_of(const std::vector<std::string>& words) {
  GptOptions options;
  Flags flags("", "");
  declare_all(flags, options);
  flags.parse(words);
  resolve(options, 0);
  options.run.config = config_text(options);
  return options;
}

std::string difference(const std::vector<CommonValues>& by_rank) {
  const auto found = first_difference(by_rank);
  return found ? fmt::format("{} {}", static_cast<int>(found->code), found->message) : "none";
}

Corpus corpus_of(const std::filesystem::path& path, const std::string& text, const std::string& tokenizer = "char") {
  std::ofstream(path) << text;
  return load_corpus({.path = path, .tokenizer = tokenizer, .val_fraction = 0.5, .context = 2});
}

/// The message if rank 0 has read `a` and rank 1 has read `b`.
std::string between(const Corpus& a, const Corpus& b) { return difference({common_corpus(a), common_corpus(b)}); }

}  // namespace

TEST_CASE("the first value that differs is named, with the ranks that have each") {
  const auto rank = [](const std::string& lr, const std::string& steps) {
    return CommonValues{common_flag("lr", lr), common_flag("steps", steps)};
  };
  CHECK(difference({rank("0.1", "5"), rank("0.1", "5")}) == "none");
  CHECK(difference({rank("0.1", "6"), rank("0.1", "5"), rank("0.1", "6")}) ==
        "64 --steps differs between ranks: 6 on rank 0, 2; 5 on rank 1; expected one configuration; start every rank "
        "with the same flags");
  CHECK(contains(difference({rank("0.1", "5"), rank("0.2", "6")}), "--lr differs between ranks: 0.1 on rank 0; 0.2"));
  // A missing value is no difference: that rank failed earlier, and reports its own error.
  CHECK(difference({rank("0.1", "5"), {common_flag("lr", "0.1")}}) == "none");
  CHECK(difference({{common_flag("lr", "0.1")}, rank("0.1", "5")}) == "none");
  CHECK(contains(difference({rank("0.1", "5"), {common_flag("lr", "0.2")}}), "--lr differs"));

  std::vector<CommonValues> many(20, rank("0.1", "5"));
  many[3] = rank("0.2", "5");
  CHECK(contains(difference(many), "0.1 on rank 0, 1, 2, 4, 5, 6, 7, 8 and 11 more; 0.2 on rank 3;"));
  for (std::size_t i = 0; i < many.size(); ++i) many[i] = rank(std::to_string(i), "5");
  CHECK(contains(difference(many), "3 on rank 3; 16 other values; expected"));
}

TEST_CASE("texts, tokenizers and their parts for training are compared") {
  const TempFolder folder;
  const Corpus text = corpus_of(folder / "text", "abcabcabcabc");
  CHECK(between(text, corpus_of(folder / "copy", "abcabcabcabc")) == "none");
  CHECK(contains(between(text, corpus_of(folder / "longer", "abcabcabcabcabc")),
                 "65 the number of training tokens in --data differs between ranks: 6 on rank 0; 7 on rank 1; expected "
                 "the same tokens; give every rank the same files under --data"));
  CHECK(contains(between(text, corpus_of(folder / "by_one", "abcabcabcabca")),
                 "65 the number of validation tokens in --data differs between ranks: 6 on rank 0; 7 on rank 1;"));
  CHECK(contains(between(text, corpus_of(folder / "letters", "abcabcabcabd")),
                 "65 the tokenizer of --data differs between ranks: char of 3 ids (hash "));
  CHECK(contains(between(text, corpus_of(folder / "bytes", "abcabcabcabc", "byte")), "on rank 0; byte of 256 ids"));
  CHECK(contains(between(text, corpus_of(folder / "order", "abcabcabcacb")),
                 "65 the text of --data differs between ranks: hash "));
}

TEST_CASE("of the processor, what changes results is compared") {
  const auto found = cpu::bf16_unit();
  const auto with = [](cpu::Bf16Unit unit, const char* dtype) {
    cpu::select_bf16_unit(unit);
    return common_setup(options_of({"--dtype", dtype}));
  };
  const std::vector<CommonValues> bf16 = {with(cpu::Bf16Unit::vectors, "bf16"),
                                          with(cpu::Bf16Unit::software_tiles, "bf16")};
  const std::vector<CommonValues> f32 = {with(cpu::Bf16Unit::vectors, "f32"),
                                         with(cpu::Bf16Unit::software_tiles, "f32")};
  cpu::select_bf16_unit(found);
  CHECK(contains(difference(bf16),
                 "64 the processor's unit for products of bf16 differs between ranks: vectors on rank 0; software-amx "
                 "on rank 1; expected one, as each gives other bits; set TRIREME_ISA"));
  CHECK(difference(f32) == "none");
  CHECK(contains(difference({common_setup(options_of({"--gemm", "eigen"})), common_setup(options_of({}))}),
                 "--gemm differs between ranks: \"eigen\" on rank 0; \"trireme\" on rank 1"));  // what auto stands for
}

TEST_CASE("every rank is told of a difference, and of none where there is none") {
  std::atomic<int> refused{0};
  run_thread_ranks(3, 1, ProcessGroup::Deadline(1800), [&](const std::shared_ptr<ProcessGroup>& world) {
    CommonValues values = common_setup(options_of({"--steps", "5"}));
    require_common(*world, values);
    values.push_back({"the text of --data", world->rank() == 1 ? "b" : "a", "expected one; give one", ExitCode::data});
    const std::string message = trireme::testing::failure([&] { require_common(*world, values); });
    if (message ==
        "65 trireme: [configuration] the text of --data differs between ranks: a on rank 0, 2; b on rank 1; expected "
        "one; give one")
      ++refused;
    values.resize(world->rank() == 0 ? 1 : values.size() - 1);
    require_common(*world, values);
  });
  CHECK(refused == 3);
}
