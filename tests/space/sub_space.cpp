// SPDX-License-Identifier: Apache-2.0
// A rank's sub-space: absent families are there and say so.
#include <doctest/doctest.h>

#include <cstdio>
#include <set>
#include <string>
#include <vector>

#include <reshard/model/presets.hpp>
#include <reshard/parallelism/parse_degrees.hpp>
#include <reshard/space/cover.hpp>
#include <reshard/space/sub_space.hpp>

#include "../support/points.hpp"
#include "../support/refused.hpp"

using namespace reshard;

namespace {
constexpr space two_stages{models::llama2_7b, config<tp<2>, pp<2>, dp<2>, zero<1>>{}};

presence of(const std::vector<held_family>& all, std::string_view name) {
  for (const held_family& one : all)
    if (models::llama2_7b[one.family].name == name) return one.held;
  return presence::absent;
}
}  // namespace

TEST_CASE("every family is named; a rank of the last stage has no embedding, one of the first no output") {
  const computed_holding h(two_stages);
  const auto first = sub_space(h, 0, role::parameter), last = sub_space(h, 7, role::parameter);
  CHECK(static_cast<int>(first.size()) == h.families());
  CHECK(of(first, "embedding.word_embeddings.weight") == presence::part);
  CHECK(of(first, "output_layer.weight") == presence::absent);
  CHECK(of(last, "embedding.word_embeddings.weight") == presence::absent);
  CHECK(of(last, "output_layer.weight") == presence::part);
  CHECK(of(last, "decoder.final_layernorm.weight") == presence::whole);
  for (const role r : roles)
    for (rank_t rank = 0; rank < h.ranks(); ++rank) {
      bytes_t bytes = 0;
      for (const held_family& one : sub_space(h, rank, r)) {
        CHECK((one.held == presence::absent) == one.boxes.empty());
        for (const family_box& b : one.boxes) bytes += b.volume() * states_of(r).bytes_per_element();
      }
      CHECK(bytes == held_bytes(h, rank, states_of(r)));
    }
}

TEST_CASE(
    "whole is every element, absent is none, and anything between is part: counted tensor by tensor, element by "
    "element") {
  constexpr transformer mixed{.name = "mixed",
                              .layers = 6,
                              .hidden = 4,
                              .heads = 4,
                              .groups = 2,
                              .head_dim = 1,
                              .ffn = 4,
                              .vocabulary = 4,
                              .tied = true,
                              .experts = 4,
                              .expert_ffn = 4};
  const model m = make_transformer(mixed, [](index_t l) { return l % 2 == 1; });
  int whole_in_boxes = 0, one_tensor_whole = 0, one_tensor_absent = 0, absent = 0;
  for (const char* layout : {"", "pp=6", "pp=3,vpp=2", "pp=4,split=spread", "tp=2,dp=2,zero=1", "dp=4,ep=4",
                             "dp=4,ep=2,pp=2,zero=1,split=spread", "dp=2,zero=1,bucket=50", "zero=1,bucket=50"}) {
    CAPTURE(layout);
    const space s(m, parse_degrees(layout));
    const computed_holding h(s);
    for (const role r : roles)
      for (rank_t rank = 0; rank < h.ranks(); ++rank) {
        const std::vector<held_family> all = sub_space(h, rank, r);
        REQUIRE(all.size() == static_cast<std::size_t>(m.families));
        for (int f = 0; f < m.families; ++f) {
          const held_family& one = all[static_cast<std::size_t>(f)];
          CHECK(one.family == f);
          std::vector<family_box> boxes;
          h.held(f, rank, r, [&](int, const family_box& b) { boxes.push_back(b); });
          CHECK(one.boxes == boxes);
          int missing = 0, tensors_whole = 0, tensors_absent = 0;
          for (index_t member = 0; member < m[f].extent[0]; ++member)
            for (index_t expert = 0; expert < m[f].extent[1]; ++expert) {
              family_box tensor = m[f].whole();
              tensor.dim[0] = {member, member + 1};
              tensor.dim[1] = {expert, expert + 1};
              int elements = 0, held = 0;
              for (const int times : testing::occurrences(tensor, boxes)) ++elements, held += times > 0 ? 1 : 0;
              missing += elements - held;
              tensors_whole += held == elements ? 1 : 0;
              tensors_absent += held == 0 ? 1 : 0;
            }
          const bool none = tensors_absent == m[f].tensors();
          CHECK(one.held == (none ? presence::absent : missing == 0 ? presence::whole : presence::part));
          whole_in_boxes += missing == 0 && boxes.size() > 1 ? 1 : 0;
          one_tensor_whole += missing > 0 && tensors_whole == 1 ? 1 : 0;
          one_tensor_absent += !none && tensors_absent == 1 ? 1 : 0;
          absent += none ? 1 : 0;
        }
      }
  }
  std::printf("families: %d whole in several boxes, %d with one tensor alone, %d with all but one, %d absent\n",
              whole_in_boxes, one_tensor_whole, one_tensor_absent, absent);
  for (const int met : {whole_in_boxes, one_tensor_whole, one_tensor_absent, absent}) CHECK(met > 0);
}

TEST_CASE("a holding made for parameters refuses to speak of optimizer states") {
  const computed_holding h(two_stages, parameter_states);
  CHECK(held_bytes(h, 0, parameter_states) > 0);
  CHECK_REFUSED(sub_space(h, 0, role::optimizer),
                "reshard: this holding was made without states that zero=1 shards, and is asked for them; name them "
                "where it is made");
  CHECK(held_bytes(h, 0) == held_bytes(h, 0, parameter_states));  // of the states that it has
}
