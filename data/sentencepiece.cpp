#include "data/sentencepiece.h"

#include <set>

#include "core/error.h"
#include "core/io.h"
#include "data/bpe_tokenizer.h"
#include "data/byte_alphabet.h"
#include "data/hugging_face.h"
#include "data/scored_tokens.h"
#include "data/tokenizer_configuration.h"
#include "data/utf8.h"

namespace trireme {

namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using Type = SentencePiece::Type;

/// Whether a tokenizer.json gives the same ids.
bool fits_hugging_face(const SentencePieceModel& model) {
  const bool plain = model.rules.empty() && !model.removes_spaces && model.escapes_spaces && !model.space_at_end;
  if (model.algorithm != SentencePieceModel::Algorithm::bpe || !plain) return false;
  std::set<float> scores;
  for (const SentencePiece& piece : model.pieces) {
    // Of equal scores, what stands first in the text is merged first; a list of merges cannot say that. A piece of a
    // user would be found before a space is put in front.
    const bool ties = piece.type == Type::normal && !scores.insert(piece.score).second;
    const bool kept = piece.type == Type::user_defined && model.adds_space;
    if (ties || kept || piece.type == Type::unused) return false;
  }
  return true;
}

json added_json(const AddedToken& token) {
  json entry =
      scored_tokens::added_token(static_cast<std::size_t>(token.id), token.content, token.special, token.normalized);
  entry["lstrip"] = token.lstrip;
  entry["rstrip"] = token.rstrip;
  entry["single_word"] = token.single_word;
  return entry;
}

std::string hugging_face_text(const SentencePieceModel& model, const SentencePieceExtras& extras,
                              const fs::path& path) {
  std::vector<std::string> tokens;
  std::vector<std::int32_t> types;
  std::vector<float> scores;
  json settings = scored_tokens::character_settings(model.adds_space);
  settings["version"] = "1.0";
  settings["truncation"] = settings["padding"] = nullptr;
  settings["added_tokens"] = json::array();
  settings["model"]["byte_fallback"] = model.byte_fallback;
  settings["model"]["rank_by_token"] = true;
  for (std::size_t id = 0; id < model.pieces.size(); ++id) {
    const SentencePiece& piece = model.pieces[id];
    tokens.push_back(piece.text);
    types.push_back(static_cast<std::int32_t>(piece.type));
    scores.push_back(piece.score);
    const bool kept = piece.type == Type::user_defined;  // sought where U+2581 stands for spaces already
    if (kept || piece.type == Type::control || piece.type == Type::unknown)
      settings["added_tokens"].push_back(scored_tokens::added_token(id, piece.text, !kept, kept));
    if (piece.type == Type::unknown) settings["model"]["unk_token"] = piece.text;
  }
  for (const AddedToken& token : extras.added) settings["added_tokens"].push_back(added_json(token));
  const auto begin = extras.ends.begin ? model.control(model.begin_piece) : std::nullopt;
  const auto end = extras.ends.end ? model.control(model.end_piece) : std::nullopt;
  settings["post_processor"] = begin || end ? scored_tokens::template_of(tokens, begin, end) : json();
  const auto merges = scored_tokens::merges_of_scores(tokens, types, scores, path.string());
  return scored_tokens::tokenizer_json(settings, tokens, scored_tokens::merges_json(tokens, merges));
}

SentencePieceExtras read_extras(const fs::path& folder, std::size_t pieces) {
  const fs::path path = folder / "tokenizer_config.json";
  const json config = tokenizer_configuration(folder);
  SentencePieceExtras extras = {.ends = {.begin = flag_of(config, "add_bos_token", true, path),
                                         .end = flag_of(config, "add_eos_token", false, path)}};
  for (const AddedToken& token : configured_tokens(config, folder))
    if (static_cast<std::size_t>(token.id) >= pieces) extras.added.push_back(token);
  return extras;
}

}  // namespace

std::shared_ptr<const Tokenizer> make_sentence_piece(std::string_view file, const fs::path& path,
                                                     SentencePieceExtras extras) {
  const SentencePieceModel model = parse_sentence_piece_model(file, path);
  extras.ends.begin = extras.ends.begin && model.control(model.begin_piece);
  extras.ends.end = extras.ends.end && model.control(model.end_piece);
  if (fits_hugging_face(model)) return parse_hugging_face_json(hugging_face_text(model, extras, path), path);
  if (!extras.added.empty())
    fail(ExitCode::data, "tokenizer",
         "{}: the token {} was added to a model that has {}; expected no tokens beside its pieces; save tokenizer.json "
         "with AutoTokenizer.save_pretrained",
         path.string(), in_quotes(extras.added.front().content),
         model.algorithm == SentencePieceModel::Algorithm::bpe ? "more steps than merges" : "unigrams");
  return std::make_shared<SentencePieceTokenizer>(std::string(file), path, extras.ends);
}

std::shared_ptr<const Tokenizer> load_sentence_piece(const fs::path& path) {
  const fs::path file = fs::is_directory(path) ? path / sentence_piece_name : path;
  if (!fs::exists(file))
    fail(ExitCode::usage, "tokenizer", "{} does not exist; expected a model of SentencePiece; change --tokenizer",
         file.string());
  const std::string bytes = read_file(file, read_limits::tokenizer);
  const std::size_t pieces = parse_sentence_piece_model(bytes, file).pieces.size();
  return make_sentence_piece(bytes, file, read_extras(file.parent_path(), pieces));
}

std::shared_ptr<const Tokenizer> parse_saved_sentence_piece(const json& object, const fs::path& path) {
  const auto model = object.find("model");
  const auto bytes =
      model != object.end() && model->is_string() ? unspell_bytes(model->get_ref<const std::string&>()) : std::nullopt;
  if (!bytes) fail(ExitCode::data, "tokenizer", "{}: no \"model\" in the alphabet of bytes", path.string());
  return std::make_shared<SentencePieceTokenizer>(
      *bytes, path,
      SentencePieceEnds{flag_of(object, "adds_begin", false, path), flag_of(object, "adds_end", false, path)});
}

}  // namespace trireme
