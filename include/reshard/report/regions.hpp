// SPDX-License-Identifier: Apache-2.0
// Who holds what, as JSON: boxes of families expanded to the tensors that a framework knows by name, and bytes per
// rank.
// Builds on: space/cover.hpp (bytes of a rank), io/text_output.hpp.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <reshard/io/text_output.hpp>
#include <reshard/space/cover.hpp>

namespace reshard::io {

/// Ranks that a program's answer lists at most, where each costs memory.
inline constexpr rank_t max_listed_ranks = rank_t{1} << 22;

/// The computed layout that a holding is or holds. Refuses any other, of which neither degrees nor names are known.
template <Holding H>
const computed_holding& computed_of(const H& h) {
  const computed_holding* computed = known_as<computed_holding>(h);
  if (computed == nullptr)
    refuse("a holding of ", h.ranks(),
           " ranks that is no computed layout has neither degrees nor names to be told by; tell of a space");
  return *computed;
}

/// Bytes of the given states on every rank.
template <Holding H>
std::vector<bytes_t> bytes_of_ranks(const H& holding, const state_set& states) {
  if (holding.ranks() > max_listed_ranks)
    refuse("the layout has ", holding.ranks(), " ranks; at most ", max_listed_ranks, " are listed one by one");
  std::vector<bytes_t> bytes;
  bytes.reserve(static_cast<std::size_t>(holding.ranks()));
  for (rank_t rank = 0; rank < holding.ranks(); ++rank) bytes.push_back(held_bytes(holding, rank, states));
  return bytes;
}

/// {"legal":true,"world":..,"bytes_per_rank":{"param":[..],"master":[..],..}}
template <Holding H>
void write_check_json(text_output& out, const H& holding, const state_list& list = adam) {
  std::vector<std::pair<state_set, std::vector<bytes_t>>> counted;  // states of one level and width count alike
  out << "{\"legal\":true,\"world\":" << holding.ranks() << ",\"bytes_per_rank\":{";
  json_items states(out);
  for (int i = 0; i < list.size(); ++i) {
    const state_set named = list.named(list[i].name);  // param's counts that of statistics
    const auto alike = std::find_if(counted.begin(), counted.end(), [&](const auto& one) {
      const int other = *one.first.begin();
      return one.first.contains(statistic_state) == named.contains(statistic_state) &&
             list[other].level == list[i].level && one.first.width_of(other) == named.width_of(i);
    });
    const auto at = static_cast<std::size_t>(alike - counted.begin());
    if (at == counted.size()) counted.emplace_back(named, bytes_of_ranks(holding, named));
    states.next() << "\"" << list[i].name << "\":[";
    json_items ranks(out);
    for (const bytes_t bytes : counted[at].second) ranks.next() << bytes;
    out << "]";
  }
  out << "}}\n";
}

/// The pattern by which a rank knows a piece of a family.
inline std::string names_on(const space& s, int f, int piece, rank_t rank) {
  if (s.degrees().names == names_as::megatron) return std::string(s.names_on(f, rank));
  return s.holds_tied_copy(f, rank) ? hf_tied_name(s.model(), f) : hf_name(s.model(), f, piece);
}

/// `"dims":[..],"box":[[..],..]` of one tensor, a piece of a family: its parts axis where there are several, its rows
/// but for a vector, and its columns.
inline void write_dims_and_box(text_output& out, const family& tensors, const box<3>& piece, const family_box& b) {
  const auto axes = [&](auto&& sink) {
    if (piece.dim[0].size() > 1) sink(axis_of::part);
    if (!tensors.vector()) sink(axis_of::row);
    sink(axis_of::column);
  };
  out << "\"dims\":[";
  json_items dims(out);
  axes([&](int a) { dims.next() << piece.dim[a - axis_of::part].size(); });
  out << "],\"box\":[";
  json_items box(out);
  axes([&](int a) {
    const interval in_piece = translate(b.dim[a], -piece.dim[a - axis_of::part].begin);
    box.next() << "[" << in_piece.begin << "," << in_piece.end << "]";
  });
  out << "]";
}

/// Writes the tensors of a family's box, as a rank calls them, as objects
/// `{<before>,"tensor":"..","dims":[..],"box":[..]<after>}`.
inline void write_tensors(json_items& items, const space& s, int f, rank_t rank, const family_box& b,
                          std::string_view before, std::string_view after = "") {
  const model& m = s.model();
  const int piece = s.piece_of(f, b);
  const std::string names = names_on(s, f, piece, rank);
  std::string_view pattern = names;
  text_output shape;
  write_dims_and_box(shape, m[f], s.piece_box(f, piece), b);
  // what is written is `pieces[0] layer pieces[1] expert pieces[2]`, with as many numbers as the pattern has
  enum { layer_number, expert_number };
  std::vector<std::string> pieces(1, "{");
  pieces.back().append(before).append(",\"tensor\":\"");
  std::vector<int> numbers;
  while (!pattern.empty()) {
    const std::size_t brace = pattern.find('{');
    pieces.back() += pattern.substr(0, brace);
    if (brace == pattern.npos) break;
    numbers.push_back(pattern.substr(brace).starts_with("{layer}") ? layer_number : expert_number);
    pattern.remove_prefix(pattern.find('}', brace) + 1);
    pieces.emplace_back();
  }
  pieces.back().append("\",").append(shape.text()).append(after).append("}");
  for (index_t member = b.dim[axis_of::layer].begin; member < b.dim[axis_of::layer].end; ++member) {
    const index_t layer = m.layer_of({f, member});
    for (index_t expert = b.dim[axis_of::expert].begin; expert < b.dim[axis_of::expert].end; ++expert) {
      text_output& out = items.next() << pieces[0];
      for (std::size_t i = 0; i < numbers.size(); ++i)
        out << (numbers[i] == layer_number ? layer : expert) << pieces[i + 1];
    }
  }
}

/// {"rank":..,"coordinates":{..},"regions":[..]}
template <Holding H>
void write_rank_json(text_output& out, const H& holding, rank_t rank, const state_set& states,
                     const state_list& list = adam) {
  const space& s = computed_of(holding).space();
  out << "{\"rank\":" << rank << ",\"coordinates\":{";
  constexpr const char* names[2][mesh_ndim] = {{"tp", "cp", "dp", "pp"}, {"etp", "ep", "edp", nullptr}};
  json_items coordinates(out);
  for (const mesh_kind kind : {mesh_kind::dense, mesh_kind::expert}) {
    const mesh on = mesh_of(s.degrees(), kind);
    for (int a = 0; a < mesh_ndim; ++a)
      if (const char* axis = names[kind == mesh_kind::expert ? 1 : 0][a])
        coordinates.next() << "\"" << axis << "\":" << on.coordinate(a, rank);
  }
  out << "},\"regions\":[";
  json_items regions(out);
  for (const int state : states) {
    std::string before = "\"state\":\"";
    before += list[state].name;
    before += '"';
    each_held(holding, rank, states.role_of(state),
              [&](int f, const family_box& b) { write_tensors(regions, s, f, rank, b, before); });
  }
  out << "]}";
}

/// {"ranks":[..]} of the ranks in an interval.
template <Holding H>
void write_regions_json(text_output& out, const H& holding, interval ranks, const state_set& states,
                        const state_list& list = adam) {
  out << "{\"ranks\":[";
  json_items items(out);
  for (rank_t rank = ranks.begin; rank < ranks.end; ++rank) {
    items.next();
    write_rank_json(out, holding, rank, states, list);
  }
  out << "]}\n";
}

}  // namespace reshard::io
