// Inputs for the fuzz targets, made here so that the repository holds few binary files: valid ones to start from, and
// every class of malformed file that we know, with what its refusal must say.
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

struct Malformed {
  std::string name;
  std::string content;
  std::string place;    ///< "byte 12": what the message says of where
  std::string problem;  ///< and of what
};

/// Length (8 bytes, little-endian), header, data.
std::string safetensors_file(std::string_view header, std::string_view data);
std::vector<Malformed> malformed_safetensors();
std::vector<Malformed> malformed_tokenizers();
std::vector<Malformed> malformed_manifests();

}  // namespace trireme::fuzz
