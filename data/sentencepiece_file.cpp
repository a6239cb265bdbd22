#include "data/sentencepiece_file.h"

#include <fmt/format.h>

#include <cmath>
#include <protozero/pbf_reader.hpp>
#include <unordered_set>

#include "core/error.h"
#include "data/bpe_builder.h"
#include "data/stand_in.h"
#include "data/utf8.h"

namespace trireme {

namespace {

namespace fs = std::filesystem;
using protozero::pbf_wire_type, protozero::tag_and_type, protozero::pbf_reader;

[[noreturn]] void refuse(const fs::path& path, const std::string& what) {
  fail(ExitCode::data, "tokenizer", "{}: {}", path.string(), what);
}

std::string text_of(pbf_reader& message) {
  const auto view = message.get_view();
  return {view.data(), view.size()};
}

SentencePiece parse_piece(pbf_reader message, std::size_t id, const fs::path& path) {
  SentencePiece piece;
  while (message.next()) {
    switch (message.tag_and_type()) {
      case tag_and_type(1, pbf_wire_type::length_delimited):
        piece.text = text_of(message);
        break;
      case tag_and_type(2, pbf_wire_type::fixed32):
        piece.score = message.get_float();
        break;
      case tag_and_type(3, pbf_wire_type::varint): {
        const std::int32_t type = message.get_enum();
        if (type < 1 || type > 6) refuse(path, fmt::format("piece {} has the type {}; expected 1 to 6", id, type));
        piece.type = static_cast<SentencePiece::Type>(type);
        break;
      }
      default:
        message.skip();
    }
  }
  return piece;
}

void parse_trainer(pbf_reader message, SentencePieceModel& model, const fs::path& path) {
  while (message.next()) {
    switch (message.tag_and_type()) {
      case tag_and_type(3, pbf_wire_type::varint): {
        const std::int32_t type = message.get_enum();
        if (type < 1 || type > 4) refuse(path, fmt::format("the model type is {}; expected 1 to 4", type));
        model.algorithm = static_cast<SentencePieceModel::Algorithm>(type);
        break;
      }
      case tag_and_type(24, pbf_wire_type::varint):
        model.space_at_end = message.get_bool();
        break;
      case tag_and_type(35, pbf_wire_type::varint):
        model.byte_fallback = message.get_bool();
        break;
      case tag_and_type(44, pbf_wire_type::length_delimited):
        model.unknown_surface = text_of(message);
        break;
      case tag_and_type(46, pbf_wire_type::length_delimited):
        model.begin_piece = text_of(message);
        break;
      case tag_and_type(47, pbf_wire_type::length_delimited):
        model.end_piece = text_of(message);
        break;
      default:
        message.skip();
    }
  }
}

void parse_normalizer(pbf_reader message, SentencePieceModel& model) {
  while (message.next()) {
    switch (message.tag_and_type()) {
      case tag_and_type(2, pbf_wire_type::length_delimited):
        model.rules = text_of(message);
        break;
      case tag_and_type(3, pbf_wire_type::varint):
        model.adds_space = message.get_bool();
        break;
      case tag_and_type(4, pbf_wire_type::varint):
        model.removes_spaces = message.get_bool();
        break;
      case tag_and_type(5, pbf_wire_type::varint):
        model.escapes_spaces = message.get_bool();
        break;
      default:
        message.skip();
    }
  }
}

/// Text is normalized by rules only on its way in.
void require_no_rules(pbf_reader message, const fs::path& path) {
  while (message.next()) {
    if (message.tag_and_type() == tag_and_type(2, pbf_wire_type::length_delimited) && !message.get_view().empty())
      refuse(path, "it changes decoded text by rules, which are not supported; expected none");
    message.skip();
  }
}

SentencePieceModel parse(std::string_view bytes, const fs::path& path) {
  SentencePieceModel model;
  pbf_reader message(bytes.data(), bytes.size());
  while (message.next()) {
    switch (message.tag_and_type()) {
      case tag_and_type(1, pbf_wire_type::length_delimited):
        if (model.pieces.size() == bpe_most_tokens)
          refuse(path, fmt::format("more than {} pieces; expected a smaller vocabulary", bpe_most_tokens));
        model.pieces.push_back(parse_piece(message.get_message(), model.pieces.size(), path));
        break;
      case tag_and_type(2, pbf_wire_type::length_delimited):
        parse_trainer(message.get_message(), model, path);
        break;
      case tag_and_type(3, pbf_wire_type::length_delimited):
        parse_normalizer(message.get_message(), model);
        break;
      case tag_and_type(5, pbf_wire_type::length_delimited):
        require_no_rules(message.get_message(), path);
        break;
      default:
        message.skip();
    }
  }
  return model;
}

void check_pieces(SentencePieceModel& model, const fs::path& path) {
  if (model.pieces.empty()) refuse(path, "no pieces; expected SentencePiece's model file");
  std::unordered_set<std::string_view> texts;
  std::size_t unknown = 0, bytes = 0;
  for (std::size_t id = 0; id < model.pieces.size(); ++id) {
    const SentencePiece& piece = model.pieces[id];
    if (piece.text.empty()) refuse(path, fmt::format("piece {} is empty", id));
    if (piece.text.size() > longest_sentence_piece)
      refuse(path,
             fmt::format("piece {} has {} bytes; expected at most {}", id, piece.text.size(), longest_sentence_piece));
    if (valid_utf8_prefix(piece.text) != piece.text.size())
      refuse(path, fmt::format("piece {} is not UTF-8: {}", id, in_quotes(piece.text)));
    if (!texts.insert(piece.text).second)
      refuse(path, fmt::format("piece {} repeats an earlier one: {}", id, in_quotes(piece.text)));
    if (!std::isfinite(piece.score)) refuse(path, fmt::format("piece {} has no finite score", id));
    if (piece.type == SentencePiece::Type::unknown) {
      model.unknown = static_cast<std::int32_t>(id);
      ++unknown;
    }
    bytes += piece.type == SentencePiece::Type::byte ? 1U : 0U;
  }
  if (unknown != 1) refuse(path, fmt::format("{} unknown pieces; expected one", unknown));
  if (!model.byte_fallback) return;
  if (bytes != 256) refuse(path, fmt::format("{} pieces for bytes; expected 256, as it has byte fallback", bytes));
  for (int byte = 0; byte < 256; ++byte)
    if (const std::string name = fmt::format("<0x{:02X}>", byte); !texts.contains(name))
      refuse(path, fmt::format("no piece {}; expected one for each byte", name));
}

}  // namespace

std::optional<std::int32_t> SentencePieceModel::control(std::string_view text) const {
  for (std::size_t id = 0; id < pieces.size(); ++id)
    if (pieces[id].type == SentencePiece::Type::control && pieces[id].text == text)
      return static_cast<std::int32_t>(id);
  return std::nullopt;
}

SentencePieceModel parse_sentence_piece_model(std::string_view bytes, const fs::path& path) {
  refuse_stand_in(bytes, path);
  SentencePieceModel model;
  try {
    model = parse(bytes, path);
  } catch (const protozero::exception& error) {
    refuse(path, fmt::format("malformed ({}); expected SentencePiece's model file", error.what()));
  }
  check_pieces(model, path);
  return model;
}

}  // namespace trireme
