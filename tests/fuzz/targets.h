// Fuzz targets. Each feeds bytes to one parser and checks the result. A parser may refuse any input with an Error of
// code 64 or 65 and a message of one line of at most 4096 bytes. Accepted input must be unchanged after it is written
// and read again, and must keep the promises of the parser's header. Everything else (another exception, a crash, a
// sanitizer's report) is a finding.
//
// The same functions run under libFuzzer (tests/fuzz/entry.cpp), and in every test run on seeds, mutations of them and
// past findings (tests/fuzz/replay_test.cpp). Read next: tests/fuzz/data_targets.cpp, tests/fuzz/seeds.h.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"

namespace trireme::fuzz {

// Each parses the input as it is. Formats with checksums also parse it as the body of a file with correct checksums.
void json(std::string_view input);           ///< data/json.h
void safetensors(std::string_view input);    ///< a file
void gguf(std::string_view input);           ///< a file
void npy(std::string_view input);            ///< a file
void npz(std::string_view input);            ///< a file
void manifest(std::string_view input);       ///< manifest.json of a checkpoint
void chat_template(std::string_view input);  ///< a template; with a zero byte in it: then a JSON list of messages
void json_lines(std::string_view input);     ///< the name of a form of lines, a line end, then the lines
void tokenizer(std::string_view input);     ///< our tokenizer.json; with a zero byte in it: vocab.json, then merges.txt
void hugging_face(std::string_view input);  ///< tokenizer.json of Hugging Face
void tiktoken(std::string_view input);      ///< a file of ranks
void sentencepiece(std::string_view input);  ///< a model of SentencePiece
void regex(std::string_view input);          ///< a line with a regular expression, then a text
void token_shard(std::string_view input);    ///< a file
void config(std::string_view input);         ///< a file for --config
void command_line(std::string_view input);   ///< one per line: NAME=value of the environment, then flags
void model_config(std::string_view input);   ///< config.json, index and adapters of Hugging Face
void metrics(std::string_view input);        ///< metrics.jsonl, and the chart of its losses
void trace(std::string_view input);          ///< a trace of --profile, and what `view` says of it
void mesh(std::string_view input);           ///< one per line: --mesh, --pipeline, --stage-layers
void links(std::string_view input);          ///< a file for --links

/// The first byte chooses jsonl, csv, tsv or text; the rest is read in blocks of two sizes.
void records(std::string_view input);
void compressed(std::string_view input);     ///< a file, as gzip and as zstd
void prepare_state(std::string_view input);  ///< progress.json of prepare_data
void mixture(std::string_view input);        ///< --data of several sources
void llmc(std::string_view input);           ///< a file of llm.c, and as one of nanoGPT

struct Target {
  const char* name;
  void (*run)(std::string_view input);
};
const std::vector<Target>& targets();

/// Thrown when a parser breaks a promise.
class Broken : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};
inline void expect(bool holds, const char* what) {
  if (!holds) throw Broken(what);
}

/// Runs `f`; true if it throws no Error. False if it throws one with ExitCode::usage or data and a message of one line
/// of at most 4096 bytes. Throws Broken for any other Error.
bool accepted(const std::function<void()>& f);

}  // namespace trireme::fuzz
