// Fine-tuning on packed dialogues, and conversations.
#include "train/gpt/chat.h"

#include "data/byte_tokenizer.h"
#include "data/chat/packed_dialogues.h"
#include "tests/models/decoder_kinds.h"
#include "tests/support/elements.h"
#include "tests/support/sanitized.h"
#include "train/gpt/generate.h"
#include "train/gpt/stop_strings.h"
#include "train/gpt/text_scores.h"
#include "train/step/evaluate.h"

using namespace trireme;
using namespace trireme::testing;

namespace chat_test {
using namespace trireme::testing::decoders;

namespace {

std::vector<TokenizedDialogue> some_dialogues() {
  const Text all = text_of(200);
  std::vector<TokenizedDialogue> dialogues;
  for (const auto& [begin, length, prompt] :
       {std::array{0, 9, 4}, {20, 6, 3}, {40, 17, 2}, {60, 4, 1}, {70, 3, 2}, {80, 9, 8}}) {
    TokenizedDialogue d;
    d.ids.assign(all.begin() + begin, all.begin() + begin + length);
    for (int i = 0; i < length; ++i) d.target.push_back(i >= prompt && i != prompt + 2);  // two turns
    dialogues.push_back(d);
  }
  return dialogues;
}

}  // namespace

TEST_CASE("packed dialogues have the loss that each has alone, on every mesh") {
  for (const Kind& kind : {gpt2(), llama_kind(), later()}) {
    double expected = 0;
    std::int64_t targets = 0;
    run_mesh("dp=1", [&](const MeshPtr& mesh) {
      Gpt model = model_on(mesh, kind, DType::f64);
      for (const TokenizedDialogue& d : some_dialogues()) {
        const Tensor logits = sequence_logits(model, {d.ids.begin(), d.ids.end() - 1});
        for (std::size_t i = 1; i < d.ids.size(); ++i) {
          if (!d.target[i]) continue;
          expected -= log_probability(logits.span<float>().subspan((i - 1) * test_vocab, test_vocab), d.ids[i]);
          ++targets;
        }
      }
    });
    for (const std::string& mesh_text :
         sanitized ? Meshes{"tp=2"} : Meshes{"dp=1", "dp=2", "tp=2", "pp=2", "cp=2", "dp=2,tp=2,pp=2"}) {
      run_mesh(mesh_text, [&](const MeshPtr& mesh) {
        Kind cut = kind;
        cut.parallelism.sequence = mesh->size(Axis::tp) > 1;
        Gpt model = model_on(mesh, cut, DType::f32);
        const PackedDialogues packed(some_dialogues(), context, 1, false);
        CHECK(packed.report().rows < 6);
        CHECK(packed.targets() == targets);
        const double loss = validation_loss(model, packed, 2);
        CHECK_MESSAGE(std::abs(loss - expected / static_cast<double>(targets)) < 1e-5,
                      kind.name << " on " << mesh_text);
      });
    }
  }
}

TEST_CASE("a reply ends with the turn, is streamed, and becomes part of the conversation") {
  const ByteTokenizer tokenizer;
  const ChatTemplate chat = ChatTemplate::parse(
      "{% for m in messages %}{{ m.role[0] }}{{ m.content }}\n{% endfor %}{% if add_generation_prompt %}a{% endif %}",
      "c.jinja", {{"eos_token", "~"}});
  CHECK(end_of_turn(chat).empty());  // white space only
  CHECK(end_of_turn(ChatTemplate::chatml()) == "<|im_end|>");
  for (const std::string& mesh_text : Meshes{"dp=1", "tp=2,pp=2"}) {
    run_mesh(mesh_text, [&](const MeshPtr& mesh) {
      Kind kind = llama_kind();
      kind.config.vocab = 256;
      kind.config.context = 64;
      Gpt model = model_on(mesh, kind, DType::f32);
      ChatSession session(model, tokenizer, chat, "S", {.length = 20, .temperature = 0}, {"\x07"});
      std::string streamed;
      const std::string reply = session.reply("hi", [&](std::string_view part) { streamed += part; });
      CHECK(reply == streamed);
      REQUIRE(session.messages().size() == 3);
      CHECK(session.messages()[0].role == "system");
      CHECK(session.messages()[2].content == reply);
      CHECK(session.tokens() <= 20);
      const auto expected = [&](const std::string& prompt) {  // computed as a whole, without a cache
        TextUntil text(tokenizer, {"\x07", "~"});
        std::string all;
        for (const std::int32_t id :
             generate(model, tokenizer.encode(prompt), {.length = 20, .temperature = 0, .cache = false}))
          all += text.push(id);
        return all + text.finish();
      };
      CHECK(reply == expected("sS\nuhi\na"));
      CHECK(session.reply("more", {}) == expected("sS\nuhi\na" + reply + "\numore\na"));
      CHECK(session.messages().size() == 5);
      session.clear();
      CHECK(session.messages().size() == 1);
    });
  }
}

}  // namespace chat_test
