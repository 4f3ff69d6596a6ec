// Trains a BERT with a question-answering head on a file in SQuAD's format, over tp 2: tokenizer, windows, training,
// answers and the official score.
//
// usage: finetune_bert_squad VOCAB SQUAD.json   (vocab.txt of a BERT model, and a file of SQuAD's format)
#include <cstdio>

#include "gantry/booster/gantry.h"
#include "gantry/data/squad_answers.h"
#include "gantry/models/bert_family.h"

namespace {

constexpr int kTokens = 64, kSteps = 120;

// The inputs [windows, tokens] and the answer positions [windows] of all windows.
gantry::Batch batch_of(const std::vector<gantry::SquadFeature>& features) {
  std::vector<torch::Tensor> ids, types, masks;
  std::vector<std::int64_t> starts, ends;
  for (const auto& feature : features) {
    ids.push_back(torch::tensor(feature.encoding.ids));
    types.push_back(torch::tensor(feature.encoding.token_types));
    masks.push_back(torch::tensor(feature.encoding.attention_mask));
    starts.push_back(feature.start_position);
    ends.push_back(feature.end_position);
  }
  return gantry::make_batch({{"input_ids", torch::stack(ids)},
                             {"token_type_ids", torch::stack(types)},
                             {"attention_mask", torch::stack(masks)},
                             {"start_positions", torch::tensor(starts)},
                             {"end_positions", torch::tensor(ends)}});
}

double exact_match_of(const gantry::SquadData& data, const std::vector<gantry::SquadFeature>& features,
                      const torch::Tensor& logits) {
  const torch::Tensor starts = logits.select(2, 0).contiguous(), ends = logits.select(2, 1).contiguous();
  std::vector<gantry::SquadLogits> views;
  for (std::int64_t i = 0; i < logits.size(0); ++i)
    views.push_back({{starts[i].data_ptr<float>(), kTokens}, {ends[i].data_ptr<float>(), kTokens}});
  std::map<std::string, std::string> answers;
  for (const auto& [id, answer] :
       gantry::predict_squad(data, features, views, {.may_be_impossible = data.has_impossible}))
    answers[id] = answer.text;
  return gantry::evaluate_squad(data, answers).exact;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return std::fprintf(stderr, "usage: %s VOCAB SQUAD.json\n", argv[0]), 2;
  auto config = gantry::Config::parse("model: {policy: bert}\nparallel: {tensor: 2}\n");
  return gantry::launch(config, [&](gantry::World& world) {
    const auto tokenizer = gantry::WordPiece::load(argv[1]);
    const auto data = gantry::read_squad(argv[2]);
    const auto features = gantry::make_squad_features(data, tokenizer, {.max_length = kTokens, .stride = 16});
    const gantry::Batch batch = batch_of(features);
    gantry::Booster booster(std::make_unique<gantry::HybridParallelPlugin>(world, config));
    auto model = [&] {
      const gantry::DeferredInit deferred;
      return std::make_shared<gantry::models::BertImpl>(
          gantry::models::bert_config({{"architectures", {"BertForQuestionAnswering"}},
                                       {"vocab_size", tokenizer.size()},
                                       {"hidden_size", 48},
                                       {"intermediate_size", 96},
                                       {"num_hidden_layers", 2},
                                       {"num_attention_heads", 4},
                                       {"max_position_embeddings", kTokens},
                                       {"pad_token_id", tokenizer.padding_id()},
                                       {"hidden_dropout_prob", 0.0},
                                       {"attention_probs_dropout_prob", 0.0}}));
    }();
    auto optimizer = std::make_shared<torch::optim::Adam>(model->parameters(), torch::optim::AdamOptions(3e-3));
    auto boosted = booster.boost(model, optimizer, gantry::answer_span_loss());
    const auto exact_match = [&] {
      const auto answered = booster.execute_pipeline(batch, boosted, {.return_outputs = true, .forward_only = true});
      return exact_match_of(data, features, answered.outputs.at("logits"));
    };
    const double before = exact_match();
    for (int step = 0; step < kSteps; ++step) {
      const auto result = booster.execute_pipeline(batch, boosted, {.broadcast_loss = true});
      boosted.optimizer->step();
      boosted.optimizer->zero_grad();
      if (world.is_main() && step % 30 == 0) std::printf("step %3d: loss %.4f\n", step, *result.loss);
    }
    const double exact = exact_match();
    if (world.is_main())
      std::printf("exact match on %zu questions: %.0f%% before, %.0f%% after\n", data.examples.size(), before, exact);
    if (exact < 100) throw gantry::NumericalError("finetune_bert_squad: the model did not learn its answers");
  });
}
