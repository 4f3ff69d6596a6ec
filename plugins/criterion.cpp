#include "gantry/plugins/criterion.h"

#include <fmt/format.h>

#include "gantry/core/error.h"
#include "gantry/nn/deferred_logits.h"
#include "gantry/tensors/host_copy.h"
#include "gantry/tensors/libtorch.h"

namespace gantry {
namespace {

// Converts an entry of a batch to labels.
using Aligned = std::function<torch::Tensor(const torch::Tensor& given)>;

torch::Tensor as_given(const torch::Tensor& labels) { return labels; }

constexpr const char* kLogits = "logits";  // the output of Gantry's models

// The labels of a batch. Throws InputError if it has a loss_mask too: a position is left out of the loss by its label.
const torch::Tensor& labels_of(const TensorDict& batch, const std::string& labels) {
  if (batch.contains("loss_mask"))
    throw InputError({"loss_mask", "the loss does not read this entry", "labels of -100 at positions without a loss",
                      "set labels to -100 where loss_mask is 0, and remove loss_mask"});
  return batch.at(labels);
}

// The aligned labels. During its lifetime the host knows their values, if it knows those of the given labels.
struct Labels {
  Labels(const torch::Tensor& given, const Aligned& align) : labels(align(given)) {
    if (const torch::Tensor known = on_host(given); !given.is_cpu() && known.defined())
      of_host = HostCopy(labels, align(known));
  }
  torch::Tensor labels;
  HostCopy of_host;
};

Criterion::OfDeferredLogits of_deferred_logits(const nn::CrossEntropyOptions& options, const std::string& labels,
                                               const Aligned& align) {
  const auto compare = [=](const Aligned& first) {
    return [=](const nn::DeferredLogits& logits, const TensorDict& batch) {
      const Labels aligned(labels_of(batch, labels), first);
      return nn::cross_entropy(logits, aligned.labels, options);
    };
  };
  return {labels, compare(align), [compare](ProcessGroup&) { return compare(as_given); }};
}

Criterion labelled_cross_entropy(const nn::CrossEntropyOptions& options, const std::string& logits,
                                 const std::string& labels, const Aligned& align) {
  const auto compare = [=](const Aligned& first) {
    return [=](const TensorDict& outputs, const TensorDict& batch, const SplitOutputs& split) {
      const Labels aligned(labels_of(batch, labels), first);
      const auto dim = split.find(logits);
      if (dim == split.end()) return nn::cross_entropy(outputs.at(logits), aligned.labels, options);
      return nn::cross_entropy(outputs.at(logits), aligned.labels, *dim->second.group, dim->second.placement, options);
    };
  };
  const auto align_batch = [=](TensorDict batch) {
    if (batch.contains(labels) && !batch.at(labels).is_meta()) batch.set(labels, align(batch.at(labels)));
    return batch;
  };
  Criterion criterion = Criterion::over_tokens(compare(align), align_batch, compare(as_given))
                            .described_by({options, logits, labels, align});
  criterion.set_count([=](const TensorDict& batch) {
    const torch::Tensor& given = labels_of(batch, labels);
    const torch::Tensor known = on_host(given);
    const torch::Tensor counted = align(known.defined() ? known : given).to(torch::kInt64) != options.ignore_index;
    return static_cast<std::int64_t>(number_of(counted.sum()));
  });
  if (logits != kLogits) return criterion;
  return std::move(criterion).with_deferred_logits(of_deferred_logits(options, labels, align));
}

// Returns the sum of `loss`(logits, labels) over all elements, in at least float32.
template <class NumberLoss>
Criterion over_numbers(const std::string& logits, const std::string& labels, const NumberLoss& loss) {
  return Criterion([=](const TensorDict& outputs, const TensorDict& batch) {
    torch::Tensor given = outputs.at(logits);
    if (given.element_size() < 4) given = given.to(torch::kFloat32);
    const torch::Tensor& wanted = batch.at(labels);
    if (wanted.numel() != given.numel())
      throw InputError({"'" + labels + "'",
                        "the labels are " + describe(wanted) + ", and the logits " + describe(given),
                        "a number for each logit", "check the data and model.config.num_labels"});
    const torch::Tensor sum = loss(given, wanted.to(given.device(), given.scalar_type()).view_as(given));
    return Loss(sum, torch::tensor(given.numel(), torch::kInt64));
  });
}

}  // namespace

void Criterion::set_logit_limit(std::int64_t bytes) {
  if (bytes < 1)
    throw UsageError({"Criterion::set_logit_limit", fmt::format("the limit is {} bytes", bytes), "1 or more",
                      "pass the largest std::int64_t for full logits"});
  logit_limit_ = bytes;
}

Criterion mean_squared_error(const std::string& logits, const std::string& labels) {
  return over_numbers(logits, labels, [](const torch::Tensor& given, const torch::Tensor& wanted) {
    return torch::mse_loss(given, wanted, at::Reduction::Sum);
  });
}

Criterion binary_cross_entropy(const std::string& logits, const std::string& labels) {
  return over_numbers(logits, labels, [](const torch::Tensor& given, const torch::Tensor& wanted) {
    return torch::binary_cross_entropy_with_logits(given, wanted, {}, {}, at::Reduction::Sum);
  });
}

Criterion cross_entropy(const nn::CrossEntropyOptions& options, const std::string& logits, const std::string& labels) {
  return labelled_cross_entropy(options, logits, labels, as_given);
}

Criterion causal_cross_entropy(const nn::CrossEntropyOptions& options, const std::string& logits,
                               const std::string& labels) {
  const std::int64_t ignored = options.ignore_index;
  return labelled_cross_entropy(options, logits, labels, [labels, ignored](const torch::Tensor& given) {
    if (given.dim() != 2)
      throw InputError(
          {"causal loss", "'" + labels + "' is " + describe(given), "labels [B, S], one for each token", ""});
    const std::int64_t tokens = given.size(1);
    torch::Tensor shifted = torch::full_like(given, ignored, torch::kInt64);
    if (tokens > 1) shifted.narrow(1, 0, tokens - 1).copy_(given.narrow(1, 1, tokens - 1));
    return shifted;
  });
}

Criterion mean_over_labels(Criterion::Function mean, const std::string& labels, std::int64_t ignore_index) {
  return Criterion([=, mean = std::move(mean)](const TensorDict& outputs, const TensorDict& batch) {
    const torch::Tensor& given = batch.at(labels);
    const torch::Tensor known = on_host(given);
    const torch::Tensor count = ((known.defined() ? known : given).to(torch::kInt64) != ignore_index).sum();
    const Loss loss = mean(outputs, batch);
    if (loss.count.defined())
      throw UsageError({"mean_over_labels", "the callable returned a sum and a count", "a scalar mean",
                        "pass it to boost() directly"});
    if (number_of(count) == 0) return Loss(torch::zeros({}, loss.sum.options().requires_grad(false)), count);
    return Loss(loss.sum * count, count);
  });
}

Criterion answer_span_loss(const std::string& logits) {
  return Criterion([=](const TensorDict& outputs, const TensorDict& batch) {
    const torch::Tensor& scores = outputs.at(logits);  // [B, S, 2]
    const std::int64_t tokens = scores.size(1);
    torch::Tensor sum, count;
    for (const auto& [name, column] : {std::pair("start_positions", 0), std::pair("end_positions", 1)}) {
      const Labels places(batch.at(name), [tokens](const torch::Tensor& given) {
        const torch::Tensor wide = given.to(torch::kInt64);
        return wide.masked_fill((wide < 0) | (wide >= tokens), -100);
      });
      const Loss part = nn::cross_entropy(scores.select(2, column), places.labels);
      sum = sum.defined() ? sum + part.sum : part.sum;
      count = count.defined() ? count + part.count : part.count;
    }
    return Loss(sum, count);
  });
}

}  // namespace gantry
