// Pieces of tensors in files: however a tensor is cut into files, any part of it can be read back, and only the chunks
// with that part are read and verified. Also manifests that contradict themselves.
#include <random>

#include "core/hash.h"
#include "parallel/checkpoint/rank_file.h"
#include "tests/checkpoint/support.h"
#include "tests/support/tensors.h"
#include "tests/support/text.h"

using namespace trireme;
using namespace trireme::testing;
using checkpoint::Checkpoint;
using checkpoint::HeldTensor;
using checkpoint::Manifest;

namespace {

using Random = std::mt19937_64;

std::int64_t between(Random& random, std::int64_t low, std::int64_t high) {
  return low + static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(high - low + 1));
}

/// Repeatedly cuts a random part in two, at a random place of a random dim.
std::vector<HeldTensor> random_cut(const HeldTensor& whole, int pieces, Random& random) {
  std::vector<HeldTensor> parts = {whole};
  for (int i = 1; i < pieces; ++i) {
    HeldTensor& first = parts[static_cast<std::size_t>(between(random, 0, std::ssize(parts) - 1))];
    const int dim = static_cast<int>(between(random, 0, first.value.dims() - 1));
    const std::int64_t rows = first.value.size(dim);
    if (rows < 2) continue;
    const std::int64_t cut = between(random, 1, rows - 1);
    HeldTensor second = first;
    second.value = view::slice(first.value, dim, cut, rows - cut);
    second.start[dim] += cut;
    first.value = view::slice(first.value, dim, 0, cut);
    parts.push_back(second);
  }
  return parts;
}

Shape zeros_like(Shape shape) {
  for (std::int64_t& extent : shape) extent = 0;
  return shape;
}

/// Writes `files` files, one per rank, and the manifest. The parts go to the files in turn.
Manifest write_parts(const std::filesystem::path& folder, const std::vector<HeldTensor>& parts, int files) {
  make_directories(folder);
  Manifest manifest;
  for (int rank = 0; rank < files; ++rank) {
    std::vector<HeldTensor> mine;
    for (std::size_t i = static_cast<std::size_t>(rank); i < parts.size(); i += static_cast<std::size_t>(files)) {
      mine.push_back(parts[i]);
      mine.back().name += fmt::format(" {}", i);  // a rank writes a name once; renamed below
    }
    checkpoint::RankFile file;
    file.take(mine, rank);
    Manifest part = file.write(folder), renamed;
    renamed.files = part.files;
    for (auto& [name, tensor] : part.tensors) {
      auto& target = renamed.tensors[name.substr(0, name.find(' '))];
      target.dtype = tensor.dtype;
      target.shape = tensor.shape;
      target.pieces.insert(target.pieces.end(), tensor.pieces.begin(), tensor.pieces.end());
    }
    checkpoint::merge(manifest, renamed);
  }
  write_file(folder / checkpoint::manifest_name, checkpoint::to_text(manifest));
  return manifest;
}

}  // namespace

TEST_CASE("any part of a tensor is read out of any cut of it") {
  Random random(5);
  const TempFolder folder;
  for (int round = 0; round < 60; ++round) {
    Shape shape;
    const auto dims = between(random, 1, 4);
    if (dims == 1) shape = {between(random, 1, 40)};
    if (dims == 2) shape = {between(random, 1, 12), between(random, 1, 12)};
    if (dims == 3) shape = {between(random, 1, 6), between(random, 1, 6), between(random, 1, 6)};
    if (dims == 4) shape = {between(random, 1, 4), between(random, 1, 4), between(random, 1, 4), between(random, 1, 4)};
    const Tensor whole = counting(shape);
    const HeldTensor held{.name = "x", .value = whole, .global = shape, .start = zeros_like(shape)};
    const auto path = folder / std::to_string(round);
    write_parts(path, random_cut(held, static_cast<int>(between(random, 1, 7)), random),
                static_cast<int>(between(random, 1, 3)));
    Checkpoint saved(path);
    CHECK(same_bits(saved.read("x"), whole));
    for (int i = 0; i < 10; ++i) {
      Shape start = zeros_like(shape), extent = shape;
      Tensor expected = whole;
      for (int dim = 0; dim < shape.dims(); ++dim) {
        start[dim] = between(random, 0, shape[dim]);
        extent[dim] = between(random, 0, shape[dim] - start[dim]);
        expected = view::slice(expected, dim, start[dim], extent[dim]);
      }
      Tensor got = Tensor::full(extent, -1, DType::i32);
      saved.read("x", start, got);
      CHECK(same_bits(got, expected));
      // Into a view with other strides.
      if (extent.dims() != 2) continue;
      const Tensor other = Tensor::full({extent[1], extent[0]}, -1, DType::i32);
      Tensor strided = view::transpose(other, 0, 1);
      saved.read("x", start, strided);
      CHECK(same_bits(strided, expected));
    }
  }
}

