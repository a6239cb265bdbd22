// The model file of SentencePiece, tokenizer.model: pieces with scores, how text is normalized, and which algorithm
// makes pieces of it. It is a protocol buffer: sentencepiece_model.proto of github.com/google/sentencepiece.
// Read next: data/sentencepiece.h, which makes a tokenizer of it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace trireme {

/// A piece of text that is a token; its id is its index.
struct SentencePiece {
  /// As the file numbers them.
  enum class Type { normal = 1, unknown = 2, control = 3, user_defined = 4, unused = 5, byte = 6 };
  std::string text = {};
  float score = 0;
  Type type = Type::normal;
};

/// What such a file says. The values are those of a file that says nothing.
struct SentencePieceModel {
  /// As the file numbers them.
  enum class Algorithm { unigram = 1, bpe = 2, word = 3, character = 4 };
  std::vector<SentencePiece> pieces = {};
  Algorithm algorithm = Algorithm::unigram;
  std::int32_t unknown = 0;    ///< the id of the one piece of this type
  bool byte_fallback = false;  ///< a character that is no piece becomes pieces for its bytes
  bool space_at_end = false;   ///< the space that is added to a text stands behind it
  std::string begin_piece = "<s>", end_piece = "</s>", unknown_surface = " \xE2\x81\x87 ";
  std::string rules = {};      ///< a double array of texts, its size in front, then what replaces them
  bool adds_space = true;      ///< a text gets a space in front
  bool removes_spaces = true;  ///< of several spaces one is left, and none at the ends
  bool escapes_spaces = true;  ///< U+2581 stands for a space

  /// The id of a control piece; nothing if there is none.
  std::optional<std::int32_t> control(std::string_view text) const;
};

inline constexpr std::size_t longest_sentence_piece = 1024;  ///< in bytes

/// Parses a model file. Throws ExitCode::data, naming `path`, for what is malformed: no protocol buffer, no pieces,
/// pieces that are empty, long, not UTF-8 or occur twice, scores that are not finite, not exactly one unknown piece,
/// byte fallback without all 256 bytes, or a step behind decoding.
SentencePieceModel parse_sentence_piece_model(std::string_view bytes, const std::filesystem::path& path);

}  // namespace trireme
