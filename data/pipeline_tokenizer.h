// A tokenizer made of steps, as Hugging Face's tokenizer.json describes it: added tokens are cut out of the text;
// normalizers change the rest; pre-tokenizers cut it into words; merges turn words into ids; a template adds ids such
// as that of <s>; a decoder turns ids into text. Files of ranks of tiktoken are tokenizers of this kind, too.
//
// tests/data/peer_tokenizers_test.cpp compares it with the libraries `tokenizers` and `tiktoken`.
// Read next: data/hugging_face.h and data/tiktoken.h (the files), data/text_steps.h, data/bpe_model.h.
#pragma once

#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "data/added_tokens.h"
#include "data/bpe_model.h"
#include "data/text_steps.h"
#include "data/tokenizer.h"

namespace trireme {

/// How tokens become text again.
struct TokenDecoder {
  bool byte_level = false;                                        ///< tokens are spelled in GPT-2's alphabet of bytes
  std::vector<std::pair<std::string, std::string>> replace = {};  ///< in each token
  bool byte_fallback = false;                                     ///< "<0x41>" is the byte 0x41
  std::string metaspace = {};                                     ///< what stands for a space; empty: nothing
  bool metaspace_begins = false;                                  ///< the first token loses its metaspaces
  std::string strip = {};  ///< the text loses this at its beginning, up to `strip_count` times
  std::size_t strip_count = 0;
};

/// All steps of a tokenizer.
struct PipelineSettings {
  std::vector<AddedToken> added = {};
  std::vector<NormalizerStep> normalizers = {};
  std::vector<SplitStep> splits = {};
  BpeOptions model = {};
  std::vector<std::int32_t> prefix = {}, suffix = {};  ///< of a text with special tokens
  TokenDecoder decoder = {};
};

/// A tokenizer made of steps; see the top of this file.
class PipelineTokenizer : public Tokenizer {
 public:
  /// `kind` and `settings` (JSON) are what to_json() writes: data/tokenizer_files.cpp reads them again. Throws
  /// ExitCode::data, naming `source`, for parts that do not fit together.
  PipelineTokenizer(std::string kind, std::string settings_json, BpeMerges merges, PipelineSettings settings,
                    const std::string& source);

  std::string_view name() const override { return "bpe"; }
  std::int32_t vocab_size() const override { return vocab_size_; }
  void append_ids(std::string_view text, std::vector<std::int32_t>& ids) const override;
  std::vector<std::int32_t> encode_with_special(std::string_view text) const override;
  /// Added tokens, special ones too, are found; the template is left out. `tokenizers` calls this
  /// encode(text, add_special_tokens=False).
  std::vector<std::int32_t> encode_without_template(std::string_view text) const;
  std::optional<std::int32_t> end_of_text() const override { return end_of_text_; }
  std::string to_json() const override;
  std::optional<std::size_t> safe_cut(std::string_view text, std::size_t at) const override;

  const PipelineSettings& settings() const { return settings_; }
  const BpeModel& model() const { return model_; }
  /// The id of a token, spelled as in its file; nothing if there is none.
  std::optional<std::int32_t> find(std::string_view spelling) const;
  /// The token as its file spells it; `storage` may hold it.
  std::string_view spelling(std::int32_t id, std::string& storage) const;
  const std::string& kind() const { return kind_; }
  const std::string& settings_json() const { return settings_json_; }

 protected:
  void append_bytes(std::int32_t id, std::string& text) const override;
  void append_text(std::span<const std::int32_t> ids, std::string& text) const override;
  void append_part(std::string_view text, std::size_t begin, std::size_t end,
                   std::vector<std::int32_t>& ids) const override;

 private:
  struct Target {
    WordCache& cache;
    std::vector<std::int32_t>& ids;
  };
  void encode_all(std::string_view text, bool begins, bool specials, std::vector<std::int32_t>& ids) const;
  void encode_segment(std::string_view text, bool begins, bool continues, bool specials, const Target& target) const;
  void encode_valid(std::string_view text, bool begins, bool continues, bool specials, const Target& target) const;
  void encode_normalized(std::string_view text, bool begins, bool continues, const Target& target) const;
  void check_added(const std::string& source);
  bool find_may_cut() const;
  static AddedTokenFinder finder_of(const PipelineSettings& settings, bool normalized);

  std::string kind_, settings_json_;
  PipelineSettings settings_;
  BpeModel model_;
  AddedTokenFinder raw_finder_, normalized_finder_;
  /// For a part of a text that is not its beginning: without what is put in front of a text.
  std::vector<NormalizerStep> continuing_normalizers_;
  std::vector<SplitStep> continuing_splits_;
  std::unordered_map<std::int32_t, std::size_t> added_only_;  // id of an added token that is not in the model -> index
  std::int32_t vocab_size_ = 0;
  std::optional<std::int32_t> end_of_text_;
  bool separates_metaspaces_ = false;  // no token has a metaspace behind another character: words may be cut there
  bool may_cut_ = false;
};

}  // namespace trireme
