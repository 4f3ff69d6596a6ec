// Checks messages whose form changes between microbatches: names, types, shapes, undefined tensors,
// requires_grad.
#pragma once

#include <gtest/gtest.h>

#include "gantry/pipeline/stage_link.h"

namespace gantry::testing {

// The n-th form of a message. Over MPI, the tensors of the larger forms are not sent together with their
// header.
inline TensorDict message_of_form(int form, double value) {
  const auto reals = [&](std::int64_t rows, torch::ScalarType type = torch::kFloat32) {
    return torch::full({rows, 3}, value, type);
  };
  switch (form % 8) {
    case 0:
      return {{"hidden", reals(900)}};
    case 1:
      return {{"hidden", reals(900).requires_grad_()}};
    case 2:
      return {{"hidden", reals(900).requires_grad_()}, {"more", reals(2).requires_grad_()}};
    case 3:
      return {{"more", reals(2)}, {"hidden", reals(900).requires_grad_()}};
    case 4:
      return {{"hidden", reals(7, torch::kFloat64)}, {"note", torch::full({2}, 3, torch::kInt64)}};
    case 5:
      return {};
    case 6:
      return {{"hidden", torch::Tensor()}};
    default:
      return {{"hidden", torch::Tensor()}, {"more", reals(900).requires_grad_()}};
  }
}

inline double message_value(int step, int microbatch) { return 10.0 * step + microbatch; }

// Rank 0 sends messages to rank 1 under one shape key. Rank 1 returns gradients, which are undefined for
// microbatch 1. Receives are posted ahead, so receives of changed messages expect the previous form.
inline void check_changing_messages(ProcessGroup& group) {
  constexpr int kMicrobatches = 3;
  StageLink link(group);
  for (int step = 0; step < 12; ++step) {
    // Each form lasts two steps. The last microbatch changes its form in every step.
    const auto form = [&](int microbatch) { return microbatch == 2 ? step * 3 : step / 2; };
    const auto forward = [&](int m) { return StageMessage{StageMessage::Direction::kForward, 0, m, "same"}; };
    const auto backward = [&](int m) { return StageMessage{StageMessage::Direction::kBackward, 1, m, "same"}; };
    if (group.rank() == 0) {
      for (int m = 0; m < kMicrobatches; ++m)
        link.send(forward(m), 1, message_of_form(form(m), message_value(step, m)));
      for (int m = 0; m < kMicrobatches; ++m) {
        link.post(backward(m), 1);
        const TensorDict gradients = link.receive(backward(m), 1);
        std::size_t expected = 0;
        for (const auto& [name, tensor] : message_of_form(form(m), 0)) {
          if (!tensor.defined() || !tensor.requires_grad()) continue;
          ++expected;
          ASSERT_TRUE(gradients.contains(name)) << step << " " << m << " " << name;
          ASSERT_EQ(gradients.at(name).defined(), m != 1);
          if (m != 1) EXPECT_TRUE(torch::equal(gradients.at(name), torch::full_like(tensor.detach(), step + m)));
        }
        EXPECT_EQ(gradients.size(), expected);
      }
    } else if (group.rank() == 1) {
      for (int m = 0; m < kMicrobatches; ++m) link.post(forward(m), 0);
      for (int m = 0; m < kMicrobatches; ++m) {
        const TensorDict got = link.receive(forward(m), 0);
        const TensorDict expected = message_of_form(form(m), message_value(step, m));
        ASSERT_EQ(got.size(), expected.size()) << step << " " << m << " " << describe(got);
        TensorDict gradients;
        for (std::size_t i = 0; i < got.size(); ++i) {
          const auto& [name, tensor] = *(expected.begin() + static_cast<std::ptrdiff_t>(i));
          const auto& [got_name, got_tensor] = *(got.begin() + static_cast<std::ptrdiff_t>(i));
          EXPECT_EQ(got_name, name);
          ASSERT_EQ(got_tensor.defined(), tensor.defined());
          if (!tensor.defined()) continue;
          EXPECT_EQ(got_tensor.requires_grad(), tensor.requires_grad()) << step << " " << m << " " << name;
          EXPECT_EQ(got_tensor.scalar_type(), tensor.scalar_type());
          EXPECT_TRUE(torch::equal(got_tensor.detach(), tensor.detach())) << step << " " << m << " " << name;
          if (tensor.requires_grad() && m != 1) gradients.set(name, torch::full_like(tensor.detach(), step + m));
        }
        link.send(backward(m), 0, gradients);
      }
    }
    link.flush();
  }
}

}  // namespace gantry::testing