TEST_CASE("a reader reads and verifies the chunks it needs, and no others") {
  const TempFolder folder;
  const Shape shape = {4096, 512};  // 8 MiB, in two files of 4 MiB and a header each
  const Tensor whole = counting(shape);
  std::vector<HeldTensor> parts;
  for (const std::int64_t column : {0, 256}) {
    parts.push_back({.name = "x", .value = view::slice(whole, 1, column, 256), .global = shape, .start = {0, column}});
  }
  const Manifest manifest = write_parts(folder / "a", parts, 2);
  CHECK(manifest.files[0].chunks.size() == 5);  // 4 MiB and a header
  Checkpoint saved(folder / "a");
  Tensor rows = Tensor::empty({16, 100}, DType::i32);
  saved.read("x", {2048, 300}, rows);  // in the second file only
  CHECK(same_bits(rows, view::slice(view::slice(whole, 0, 2048, 16), 1, 300, 100)));
  CHECK(saved.bytes_read() <= 3 * checkpoint::chunk_bytes);  // the header's chunk, and one or two with the rows

  // Damage elsewhere does not affect this reader. It is found by a reader that needs that chunk, and by verify().
  const auto damaged = folder / "a" / manifest.files[1].name;
  std::string bytes = read_file(damaged);
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  write_plainly(damaged, bytes);
  Checkpoint again(folder / "a");
  again.read("x", {2048, 300}, rows);
  Tensor last = Tensor::empty({1, 1}, DType::i32);
  const Caught error = caught([&] { again.read("x", {4095, 511}, last); });
  CHECK(error.code == ExitCode::data);
  CHECK(error.has(damaged.string() + ": chunk 4, bytes 4194304 to"));
  CHECK(error.has("the file is damaged"));
  CHECK(caught([&] { Checkpoint(folder / "a").verify(); }).code == ExitCode::data);
}

