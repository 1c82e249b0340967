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

inline reshard::computed_switch tiny_switch(reshard::index_t layers, const std::string& from, const std::string& to) {
  using namespace reshard;
  return layout_switch(space(tiny(layers), parse_degrees(from)), space(tiny(layers), parse_degrees(to)));
}

}  // namespace testing
