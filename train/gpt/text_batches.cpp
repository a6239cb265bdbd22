#include "train/gpt/text_batches.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

#include "parallel/comm/texts.h"

namespace trireme {
namespace {

/// Texts as bytes, for the first rank, and back.
class TextBytes {
 public:
  static std::string of(const std::vector<GeneratedText>& texts) {
    std::string bytes;
    add(bytes, texts.size());
    for (const GeneratedText& text : texts) {
      add(bytes, text.end);
      add(bytes, text.tokens.size());
      for (const GeneratedToken& token : text.tokens) {
        add(bytes, token.id);
        add(bytes, token.logprob);
        add(bytes, token.likeliest.size());
        for (const TokenLogprob& other : token.likeliest) add(bytes, other);
      }
    }
    return bytes;
  }

  static std::vector<GeneratedText> read(std::string_view bytes) {
    std::vector<GeneratedText> texts(take<std::size_t>(bytes));
    for (GeneratedText& text : texts) {
      text.end = take<TextEnd>(bytes);
      text.tokens.resize(take<std::size_t>(bytes));
      for (GeneratedToken& token : text.tokens) {
        token.id = take<std::int32_t>(bytes);
        token.logprob = take<float>(bytes);
        token.likeliest.resize(take<std::size_t>(bytes));
        for (TokenLogprob& other : token.likeliest) other = take<TokenLogprob>(bytes);
      }
    }
    require(bytes.empty(), "generate", "{} bytes follow the texts of another rank", bytes.size());
    return texts;
  }

 private:
  template <class T>
  static void add(std::string& bytes, const T& value) {
    static_assert(std::is_trivially_copyable_v<T>);
    bytes.append(reinterpret_cast<const char*>(&value), sizeof(T));
  }
  template <class T>
  static T take(std::string_view& bytes) {
    require(bytes.size() >= sizeof(T), "generate", "the texts of another rank are cut off");
    T value;
    std::memcpy(&value, bytes.data(), sizeof(T));
    bytes.remove_prefix(sizeof(T));
    return value;
  }
};

void count_texts(BatchCounts& counts, const std::vector<GeneratedText>& texts) {
  for (const GeneratedText& text : texts) {
    counts.tokens += static_cast<std::int64_t>(text.tokens.size());
    ++(text.end == TextEnd::leave ? counts.cut : counts.whole);
  }
}

}  // namespace

BatchCounts generate_batches(ProcessGroup& world, const ModelCopy& copy, LanguageModel& model,
                             const std::vector<TextRequest>& requests, std::int64_t batch,
                             const GenerateOptions& options,
                             const std::function<GenerationOutput(std::size_t begin, std::size_t end)>& output) {
  BatchCounts counts;
  const bool first = world.rank() == 0;
  const auto size = static_cast<std::size_t>(batch), copies = static_cast<std::size_t>(copy.copies);
  for (std::size_t round = 0; round < requests.size(); round += copies * size) {
    counts.told = any_rank(world, options.leave && options.leave());
    if (counts.told) break;
    const auto end_of = [&](std::size_t begin) { return std::min(begin + size, requests.size()); };
    const std::size_t begin = round + static_cast<std::size_t>(copy.number) * size;
    std::vector<GeneratedText> texts;
    if (begin < requests.size()) {
      GenerationOutput writer = output(begin, end_of(begin));
      const std::span own = std::span(requests).subspan(begin, end_of(begin) - begin);
      texts = generate_texts(model, std::vector(own.begin(), own.end()), options,
                             [&](std::size_t text, const GeneratedToken& token) { return writer.add(text, token); });
      writer.finish(texts);
    }
    if (first) count_texts(counts, texts);
    if (copies > 1) {
      const bool sends = !first && copy.group->rank() == 0 && begin < requests.size();
      const std::vector<std::string> sent = gather_texts(world, sends ? TextBytes::of(texts) : "");
      std::size_t of = round;  // the first ranks of the copies are in the order of the batches
      for (const std::string& bytes : sent) {
        if (bytes.empty()) continue;
        of += size;
        const std::vector<GeneratedText> others = TextBytes::read(bytes);
        GenerationOutput writer = output(of, end_of(of));
        for (std::size_t text = 0; text < others.size(); ++text)
          for (const GeneratedToken& token : others[text].tokens) writer.add(text, token);
        writer.finish(others);
        count_texts(counts, others);
      }
    }
    counts.told = any_rank(world, std::any_of(texts.begin(), texts.end(),
                                              [](const GeneratedText& text) { return text.end == TextEnd::leave; }));
    if (counts.told) break;
  }
  return counts;
}

}  // namespace trireme
