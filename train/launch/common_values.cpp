#include "train/launch/common_values.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>

#include "core/cpu/level.h"
#include "core/cpu/processor.h"
#include "core/hash.h"
#include "core/io.h"
#include "cuda/runtime/open.h"
#include "parallel/comm/texts.h"
#include "parallel/comm/values.h"

namespace trireme {
namespace {

std::string hexadecimal(std::uint64_t hash) { return fmt::format("{:016x}", hash); }

/// Only the same program is sure to round in the same way: another build may add in another order.
CommonValue common_program() {
  return {"the program", "build " + hexadecimal(hash_bytes(read_file("/proc/self/exe"))),
          "expected one build; start every rank from the same file"};
}

/// The unit that multiplies bf16 matrices: each unit adds in its own order. f32 gives the same bits on all processors.
std::optional<CommonValue> common_unit(const TrainOptions& options) {
  if (options.precision.tensor_device() != Device::cpu || options.precision.dtype != DType::bf16) return std::nullopt;
  return CommonValue{"the processor's unit for products of bf16", std::string(cpu::name(cpu::bf16_unit())),
                     "expected one, as each gives other bits; set TRIREME_ISA on every rank to one that all have, such "
                     "as vectors (mpirun -x TRIREME_ISA=vectors)"};
}

/// Kernels for wider vectors add in another order.
std::optional<CommonValue> common_level(const TrainOptions& options) {
  if (options.precision.tensor_device() != Device::cpu) return std::nullopt;
  return CommonValue{"the level of the processor", std::string(cpu::level().name),
                     "expected one, as each gives other bits; set TRIREME_LEVEL on every rank to the lowest of these "
                     "(mpirun -x TRIREME_LEVEL=x86-64-v3)"};
}

/// The choice of kernels for "auto" depends on the GPU.
std::optional<CommonValue> common_gpu(const TrainOptions& options) {
  if (options.precision.tensor_device() != Device::cuda) return std::nullopt;
  const std::vector<cuda::DeviceInfo> devices = cuda::find_devices().devices;
  return CommonValue{
      "the GPU", devices.empty() ? "none" : to_string(devices.front()),
      "expected the same GPU on every rank, because kernels are chosen by GPU; start all ranks on machines with "
      "the same GPU"};
}

// A zero byte after each text: values and paths contain none.
std::string packed(const CommonValues& values) {
  std::string text;
  for (const CommonValue& v : values)
    for (const std::string& part : {v.what, v.value, v.remedy, std::to_string(static_cast<int>(v.code))})
      text += part + '\0';
  return text;
}

CommonValues unpacked(std::string_view text) {
  const auto next = [&text] {
    const std::size_t end = text.find('\0');
    const std::string part(text.substr(0, end));
    text.remove_prefix(end + 1);
    return part;
  };
  CommonValues values;
  while (!text.empty()) {
    CommonValue value{next(), next(), next()};  // a braced list is evaluated in order
    value.code = static_cast<ExitCode>(std::stoi(next()));
    values.push_back(std::move(value));
  }
  return values;
}

const CommonValue* find(const CommonValues& values, const std::string& what) {
  const auto found = std::find_if(values.begin(), values.end(), [&](const CommonValue& v) { return v.what == what; });
  return found == values.end() ? nullptr : &*found;
}

/// "rank 0, 2"; of many ranks only the first.
std::string list(const std::vector<std::size_t>& ranks) {
  constexpr std::size_t most = 8;
  const auto shown = static_cast<std::ptrdiff_t>(std::min(most, ranks.size()));
  std::string text = fmt::format("rank {}", fmt::join(ranks.begin(), ranks.begin() + shown, ", "));
  if (ranks.size() > most) text += fmt::format(" and {} more", ranks.size() - most);
  return text;
}

/// "5 on rank 0, 2; 6 on rank 1"; of many values only the first.
std::string by_value(const std::vector<std::string>& values) {
  constexpr std::size_t most = 4;
  std::vector<std::pair<std::string, std::vector<std::size_t>>> ranks;
  for (std::size_t rank = 0; rank < values.size(); ++rank) {
    auto found = std::find_if(ranks.begin(), ranks.end(), [&](const auto& each) { return each.first == values[rank]; });
    if (found == ranks.end()) found = ranks.insert(ranks.end(), {values[rank], {}});
    found->second.push_back(rank);
  }
  std::string text;
  for (std::size_t i = 0; i < std::min(most, ranks.size()); ++i)
    text += fmt::format("{}{} on {}", i == 0 ? "" : "; ", ranks[i].first, list(ranks[i].second));
  if (ranks.size() > most) text += fmt::format("; {} other values", ranks.size() - most);
  return text;
}

}  // namespace

CommonValue common_flag(const std::string& name, const std::string& value) {
  return {"--" + name, value, "expected one configuration; start every rank with the same flags"};
}

CommonValues common_setup(const TrainOptions& options) {
  require(!options.run.config.empty(), "configuration", "the program has not set RunOptions::config");
  CommonValues values = {common_program()};
  const nlohmann::json configuration = nlohmann::json::parse(options.run.config);
  for (const auto& item : configuration.items()) values.push_back(common_flag(item.key(), item.value().dump()));
  for (const auto& value : {common_level(options), common_unit(options), common_gpu(options)})
    if (value) values.push_back(*value);
  return values;
}

CommonValues common_corpus(const Corpus& corpus) {
  const std::string remedy =
      "expected the same tokens; give every rank the same files under --data and --tokenizer: a folder that all of "
      "them share, or equal copies";
  const Tokenizer& tokenizer = *corpus.tokenizer;
  return {
      {"the number of training tokens in --data", std::to_string(corpus.train.count()), remedy, ExitCode::data},
      {"the number of validation tokens in --data", std::to_string(corpus.validation.count()), remedy, ExitCode::data},
      {"the tokenizer of --data",
       fmt::format("{} of {} ids (hash {})", tokenizer.name(), tokenizer.vocab_size(), hexadecimal(tokenizer.hash())),
       remedy, ExitCode::data},
      {"the text of --data", "hash " + hexadecimal(corpus.hash), remedy, ExitCode::data}};
}

std::optional<CommonDifference> first_difference(const std::vector<CommonValues>& by_rank) {
  for (const CommonValue& first : by_rank.front()) {
    std::vector<std::string> values;
    for (const CommonValues& rank : by_rank)
      if (const CommonValue* value = find(rank, first.what)) values.push_back(value->value);
    const bool everywhere = values.size() == by_rank.size();
    if (!everywhere || std::all_of(values.begin(), values.end(), [&](const auto& v) { return v == first.value; }))
      continue;
    return CommonDifference{fmt::format("{} differs between ranks: {}; {}", first.what, by_value(values), first.remedy),
                            first.code};
  }
  return std::nullopt;
}

void require_common(ProcessGroup& group, const CommonValues& mine) {
  const std::string text = packed(mine);
  const auto hashes = all_gather_values(group, hash_bytes(text));
  if (std::all_of(hashes.begin(), hashes.end(), [&](std::uint64_t hash) { return hash == hashes.front(); })) return;
  std::vector<CommonValues> by_rank;
  for (const std::string& theirs : all_gather_texts(group, text)) by_rank.push_back(unpacked(theirs));
  if (const auto difference = first_difference(by_rank))
    fail(difference->code, "configuration", "{}", difference->message);
}

}  // namespace trireme
