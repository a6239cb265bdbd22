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
void json(std::string_view input);          ///< data/json.h
void safetensors(std::string_view input);   ///< a file
void manifest(std::string_view input);      ///< manifest.json of a checkpoint
void tokenizer(std::string_view input);     ///< our tokenizer.json; with a zero byte in it: vocab.json, then merges.txt
void token_shard(std::string_view input);   ///< a file
void config(std::string_view input);        ///< a file for --config
void command_line(std::string_view input);  ///< one per line: NAME=value of the environment, then flags
void metrics(std::string_view input);       ///< metrics.jsonl, and the chart of its losses
void mesh(std::string_view input);          ///< one per line: --mesh, --pipeline, --stage-layers

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
