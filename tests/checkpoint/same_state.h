// Comparison of two checkpoints.
#pragma once

#include <gtest/gtest.h>
#include <string>

#include "gantry/checkpoint/format/catalog.h"

namespace gantry::testing {

// Expects bitwise identical tensors of every kind, and equal numbers.
inline void expect_same_state(const std::string& expected, const std::string& actual, const std::string& label) {
  TensorCatalog a = TensorCatalog::open(expected), b = TensorCatalog::open(actual);
  ASSERT_EQ(a.tensors().size(), b.tensors().size()) << label;
  for (const auto& [key, tensor] : a.tensors()) {
    ASSERT_TRUE(b.tensors().contains(key)) << label << " " << key;
    EXPECT_EQ(tensor.type, b.tensors().at(key).type) << label << " " << key;
    EXPECT_TRUE(a.read(key) == b.read(key)) << label << " " << key;
  }
  EXPECT_EQ(a.manifest()->numbers, b.manifest()->numbers) << label;
}

}  // namespace gantry::testing
