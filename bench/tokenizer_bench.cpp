// Encodes a text with a tokenizer and measures the speed: MB/s of the best of some rounds, after the tokenizer was
// loaded.
//
//   build/bin/tokenizer_bench --tokenizer bpe:FOLDER --data FILE
//   build/bin/tokenizer_bench --tokenizer bpe:FOLDER --data FILE --threads 2 --ids ids.bin
//
// scripts/peer_tokenizers.py compares its ids and its speed with those of other libraries.
// Read next: data/pipeline_tokenizer.h.
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <span>
#include <string>

#include "core/io.h"
#include "core/parallel_for.h"
#include "data/parallel_encode.h"
#include "data/pipeline_tokenizer.h"
#include "train/program/program.h"

using namespace trireme;

namespace {

struct Options {
  std::string tokenizer, data, ids, text;
  int rounds = 1, threads = 1;
  bool specials = false, ordinary = false;
};

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

/// As `tokenizers` encodes with add_special_tokens=True (specials), or False.
std::vector<std::int32_t> encode(const Tokenizer& tokenizer, std::string_view text, const Options& o) {
  if (o.specials) return tokenizer.encode_with_special(text);
  const auto* pipeline = dynamic_cast<const PipelineTokenizer*>(&tokenizer);
  if (pipeline != nullptr && !o.ordinary) return pipeline->encode_without_template(text);
  std::vector<std::int32_t> ids;
  encode_in_parallel(tokenizer, text,
                     [&](std::span<const std::int32_t> piece) { ids.insert(ids.end(), piece.begin(), piece.end()); });
  return ids;
}

int run(const Options& o) {
  set_threads(o.threads);
  auto begin = std::chrono::steady_clock::now();
  const auto tokenizer = make_tokenizer(o.tokenizer, {});
  const double load = seconds_since(begin);
  const std::string text = read_file(o.data);
  std::vector<std::int32_t> ids;
  double best = 1e30;
  for (int round = 0; round < o.rounds; ++round) {
    begin = std::chrono::steady_clock::now();
    ids = encode(*tokenizer, text, o);
    best = std::min(best, seconds_since(begin));
  }
  begin = std::chrono::steady_clock::now();
  const std::string decoded = tokenizer->decode(ids);
  const double decode = seconds_since(begin);
  const double megabytes = static_cast<double>(text.size()) / 1e6;
  fmt::print("{{\"tokens\": {}, \"load_s\": {:.4f}, \"encode_mb_s\": {:.3f}, \"decode_mb_s\": {:.3f}, \"same\": {}}}\n",
             ids.size(), load, megabytes / best, megabytes / decode, decoded == text);
  if (!o.ids.empty())
    write_file(o.ids, std::string(reinterpret_cast<const char*>(ids.data()), ids.size() * sizeof ids[0]));
  if (!o.text.empty()) write_file(o.text, decoded);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return run_program([&] {
    Options o;
    CLI::App app("Encodes a text and measures the speed.");
    app.add_option("--tokenizer", o.tokenizer, "as of train_gpt")->required();
    app.add_option("--data", o.data, "a text file")->required();
    app.add_option("--rounds", o.rounds, "the best one counts");
    app.add_option("--threads", o.threads, "for texts without special tokens");
    app.add_option("--ids", o.ids, "file for the ids, as i32");
    app.add_option("--text", o.text, "file for the decoded text");
    app.add_flag("--specials", o.specials, "special tokens become their ids, and the template is added");
    app.add_flag("--ordinary", o.ordinary, "special tokens in the text are ordinary text");
    CLI11_PARSE(app, argc, argv);
    return run(o);
  });
}
