// Fuzz targets: each feeds bytes to one parser and checks what follows. A parser may refuse anything, with an Error of
// code 64 or 65 and a message of one line; what it accepts must survive being written and read again, and keep the
// promises of its header. Everything else (another exception, a crash, a sanitizer's report) is a finding.
//
// The same functions run under libFuzzer (tests/fuzz/entry.cpp) and over seeds, mutations of them and past crashes in
// every test run (tests/fuzz/replay_test.cpp). Read next: tests/fuzz/data_targets.cpp, tests/fuzz/seeds.h.
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

// What is parsed, and for the formats with checksums also as the body of a file whose checksums are right.
void json(std::string_view input);          ///< data/json.h
void safetensors(std::string_view input);   ///< a file
void manifest(std::string_view input);      ///< manifest.json of a checkpoint
void tokenizer(std::string_view input);     ///< our tokenizer.json; with a zero byte in it: vocab.json, then merges.txt
void token_shard(std::string_view input);   ///< a file
void config(std::string_view input);        ///< what --config names
void command_line(std::string_view input);  ///< a line each: NAME=value of the environment, then flags
void mesh(std::string_view input);          ///< a line each: --mesh, --pipeline, --stage-layers

struct Target {
  const char* name;
  void (*run)(std::string_view input);
};
const std::vector<Target>& targets();

/// A promise of a parser that does not hold.
class Broken : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};
inline void expect(bool holds, const char* what) {
  if (!holds) throw Broken(what);
}

/// Runs `f`. False when it refused, as it may: with ExitCode::usage or data, and a message of one line and of bounded
/// length.
bool accepted(const std::function<void()>& f);

}  // namespace trireme::fuzz
