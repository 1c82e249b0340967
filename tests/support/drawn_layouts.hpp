// SPDX-License-Identifier: Apache-2.0
// Small random layouts, and what they hold as a framework lists it.
#pragma once

#include <string>
#include <vector>

#include <reshard/model/transformer.hpp>
#include <reshard/space/computed_holding.hpp>
#include <reshard/space/shard.hpp>

#include "dice.hpp"

namespace testing {

inline reshard::model drawn_model(bool experts) {
  return reshard::make_transformer({.name = "drawn",
                                    .layers = 8,
                                    .hidden = 8,
                                    .heads = 4,
                                    .groups = 4,
                                    .head_dim = 2,
                                    .ffn = 8,
                                    .vocabulary = 16,
                                    .experts = experts ? 4 : 0,
                                    .expert_ffn = 8});
}

/// Of up to 32 ranks: ZeRO by buffers, buckets or rows, chunks that are interleaved or uneven, other orders.
inline std::string drawn_layout(dice& random, bool experts) {
  std::string text = "tp=" + std::to_string(std::int64_t{1} << random.below(2));
  const char* const pipelines[] = {"", ",pp=2", ",pp=4", ",pp=2,vpp=2", ",pp=3,split=spread", ",pp=2,first=1"};
  text += pipelines[random.below(std::size(pipelines))];
  text += ",dp=" + std::to_string(random.within(1, 4));
  if (experts && random.coin() && text.ends_with("dp=2")) text += ",ep=2";
  const char* const shards[] = {"", ",zero=1", ",zero=1,bucket=300", ",zero=3,shard=rows", ",zero=1,shard=rows"};
  text += shards[random.below(std::size(shards))];
  if (random.below(4) == 0 && text.find("ep=") == text.npos) text += ",order=tp-dp-cp-pp";
  return text;
}

/// What a layout holds, shard by shard, of all states of mixed-precision Adam.
inline std::vector<reshard::shard> listed(const reshard::computed_holding& h) {
  using namespace reshard;
  const space& s = h.space();
  std::vector<shard> shards;
  for (rank_t rank = 0; rank < s.ranks(); ++rank)
    for (const int i : all_states)
      each_held(h, rank, adam[i].placed_as(), [&](int f, const family_box& b) {
        const family& of = s.family_at(f);
        each_tensor(f, b, [&](const tensor_id& t, const box<3>& part) {
          for (index_t p = part.dim[0].begin; p < part.dim[0].end; ++p) {
            const index_t rows = of.extent[axis_of::row], columns = of.extent[axis_of::column];
            shard one{rank,
                      s.tensor_on(t, rank),
                      adam[i].type,
                      {columns},
                      {part.dim[2].begin},
                      {part.dim[2].size()},
                      std::string(adam[i].name)};
            if (!of.vector()) {
              one.whole = {of.extent[axis_of::part] * rows, columns};
              one.offset = {p * rows + part.dim[1].begin, part.dim[2].begin};
              one.shape = {part.dim[1].size(), part.dim[2].size()};
            }
            shards.push_back(one);
          }
        });
      });
  return shards;
}

}  // namespace testing
