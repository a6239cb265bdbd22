#include "train/gpt/generate.h"

#include <algorithm>
#include <map>
#include <utility>

#include "train/gpt/next_logits.h"
#include "train/program/leave_agreement.h"

namespace trireme {
namespace {

/// A text that is being generated.
struct OpenText {
  std::size_t number;  // of its request
  std::vector<std::int32_t> ids;
  std::size_t prompt;  // how many of `ids` are the prompt's
  std::uint64_t seed;

  std::span<const std::int32_t> given() const { return std::span(ids).first(prompt); }
  std::span<const std::int32_t> generated() const { return std::span(ids).subspan(prompt); }
};

GeneratedToken draw(std::span<const float> logits, const OpenText& text, const GenerateOptions& o) {
  GeneratedToken token;
  const double random = random_of_token(text.seed, static_cast<std::int64_t>(text.generated().size()));
  if (o.penalises()) {
    std::vector<float> changed(logits.begin(), logits.end());
    penalise(changed, text.given(), text.generated(), o);
    token.id = pick_token(changed, o, random);
  } else {
    token.id = pick_token(logits, o, random);
  }
  token.logprob = static_cast<float>(log_probability(logits, token.id));
  if (o.top_logprobs > 0) token.likeliest = likeliest_tokens(logits, o.top_logprobs);
  return token;
}

/// Sends the tokens of rank `root` of the group to its other ranks.
void send(ProcessGroup& group, int root, std::vector<GeneratedToken>& tokens, std::int64_t likeliest) {
  if (group.size() == 1) return;
  const auto rows = static_cast<std::int64_t>(tokens.size()), columns = 1 + likeliest;
  Tensor ids = Tensor::zeros({rows, columns}, DType::i32), logprobs = Tensor::zeros({rows, columns});
  for (std::int64_t i = 0; i < rows * columns; ++i) {
    const GeneratedToken& token = tokens[static_cast<std::size_t>(i / columns)];
    const auto place = static_cast<std::size_t>(i % columns);
    if (place > token.likeliest.size()) continue;
    const TokenLogprob entry = place == 0 ? TokenLogprob{token.id, token.logprob} : token.likeliest[place - 1];
    ids.data<std::int32_t>()[i] = entry.id;
    logprobs.data<float>()[i] = entry.logprob;
  }
  group.broadcast(ids, root).wait();
  group.broadcast(logprobs, root).wait();
  for (std::int64_t row = 0; row < rows; ++row) {
    const auto entry = [&](std::int64_t i) {
      return TokenLogprob{ids.data<std::int32_t>()[row * columns + i], logprobs.data<float>()[row * columns + i]};
    };
    GeneratedToken& token = tokens[static_cast<std::size_t>(row)];
    token = {.id = entry(0).id, .logprob = entry(0).logprob};
    for (std::int64_t i = 1; i < columns; ++i) token.likeliest.push_back(entry(i));
  }
}

/// Sends the tokens that the last stage has drawn to all stages. The ranks of the other axes hold equal logits, unless
/// they are processors of different kinds, which may round differently: they take the tokens of the first of them.
void share(const DeviceMesh& mesh, std::vector<GeneratedToken>& tokens, std::int64_t likeliest) {
  send(mesh.group(Axis::pp), mesh.size(Axis::pp) - 1, tokens, likeliest);
  for (const Axis axis : {Axis::tp, Axis::cp, Axis::ep}) send(mesh.group(axis), 0, tokens, likeliest);
}

/// The texts of one call of generate_texts().
class Generation {
 public:
  Generation(LanguageModel& model, NextLogits& next, const std::vector<TextRequest>& requests,
             const GenerateOptions& options)
      : model_(model), options_(options), next_(next) {
    for (const TextRequest& request : requests) {
      require(!request.prompt.empty(), "generate", "the prompt is empty; give at least one token");
      open_.push_back({open_.size(), request.prompt, request.prompt.size(), request.seed});
    }
    texts_.resize(requests.size());
  }

