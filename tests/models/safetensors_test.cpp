// The safetensors format, against files that are written here byte by byte, as the specification says.
#include "data/safetensors.h"

#include "tests/support/errors.h"
#include "tests/support/files.h"
#include "tests/support/mesh.h"

using namespace trireme;
using namespace trireme::testing;

namespace {

/// Header length (little-endian), header, data.
std::string file_of(const std::string& header, const std::string& data) {
  std::string text;
  for (std::size_t byte = 0, length = header.size(); byte < 8; ++byte, length /= 256)
    text += static_cast<char>(length % 256);
  return text + header + data;
}

Caught reading(const TempFolder& folder, const std::string& content) {
  write_plainly(folder / "file", content);
  return caught([&] { const SafetensorsFile file(folder / "file"); });
}

}  // namespace

TEST_CASE("a file written by hand is read as it says") {
  const TempFolder folder;
  const std::string data("\x00\x00\x80\x3f\x00\x00\x00\xc0\x07\xff\xff\xff",
                         12);  // 1.0f, -2.0f, then bytes 7, 255, 255, 255
  write_plainly(folder / "file",
                file_of(R"({"__metadata__":{"by":"hand"},"b":{"dtype":"U8","shape":[2,2],"data_offsets":[8,12]},)"
                        R"("a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}  )",
                        data));
  const SafetensorsFile file(folder / "file");
  CHECK(file.names() == std::vector<std::string>{"a", "b"});
  CHECK(file.metadata().at("by") == "hand");
  CHECK(file.contains("a"));
  CHECK_FALSE(file.contains("c"));
  CHECK(file.read("a").span<float>()[0] == 1.0F);
  CHECK(file.read("a").span<float>()[1] == -2.0F);
  CHECK(file.shape("b") == Shape{2, 2});
  CHECK(file.read("b").span<std::uint8_t>()[3] == 255);
  CHECK_THROWS_WITH_AS(file.read("c"), doctest::Contains("there is no tensor c"), Error);
}

TEST_CASE("every dtype, scalars and empty tensors survive writing and reading") {
  const TempFolder folder;
  const std::vector<DType> dtypes = {DType::f64, DType::f32, DType::bf16, DType::f16,
                                     DType::i64, DType::i32, DType::u8};
  std::vector<SafetensorsEntry> entries;
  std::vector<Tensor> tensors;
  for (const DType dtype : dtypes) {
    for (const Shape& shape : {Shape{}, Shape{3}, Shape{2, 0, 4}, Shape{2, 3, 5}}) {
      entries.push_back({fmt::format("{}{}", name(dtype), entries.size()), dtype, shape});
      tensors.push_back(cast(random(shape, entries.size(), DType::f64, normal(40)), dtype));
    }
  }
  SafetensorsWriter writer(folder / "file", entries, {{"quote", "\"\\\n\xc3\xa9"}});
  for (const Tensor& tensor : tensors) writer.write(tensor);
  CHECK_FALSE(std::filesystem::exists(folder / "file"));  // whole or absent
  writer.commit();
  CHECK(writer.bytes() == std::filesystem::file_size(folder / "file"));
  const SafetensorsFile file(folder / "file");
  CHECK(file.metadata().at("quote") == "\"\\\n\xc3\xa9");
  for (std::size_t i = 0; i < entries.size(); ++i)
    CHECK_MESSAGE(same_bits(file.read(entries[i].name), tensors[i]), entries[i].name);
}

TEST_CASE("headers that claim what cannot be are refused") {
  const TempFolder folder;
  const std::string data(16, '\0');
  const auto entry = [](const char* rest) {
    return fmt::format(R"({{"a":{{"dtype":"F32","shape":[4],"data_offsets":{}}}}})", rest);
  };
  CHECK(reading(folder, file_of(entry("[0,16]"), data)).code == ExitCode::ok);
  const std::vector<std::pair<std::string, std::string>> cases = {
      {entry("[0,12]"), "do not fit F32 [4]"},
      {entry("[0,20]"), "do not fit"},
      {entry("[16,0]"), "do not fit"},
      {entry("[0]"), "lacks a valid dtype, shape or data_offsets"},
      {entry("[-1,15]"), "lacks a valid dtype, shape or data_offsets"},
      {entry("[0,18446744073709551615]"), "do not fit"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[8,16]}})",
       "byte 9: tensor \"a\" begins at byte 8 of the data; expected 0: a hole"},
      {R"({"a":{"dtype":"F32","shape":[3],"data_offsets":[0,12]},)"
       R"("b":{"dtype":"F32","shape":[2],"data_offsets":[8,16]}})",
       "byte 63: tensor \"b\" begins at byte 8 of the data; expected 12: an overlap"},
      {R"({"a":{"dtype":"F32","shape":[3],"data_offsets":[0,12]}})", "4 bytes after the last tensor"},
      {R"({"a":{"dtype":"F8","shape":[16],"data_offsets":[0,16]}})",
       "byte 9: tensor \"a\" has dtype \"F8\"; expected one of"},
      {R"({"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,16]}})", "too large to exist"},
      {R"({"a":{"dtype":"F32","shape":[1,1,1,1,1,1,4],"data_offsets":[0,16]}})", "malformed shape"},
      {R"({"a":{"dtype":"F32","shape":[-4],"data_offsets":[0,16]}})", "malformed shape"},
      {R"({"a":{"dtype":"F32","shape":["4"],"data_offsets":[0,16]}})", "malformed shape"},
      {R"({"a":7})", "lacks a valid dtype"},
      {R"({"__metadata__":{"n":7}})", "byte 25: metadata \"n\" is 7; expected a text"},
      {R"({"__metadata__":[]})", "byte 9: __metadata__ is []; expected an object"},
      {R"([1, 2])", "the header is not a JSON object"},
      {R"({"a":)", ""},
      {"", ""}};
  for (const auto& [header, part] : cases) {
    const Caught error = reading(folder, file_of(header, data));
    CHECK_MESSAGE(error.code == ExitCode::data, header, ": ", error.message);
    CHECK_MESSAGE(error.has(part), header, ": ", error.message);
  }
}

TEST_CASE("a writer refuses tensors that were not announced, and a file that is not complete") {
  const TempFolder folder;
  SafetensorsWriter writer(folder / "file", {{"a", DType::f32, {2}}, {"b", DType::f32, {3}}}, {});
  CHECK_THROWS_WITH_AS(writer.write(Tensor::zeros({3})),
                       doctest::Contains("tensor a was announced with another dtype or shape than f32 [3]"), Error);
  writer.write(Tensor::zeros({2}));
  CHECK_THROWS_WITH_AS(writer.write(Tensor::zeros({3}, DType::f64)), doctest::Contains("tensor b was announced"),
                       Error);
  CHECK_THROWS_WITH_AS(writer.commit(), doctest::Contains("1 of 2 tensors were written"), Error);
}
