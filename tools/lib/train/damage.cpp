// SPDX-License-Identifier: Apache-2.0
#include "damage.hpp"

#include <cstring>

#include <reshard/io/arguments.hpp>

namespace train {

namespace {

void require_switch(const job& all, const damage_asked& asked) {
  for (std::size_t i = 1; i < all.phases.size(); ++i)
    if (all.phases[i].step == asked.step) return;
  refuse("--damage ", asked.kind, "@", asked.step, ": it is done in a switch, and none is before step ", asked.step);
}

/// A row of the embedding that the language uses: the space's.
constexpr index_t used_row = ' ';

void flip(rank_state& state, int of, int bit) {
  for (const bound_box& b : state.tensors().boxes()) {
    const auto& family = state.layout().family_at(b.tensor.family);
    if (b.state != of || family.name != "embedding.word_embeddings.weight" || !b.where.dim[1].contains(used_row))
      continue;
    const index_t wanted = used_row * family.extent[axis_of::column] + b.where.dim[2].begin;
    const auto at = [&](auto& x, index_t i) {
      if (i == wanted) x = static_cast<std::remove_reference_t<decltype(x)>>(x ^ (1u << bit));
    };
    if (of == param) each_element<std::uint16_t>(b, family, at);
    else each_element<std::uint32_t>(b, family, at);
  }
}

/// On the last rank of all: its first vector is what it was at the beginning.
void make_stale(rank_state& state, groups& with) {
  if (with.all->size() == 1) refuse("--damage stale: a world of one rank has no replica");
  if (with.all->rank() + 1 != with.all->size()) return;
  for (const bound_box& b : state.tensors().boxes())
    if (const auto& family = state.layout().family_at(b.tensor.family); b.state == param && family.vector())
      return each_element<std::uint16_t>(b, family, [](auto& x, index_t) { x = nearest_bf16(1); });
}

/// Rank 0 has, of what comes last on it, the first moments of what comes last on the last rank.
void take_moments(rank_state& state, groups& with) {
  std::vector<float> mine;
  const run& last = state.runs().back();
  mine.assign(last.exp_avg, last.exp_avg + last.count);
  const std::vector<bytes> all = with.all->exchange(std::as_bytes(std::span(mine)));
  if (with.all->size() == 1) refuse("--damage moment: a world of one rank has no other's");
  if (with.all->rank() == 0)
    std::memcpy(last.exp_avg, all.back().data(),
                std::min(all.back().size(), static_cast<std::size_t>(last.count) * sizeof(float)));
}

void flip_after_switch(const damage_asked& asked, job& all) {
  const std::size_t colon = asked.kind.find(':', 4);
  const int state = adam.find(asked.kind.substr(4, colon - 4));
  if (state < 0 || colon == asked.kind.npos) refuse("--damage: '", asked.kind, "' is not of the form bit:STATE:N");
  const index_t bit = io::detail::digits_of("--damage", asked.kind.substr(colon + 1)), bits = state == param ? 16 : 32;
  if (bit >= bits) refuse("--damage: ", adam[state].name, " has bits 0 to ", bits - 1, ", and no bit ", bit);
  require_switch(all, asked);
  all.after_switch = [state, bit, at = asked.step](index_t step, rank_state& of, groups&) {
    if (step == at) flip(of, state, static_cast<int>(bit));
  };
}

}  // namespace

void do_damage(const damage_asked& asked, job& all) {
  if (asked.kind.empty()) return;
  if (asked.step >= all.steps) refuse("--damage ", asked.kind, "@", asked.step, ": the run has ", all.steps, " steps");
  if (asked.kind.starts_with("bit:")) return flip_after_switch(asked, all);
  if (asked.kind == "stale" || asked.kind == "moment") {
    require_switch(all, asked);
    const auto what = asked.kind == "stale" ? make_stale : take_moments;
    all.after_switch = [what, at = asked.step](index_t step, rank_state& of, groups& with) {
      if (step == at) what(of, with);
    };
    return;
  }
  all.bad.step = asked.step;
  if (asked.kind == "swap") all.bad.kind = damage::of::swap;
  else if (asked.kind == "twice") all.bad.kind = damage::of::twice;
  else if (asked.kind == "dropout") all.bad.kind = damage::of::dropout;
  else if (asked.kind == "step") all.bad.kind = damage::of::bias_step;
  else refuse("--damage: '", asked.kind, "' is none of bit:STATE:N, swap, twice, step, stale, dropout, moment");
  if (asked.kind == "step" && asked.step == 0) refuse("--damage step@0: there is no correction before the first step");
}

}  // namespace train
