// SPDX-License-Identifier: Apache-2.0
// A model of a few megabytes, and switches between layouts of it.
#pragma once

#include <string>

#include <reshard/model/transformer.hpp>
#include <reshard/parallelism/parse_degrees.hpp>
#include <reshard/plan/layout_switch.hpp>
#include <reshard/space/space.hpp>

namespace testing {

inline reshard::model tiny(reshard::index_t layers) {
  return reshard::make_transformer({.name = "tiny",
                                    .layers = layers,
                                    .hidden = 64,
                                    .heads = 4,
                                    .groups = 4,
                                    .head_dim = 16,
                                    .ffn = 128,
                                    .vocabulary = 256});
}

/// One dense layer, and a prediction layer: with experts where its chunk has no other layer, else dense as well.
inline reshard::model tiny_predicting() {
  return reshard::make_transformer({.name = "last dense",
                                    .layers = 1,
                                    .hidden = 8,
                                    .heads = 4,
                                    .groups = 1,
                                    .head_dim = 2,
                                    .ffn = 12,
                                    .vocabulary = 24,
                                    .experts = 8,
                                    .expert_ffn = 8,
                                    .dense_first = 1,
                                    .predictions = 1});
}
inline constexpr const char* prediction_alone = "pp=2,dp=2,ep=2,split=account_loss";  // in its chunk

inline reshard::computed_switch tiny_switch(reshard::index_t layers, const std::string& from, const std::string& to) {
  using namespace reshard;
  return layout_switch(space(tiny(layers), parse_degrees(from)), space(tiny(layers), parse_degrees(to)));
}

}  // namespace testing
