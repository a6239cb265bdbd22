// Inputs for the fuzz targets: valid ones to start from, and every known class of malformed file with what its error
// must say. They are generated, so that the repository holds few binary files.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace trireme::fuzz {

struct Seed {
  std::string name;  ///< a file's name
  std::string content;
};

/// Valid and nearly valid inputs of a target.
std::vector<Seed> seeds(std::string_view target);

/// The same for targets that parse tokenizers.
std::vector<Seed> tokenizer_seeds(std::string_view target);

/// The same for GGUF files.
std::vector<Seed> gguf_seeds();
/// The same for what prepare_data and --data read.
std::vector<Seed> prepare_seeds(std::string_view target);
/// The same for chat templates and lines of JSON.
std::vector<Seed> chat_seeds(std::string_view target);

struct Malformed {
  std::string name;
  std::string content;
  std::string place;    ///< "byte 12:", the place that the message must name
  std::string problem;  ///< what the message must say is wrong
};

/// Length (8 bytes, little-endian), header, data.
std::string safetensors_file(std::string_view header, std::string_view data);
std::vector<Malformed> malformed_safetensors();
std::vector<Malformed> malformed_gguf();
std::vector<Malformed> malformed_npy();
std::vector<Malformed> malformed_npz();
std::vector<Malformed> malformed_tokenizers();
std::vector<Malformed> malformed_hugging_face();
std::vector<Malformed> malformed_tiktoken();
std::vector<Malformed> malformed_manifests();

}  // namespace trireme::fuzz
