// SPDX-License-Identifier: Apache-2.0
// A rank's sub-space: absent families are there and say so.
#include <doctest/doctest.h>

#include <reshard/model/presets.hpp>
#include <reshard/space/cover.hpp>
#include <reshard/space/sub_space.hpp>

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

TEST_CASE("a holding made for parameters refuses to speak of optimizer states") {
  const computed_holding h(two_stages, parameter_states);
  CHECK(held_bytes(h, 0, parameter_states) > 0);
  CHECK_REFUSED(held_bytes(h, 0), "this holding was made without optimizer states");
}