  std::vector<GeneratedText> run(const EachToken& each) {
    LeaveAgreement leave(model_.mesh().world(), options_.leave);
    for (std::int64_t n = 0; n < options_.length && !open_.empty(); ++n) {
      if (leave()) {
        for (const OpenText& text : open_) texts_[text.number].end = TextEnd::leave;
        break;
      }
      add(next_tokens(n == 0), each);
    }
    return std::move(texts_);
  }

 private:
  /// A token for each open text.
  std::vector<GeneratedToken> next_tokens(bool beginning) {
    std::vector<std::vector<std::int32_t>> different;  // the prompts, each once
    std::vector<std::int64_t> row_of;                  // of each open text, its place in `different`
    std::map<std::vector<std::int32_t>, std::int64_t> places;
    for (const OpenText& text : open_) {
      const auto place = static_cast<std::int64_t>(different.size());
      const bool is_new = !beginning || places.emplace(text.ids, place).second;
      if (is_new) different.push_back(text.ids);
      row_of.push_back(is_new ? place : places.at(text.ids));
    }
    const Tensor logits = next_(different);  // [B, 1, V]
    if (different.size() < open_.size()) next_.select(row_of);
    std::vector<GeneratedToken> tokens(open_.size());
    if (logits.defined()) {
      const std::int64_t vocab = logits.size(2);
      const std::int64_t known = options_.vocab_size > 0 ? std::min(options_.vocab_size, vocab) : vocab;
      for (std::size_t i = 0; i < open_.size(); ++i)
        tokens[i] =
            draw({logits.data<float>() + row_of[i] * vocab, static_cast<std::size_t>(known)}, open_[i], options_);
    }
    share(model_.mesh(), tokens, options_.top_logprobs);
    return tokens;
  }

  void add(const std::vector<GeneratedToken>& tokens, const EachToken& each) {
    std::vector<OpenText> still_open;
    std::vector<std::int64_t> rows;
    for (std::size_t i = 0; i < open_.size(); ++i) {
      GeneratedText& text = texts_[open_[i].number];
      bool ends = options_.ends_at(tokens[i].id);
      if (!ends) {
        text.tokens.push_back(tokens[i]);
        open_[i].ids.push_back(tokens[i].id);
        ends = each && !each(open_[i].number, tokens[i]);
      }
      if (ends) {
        text.end = TextEnd::stop;
      } else {
        still_open.push_back(std::move(open_[i]));
        rows.push_back(static_cast<std::int64_t>(i));
      }
    }
    const bool fewer = still_open.size() < open_.size();
    open_ = std::move(still_open);
    if (fewer && !open_.empty()) next_.select(rows);
  }

  LanguageModel& model_;
  const GenerateOptions& options_;
  NextLogits& next_;
  std::vector<OpenText> open_;
  std::vector<GeneratedText> texts_;
};

}  // namespace

std::vector<GeneratedText> generate_texts(LanguageModel& model, const std::vector<TextRequest>& requests,
                                          const GenerateOptions& options, const EachToken& each) {
  std::size_t longest = 1;
  for (const TextRequest& request : requests) longest = std::max(longest, request.prompt.size());
  NextLogits next(model, static_cast<std::int64_t>(longest) + options.length, options.cache, options.past_context);
  return generate_texts(model, next, requests, options, each);
}

std::vector<GeneratedText> generate_texts(LanguageModel& model, NextLogits& next,
                                          const std::vector<TextRequest>& requests, const GenerateOptions& options,
                                          const EachToken& each) {
  if (requests.empty()) return {};
  return Generation(model, next, requests, options).run(each);
}

std::vector<std::int32_t> generate(LanguageModel& model, std::span<const std::int32_t> prompt,
                                   const GenerateOptions& options, const std::function<void(std::int32_t)>& each) {
  const std::vector<GeneratedText> texts =
      generate_texts(model, {{.prompt = {prompt.begin(), prompt.end()}, .seed = options.seed}}, options,
                     [&](std::size_t, const GeneratedToken& token) {
                       if (each) each(token.id);
                       return true;
                     });
  std::vector<std::int32_t> ids;
  for (const GeneratedToken& token : texts.front().tokens) ids.push_back(token.id);
  return ids;
}

}  // namespace trireme
