#include "train/gpt/generation_output.h"

#include <utility>

#include "data/json.h"

namespace trireme {

GenerationOutput::GenerationOutput(const Tokenizer& tokenizer, std::vector<TextLabel> labels, Options options)
    : labels_(std::move(labels)), options_(std::move(options)), waiting_(labels_.size()) {
  for (std::size_t i = 0; i < labels_.size(); ++i) texts_.emplace_back(tokenizer, options_.stops);
  if (!options_.json && !labels_.empty()) begin(0);
}

void GenerationOutput::begin(std::size_t text) {
  if (!options_.first || text > 0) options_.write("\n");
  if (!labels_[text].heading.empty()) options_.write(labels_[text].heading + "\n");
  if (!labels_[text].prompt.empty()) options_.write_bold(labels_[text].prompt);
}

void GenerationOutput::show(std::size_t text, const std::string& characters) {
  if (text == front_ && !options_.json) {
    if (!characters.empty()) options_.write(characters);
  } else {
    waiting_[text] += characters;
  }
}

bool GenerationOutput::add(std::size_t text, const GeneratedToken& token) {
  show(text, texts_[text].push(token.id));
  return !texts_[text].ended();
}

void GenerationOutput::finish(const std::vector<GeneratedText>& texts) {
  for (std::size_t i = 0; i < texts.size(); ++i) {
    show(i, texts_[i].finish());
    if (options_.json) {
      write_json(i, texts[i]);
      continue;
    }
    options_.write("\n");
    front_ = i + 1;
    if (front_ == texts.size()) break;
    begin(front_);
    options_.write(std::exchange(waiting_[front_], {}));
  }
}

void GenerationOutput::write_json(std::size_t text, const GeneratedText& generated) {
  nlohmann::ordered_json line = {{"prompt", labels_[text].number}, {"sample", labels_[text].sample}};
  nlohmann::json ids = nlohmann::json::array(), logprobs = nlohmann::json::array(), top = nlohmann::json::array();
  for (const GeneratedToken& token : generated.tokens) {
    ids.push_back(token.id);
    logprobs.push_back(token.logprob);
    nlohmann::json likeliest = nlohmann::json::array();
    for (const TokenLogprob& each : token.likeliest) likeliest.push_back({{"id", each.id}, {"logprob", each.logprob}});
    if (!token.likeliest.empty()) top.push_back(likeliest);
  }
  line["ids"] = ids;
  line["text"] = texts_[text].text();
  line["logprobs"] = logprobs;
  if (!top.empty()) line["top_logprobs"] = top;
  line["end"] = generated.end == TextEnd::length ? "length" : generated.end == TextEnd::stop ? "stop" : "leave";
  options_.write(line.dump() + "\n");
}

}  // namespace trireme
