// Writes generated texts in the order of their requests, although they are generated at the same time: as text, or as
// one line of JSON for each. The first text appears while it is made; the others follow when all are complete.
// Read next: train/gpt/stop_strings.h, train/program/output.h.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "train/gpt/generate.h"
#include "train/gpt/stop_strings.h"

namespace trireme {

/// What is written of one text.
struct TextLabel {
  std::string heading;      ///< before it: "--- sample 1 of 2 ---"; empty: none
  std::string prompt;       ///< written in bold before its continuation
  std::int64_t number = 0;  ///< of the prompt, in JSON
  std::int64_t sample = 0;  ///< of the text among those of its prompt, in JSON
};

/// The texts of one call of generate_texts().
class GenerationOutput {
 public:
  /// How texts are written.
  struct Options {
    bool json = false;
    std::vector<std::string> stops = {};  ///< strings that end a text
    std::function<void(std::string_view)> write, write_bold;
    bool first = true;  ///< no text was written before: no empty line in front
  };
  GenerationOutput(const Tokenizer& tokenizer, std::vector<TextLabel> labels, Options options);

  /// For generate_texts(): writes what can be shown, and returns false if a stop string was completed.
  bool add(std::size_t text, const GeneratedToken& token);
  /// Writes the rest: `texts` is the result of generate_texts().
  void finish(const std::vector<GeneratedText>& texts);

 private:
  void show(std::size_t text, const std::string& characters);
  void begin(std::size_t text);
  void write_json(std::size_t text, const GeneratedText& generated);

  std::vector<TextLabel> labels_;
  Options options_;
  std::vector<TextUntil> texts_;
  std::vector<std::string> waiting_;  // of texts that are not shown yet
  std::size_t front_ = 0;             // the text that is shown
};

}  // namespace trireme