TEST_CASE("a manifest comes back as it was, and one that contradicts itself is refused") {
  Manifest good;
  good.step = 12;
  good.ranks = 2;
  good.mesh = "dp=2,tp=1,pp=1";
  good.run = {{"model", "{\"layers\":2}"}, {"seed", "7"}};
  good.files = {{.name = "a", .bytes = (1 << 20) + 8, .chunks = {0x0123456789abcdefULL, ~0ULL}}};
  good.tensors["x"] = {DType::bf16, {4, 3}, {{0, 8, {0, 0}, {2, 3}}, {0, 20, {2, 0}, {2, 3}}}};
  constexpr std::int64_t rest = (1 << 20) - 24;
  good.tensors["y"] = {DType::u8, {rest}, {{0, 32, {0}, {rest}}}};
  const std::string text = checkpoint::to_text(good);
  const Manifest back = checkpoint::parse_manifest(text, "m");
  CHECK(back.step == 12);
  CHECK(back.mesh == good.mesh);
  CHECK(back.run == good.run);
  CHECK(back.files[0].chunks == good.files[0].chunks);
  CHECK(back.tensors.at("x").pieces[1].offset == 20);
  CHECK(checkpoint::to_text(back) == text);
  CHECK_THROWS_WITH_AS(checkpoint::parse_manifest(text.substr(0, text.size() - 2), "m"),
                       doctest::Contains("the manifest is damaged"), Error);
  CHECK_THROWS_WITH_AS(checkpoint::parse_manifest("", "m"), doctest::Contains("do not begin as a manifest"), Error);

  const auto refused = [&](const std::function<void(Manifest&)>& change) {
    Manifest bad = good;
    change(bad);
    const Caught error = caught([&] { checkpoint::parse_manifest(checkpoint::to_text(bad), "m"); });
    CHECK(error.code == ExitCode::data);
    return error.message;
  };
  CHECK(contains(refused([](Manifest& m) { m.files[0].name = "../a"; }), "\"../a\" is not a plain file name"));
  CHECK(contains(refused([](Manifest& m) { m.files[0].name = ".."; }), "not a plain file name"));
  CHECK(contains(refused([](Manifest& m) { m.files[0].chunks.pop_back(); }), "digits of checksums"));
  CHECK(contains(refused([](Manifest& m) { m.files[0].bytes = ~0ULL; }), "below 2^56"));
  auto piece = [](Manifest& m, std::size_t i) -> checkpoint::Piece& { return m.tensors["x"].pieces[i]; };
  CHECK(contains(refused([&](Manifest& m) { piece(m, 1).start[0] = 1; }), "two pieces that overlap"));
  CHECK(contains(refused([&](Manifest& m) { piece(m, 1).start[0] = 3; }), "outside itself or its file"));
  CHECK(contains(refused([&](Manifest& m) { piece(m, 1).file = 1; }), "outside itself or its file"));
  CHECK(contains(refused([&](Manifest& m) { piece(m, 1).offset = 1 << 20; }), "outside itself or its file"));
  CHECK(contains(refused([](Manifest& m) { m.tensors["x"].pieces.pop_back(); }), "6 elements in all; expected 12"));
  CHECK(contains(refused([](Manifest& m) { m.tensors["x"].shape = {1LL << 40, 1LL << 40}; }), "too large to exist"));
  // The pieces of a file must follow one another without gaps, from its header to its end.
  CHECK(contains(refused([&](Manifest& m) { piece(m, 1).offset = 21; }),
                 "tensor \"x\" begins at byte 21 of a; expected 20, where the one before it ends: a hole"));
  CHECK(contains(refused([&](Manifest& m) { piece(m, 1).offset = 8; }),
                 "expected 20, where the one before it ends: an ov"));
  CHECK(contains(refused([](Manifest& m) {
                   m.tensors.erase("x");
                   m.tensors["y"].pieces[0].offset = 0;
                 }),
                 "tensor \"y\" begins at byte 0 of a, in its header"));
  CHECK(contains(refused([](Manifest& m) { m.tensors.erase("y"); }),
                 "the tensors of a end at byte 32; expected 1048584, its size"));
  CHECK(contains(refused([](Manifest& m) { m.files.push_back({.name = "b", .bytes = 16, .chunks = {1}}); }),
                 "the tensors of b end at byte 0; expected 16"));
  CHECK(contains(refused([](Manifest& m) { m.mesh = "dp=1\x1b[2J"; }),
                 "\"mesh\" is \"dp=1\\u001b[2J\"; expected a text"));
  CHECK(contains(refused([](Manifest& m) {
                   m.tensors
                       ["\xC2\x9B"
                        "x"] = m.tensors["x"];
                 }),
                 "has a name with control char"));
}

TEST_CASE("a manifest with a correct checksum and random content is parsed or refused, and never crashes") {
  Manifest good;
  good.run = {{"seed", "7"}};
  good.files = {{.name = "a", .bytes = 56, .chunks = {0x0123456789abcdefULL}}};
  good.tensors["x"] = {DType::f32, {4, 3}, {{0, 8, {0, 0}, {2, 3}}, {0, 32, {2, 0}, {2, 3}}}};
  const std::string text = checkpoint::to_text(good);
  constexpr std::size_t body = 32;  // after {"checksum":"0123456789abcdef",
  const std::vector<std::string> words = {
      "-1", "null", "[]", "{}", "\"\"", "1e99", "18446744073709551615", "[[[[[[[[", "\"x\":0,", "4611686018427387904"};
  Random random(3);
  const int changes = sanitized ? 400 : 4000;
  int refused = 0;
  for (int i = 0; i < changes; ++i) {
    std::string rest = text.substr(body);
    for (std::int64_t change = between(random, 1, 3); change > 0; --change) {
      const auto at = static_cast<std::size_t>(between(random, 0, std::ssize(rest) - 1));
      const auto length = static_cast<std::size_t>(between(random, 0, 4));
      const bool word = random() % 2 == 0;
      rest.replace(at, length,
                   word ? words[random() % words.size()] : std::string(1, static_cast<char>(random() % 128)));
    }
    const std::string changed = fmt::format("{{\"checksum\":\"{:016x}\",\n{}", hash_bytes(rest), rest);
    const Caught error = caught([&] { checkpoint::parse_manifest(changed, "m"); });
    CHECK((error.code == ExitCode::ok || error.code == ExitCode::data));
    refused += error.code == ExitCode::data ? 1 : 0;
  }
  CHECK(refused > changes / 4 * 3);
}
