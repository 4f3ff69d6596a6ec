#include <memory>

#include "gantry/nn/attention_block.h"
#include "gantry/nn/context_attention.h"
#include "gantry/nn/forward.h"
#include "gantry/tensors/libtorch.h"

namespace gantry::nn {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Variable;
using torch::autograd::variable_list;

// Messages of a ring: keys and values in one tensor, and their gradients in another.
enum Entry { kValues = 0, kGradients = 1 };

// The ring of the ranks that share a sequence, seen from this rank.
class Ring {
 public:
  explicit Ring(const SequencePart& part) : group_(*part.group), sizes_(part.keys().shard.sizes()) {}
  int size() const { return group_.size(); }
  // The rank whose keys and values are on this rank in a step.
  int from(int step) const { return (group_.rank() - step + size()) % size(); }
  void send(const torch::Tensor& tensor, Entry entry) { group_.hand_over(tensor, next(), tag(entry)); }
  // Receives tokens of rank `of` from the previous rank. The shape is that of `like`, except for the number
  // of tokens.
  Work receive(const torch::Tensor& like, int of, Entry entry) {
    std::vector<std::int64_t> shape = like.sizes().vec();
    shape[2] = sizes_[of];
    return group_.recv({shape, like.scalar_type(), like.device()}, (group_.rank() + size() - 1) % size(), tag(entry));
  }

 private:
  int next() const { return (group_.rank() + 1) % size(); }
  static Tag tag(Entry entry) { return {Tag::Kind::kUser, 0, 0, entry}; }
  ProcessGroup& group_;
  Sizes sizes_;
};

// Calls `use(step, keys and values)` for each rank's, beginning with `own`. The next ones are in flight
// meanwhile.
template <class Use>
void for_each_block(Ring& ring, const torch::Tensor& own, Use use) {
  torch::Tensor here = own;
  for (int step = 0; step < ring.size(); ++step) {
    Work coming;
    const bool more = step + 1 < ring.size();
    if (more) {
      ring.send(here, kValues);
      coming = ring.receive(here, ring.from(step + 1), kValues);
    }
    use(step, here);
    if (more) here = coming.result();
  }
}

AttentionBlock block_of(const torch::Tensor& query, const torch::Tensor& both, std::int64_t key_size, int from) {
  return {query, both.narrow(3, 0, key_size), both.narrow(3, key_size, both.size(3) - key_size), from};
}

// Adds the sinks to each softmax, once after all blocks.
void add_sinks(AttentionSums& sums, const torch::Tensor& sinks) {
  const torch::Tensor extra = sinks.to(sums.lse.scalar_type()).view({1, -1, 1});
  const torch::Tensor all = at::logaddexp(sums.lse, extra);
  sums.out.mul_((sums.lse - all).exp().unsqueeze(-1));
  sums.lse = all;
}

struct RingAttention : torch::autograd::Function<RingAttention> {
  static Variable forward(AutogradContext* context, const Variable& query, const Variable& key, const Variable& value,
                          const std::optional<torch::Tensor>& given_sinks, const std::optional<torch::Tensor>&,
                          std::shared_ptr<const BlockRules> rules) {
    const torch::Tensor sinks = given_sinks.value_or(torch::Tensor());
    Ring ring(*rules->options.sequence);
    const std::int64_t size = key.size(3);
    // Contiguous, because kernels read it in every step, and it is sent without a copy.
    const torch::Tensor own = torch::cat({key, value}, 3);
    AttentionSums sums = empty_sums(query, value.size(3));
    for_each_block(ring, own, [&](int step, const torch::Tensor& both) {
      attend_block(sums, block_of(query, both, size, ring.from(step)), *rules);
    });
    if (sinks.defined()) add_sinks(sums, sinks);
    context->save_for_backward({query, own, sinks, sums.out, sums.lse});
    context->saved_data["rules"] = torch::IValue::make_capsule(c10::make_intrusive<Kept>(std::move(rules)));
    context->saved_data["size"] = size;
    return sums.out.to(query.scalar_type());
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const auto saved = context->get_saved_variables();
    const torch::Tensor &query = saved[0], &own = saved[1], &sinks = saved[2];
    const AttentionSums sums{saved[3], saved[4]};
    const auto rules = static_cast<Kept&>(*context->saved_data["rules"].toCapsule()).rules;
    const std::int64_t size = context->saved_data["size"].toInt();
    const torch::Tensor out = gradients[0].to(sums.out.scalar_type());
    const SumsGradient given{out, (out * sums.out).sum(-1)};

    Ring ring(*rules->options.sequence);
    torch::Tensor of_query, of_both, of_bias;
    if (rules->options.bias.defined())
      of_bias = torch::zeros_like(rules->options.bias, rules->options.bias.options().dtype(out.scalar_type()));
    for_each_block(ring, own, [&](int step, const torch::Tensor& both) {
      const AttentionGradients made =
          block_gradients(sums, given, block_of(query, both, size, ring.from(step)), *rules, of_bias);
      of_query = step == 0 ? made.query : of_query + made.query;
      of_both = torch::cat({made.key, made.value}, 3);
      // The previous rank sends the sum over the ranks that have computed this block so far.
      if (step > 0) {
        const torch::Tensor before = ring.receive(of_both, ring.from(step), kGradients).result();
        of_both = before + of_both;
      }
      if (ring.size() > 1) ring.send(of_both, kGradients);
    });
    if (ring.size() > 1) of_both = ring.receive(of_both, ring.from(0), kGradients).result();
    torch::Tensor of_sinks;
    if (sinks.defined())
      of_sinks = -((sinks.to(sums.lse.scalar_type()).view({1, -1, 1}) - sums.lse).exp() * given.own)
                      .sum(at::IntArrayRef{0, 2})
                      .to(sinks.scalar_type());
    const auto type = query.scalar_type();
    return {of_query.to(type),
            of_both.narrow(3, 0, size).to(type),
            of_both.narrow(3, size, own.size(3) - size).to(type),
            of_sinks,
            of_bias.defined() ? of_bias.to(rules->options.bias.scalar_type()) : of_bias,
            {}};
  }

 private:
  struct Kept : torch::CustomClassHolder {
    explicit Kept(std::shared_ptr<const BlockRules> rules) : rules(std::move(rules)) {}
    std::shared_ptr<const BlockRules> rules;
  };
};

}  // namespace

torch::Tensor ring_attention(const torch::Tensor& query, const torch::Tensor& key, const torch::Tensor& value,
                             const HeadRange& heads, const HeadRange& key_heads, const AttentionOptions& options,
                             const DropoutImpl& dropout) {
  const bool drops = dropout.is_training() && dropout.p() > 0;
  auto rules = std::make_shared<BlockRules>(BlockRules{.options = options,
                                                       .heads = heads,
                                                       .key_heads = key_heads,
                                                       .drop = drops ? dropout.p() : 0,
                                                       .dropout_name = dropout.global_name(),
                                                       .random = drops ? random_context() : RandomContext()});
  // The backward keeps the bias, so it must not have a graph.
  if (options.bias.defined()) rules->options.bias = options.bias.detach();
  const auto given = [](const torch::Tensor& tensor) {
    return tensor.defined() ? std::optional(tensor) : std::nullopt;
  };
  return RingAttention::apply(query, key, value, given(options.sinks), given(options.bias), std::move(rules));
}

}  // namespace gantry::nn
