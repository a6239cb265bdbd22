// Runs the fuzz targets in every test run: on all seeds, many mutations of each, and past findings, which are in
// tests/fuzz/corpus/TARGET. Also checks the error message for each class of malformed file.
#include <doctest/doctest.h>
#include <fmt/core.h>

#include <filesystem>
#include <random>
#include <set>

#include "core/io.h"
#include "data/gguf/file.h"
#include "data/hugging_face.h"
#include "data/npy.h"
#include "data/safetensors.h"
#include "data/tiktoken.h"
#include "data/tokenizer.h"
#include "parallel/checkpoint/manifest.h"
#include "tests/fuzz/seeds.h"
#include "tests/fuzz/targets.h"
#include "tests/support/errors.h"
#include "tests/support/sanitized.h"

using namespace trireme;

namespace {

/// What the target found wrong; empty if nothing.
std::string finding(const fuzz::Target& target, std::string_view input) {
  try {
    target.run(input);
    return {};
  } catch (const std::exception& error) { return error.what(); }
}

/// A random change, as damage or an attacker would make it: flipped bits, other bytes, repetitions, cuts, extreme
/// numbers.
std::string mutated(std::string text, std::mt19937_64& random) {
  const auto below = [&](std::size_t n) { return static_cast<std::size_t>(random() % std::max<std::size_t>(n, 1)); };
  for (std::size_t changes = 1 + below(3); changes > 0 && !text.empty(); --changes) {
    const std::size_t at = below(text.size()), length = 1 + below(std::min<std::size_t>(text.size() - at, 16));
    switch (random() % 6) {
      case 0:
        text[at] = static_cast<char>(text[at] ^ (1 << random() % 8));
        break;
      case 1:
        text[at] = "\0\xFF{}[]\",:019-"[random() % 14];
        break;
      case 2:
        text.erase(at, length);
        break;
      case 3:
        text.insert(at, text.substr(below(text.size()), length));
        break;
      case 4:
        text.replace(at, length,
                     std::vector<std::string>{"18446744073709551615", "4611686018427387904", "-1", "1e999", "null", "[",
                                              "{\"a\":"}[random() % 7]);
        break;
      default:
        text.resize(at);
        break;
    }
  }
  return text;
}

void check_refused(const fuzz::Malformed& bad, const std::function<void()>& parse) {
  CAPTURE(bad.name);
  const std::string message = testing::error_of(parse, ExitCode::data);
  CHECK(testing::says(message, "some/file " + bad.place));
  CHECK(testing::says(message, bad.problem));
}

const std::filesystem::path corpus = "tests/fuzz/corpus";

/// The past findings of a target; most targets have none.
std::vector<std::filesystem::path> past_findings(const std::string& target) {
  REQUIRE_MESSAGE(std::filesystem::is_directory(corpus), corpus.string(), " is missing; run in the repository's root");
  std::vector<std::filesystem::path> findings;
  for (const std::string& name : list_folder(corpus / target)) findings.push_back(corpus / target / name);
  return findings;
}

}  // namespace

TEST_CASE("every class of malformed safetensors file is refused with the file and the byte") {
  for (const fuzz::Malformed& bad : fuzz::malformed_safetensors())
    check_refused(bad, [&] { parse_safetensors(bad.content, "some/file"); });
}

TEST_CASE("every class of malformed GGUF file is refused with the file and the byte") {
  for (const fuzz::Malformed& bad : fuzz::malformed_gguf())
    check_refused(bad, [&] { parse_gguf(bad.content, "some/file"); });
}

TEST_CASE("every class of malformed array and archive of NumPy is refused with the file and the byte") {
  for (const fuzz::Malformed& bad : fuzz::malformed_npy())
    check_refused(bad, [&] { parse_npy(bad.content, "some/file"); });
  for (const fuzz::Malformed& bad : fuzz::malformed_npz())
    check_refused(bad, [&] { parse_npz(bad.content, "some/file"); });
}

TEST_CASE("every class of malformed tokenizer file is refused with the file and the byte") {
  for (const fuzz::Malformed& bad : fuzz::malformed_tokenizers())
    check_refused(bad, [&] { parse_tokenizer(bad.content, "some/file"); });
  for (const fuzz::Malformed& bad : fuzz::malformed_hugging_face())
    check_refused(bad, [&] { parse_hugging_face_json(bad.content, "some/file"); });
  for (const fuzz::Malformed& bad : fuzz::malformed_tiktoken())
    check_refused(bad, [&] { parse_tiktoken(bad.content, "cl100k_base", "some/file"); });
}

TEST_CASE("every class of malformed manifest is refused with the file and the byte") {
  for (const fuzz::Malformed& bad : fuzz::malformed_manifests())
    check_refused(bad, [&] { checkpoint::parse_manifest(bad.content, "some/file"); });
}

// Fewer under a sanitizer: the fuzzers, which also run with sanitizers, try thousands.
constexpr int mutations = testing::sanitized ? 60 : 300;

TEST_CASE("every folder of past findings belongs to a target and holds some") {
  std::set<std::string> names;
  for (const fuzz::Target& target : fuzz::targets()) names.insert(target.name);
  const std::vector<std::string> folders = list_folder(corpus);
  REQUIRE(!folders.empty());
  for (const std::string& folder : folders) {
    CHECK_MESSAGE(names.contains(folder), "no target has the name ", folder);
    CHECK_MESSAGE(!past_findings(folder).empty(), folder);
  }
}

TEST_CASE("seeds, mutations of them and past findings keep the promises of their parsers") {
  for (const fuzz::Target& target : fuzz::targets()) {
    std::mt19937_64 random(9);
    const std::vector<fuzz::Seed> seeds = fuzz::seeds(target.name);
    REQUIRE(!seeds.empty());
    for (const fuzz::Seed& seed : seeds) {
      CHECK_MESSAGE(finding(target, seed.content) == "", target.name, " ", seed.name);
      for (int i = 0; i < mutations; ++i) {
        const std::string input = mutated(seed.content, random);
        const std::string found = finding(target, input);
        REQUIRE_MESSAGE(found == "", target.name, ": ", found, " for ", input);
      }
    }
    for (const std::filesystem::path& file : past_findings(target.name))
      CHECK_MESSAGE(finding(target, read_file(file)) == "", file.string());
  }
}
