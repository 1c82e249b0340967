// SPDX-License-Identifier: Apache-2.0
// A plan as JSON: the tensors and elements that are printed are those of the plan, and every figure stands under its
// own name.
#include <doctest/doctest.h>

#include <array>
#include <cstdio>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include <nlohmann/json.hpp>

#include <reshard/model/transformer.hpp>
#include <reshard/parallelism/parse_degrees.hpp>
#include <reshard/plan/make_plan.hpp>
#include <reshard/report/switch_json.hpp>

#include "../support/points.hpp"

using namespace reshard;

using namespace reshard::io;
using nlohmann::json;

namespace {
constexpr transformer small{.name = "small",
                            .layers = 4,
                            .hidden = 4,
                            .heads = 4,
                            .groups = 2,
                            .head_dim = 1,
                            .ffn = 4,
                            .vocabulary = 8,
                            .tied = true,
                            .experts = 4,
                            .expert_ffn = 4};
const model& tiny() {
  static const model m = make_transformer(small, [](index_t l) { return l % 2 == 1; });
  return m;
}

/// (src, dst, stage, state, tensor, flat element) and how often it is there.
using elements = std::map<std::tuple<rank_t, rank_t, index_t, std::string, std::string, index_t>, int>;

/// The name of a tensor on a rank of TO: the last of several stages has the tied name.
std::string name_on(const space& to, int f, index_t member, index_t expert, rank_t rank) {
  const family& which = tiny()[f];
  const degrees& d = to.degrees();
  if (!which.tied_name.empty() && d.pp > 1 && rank / (d.tp * d.cp * d.dp) == d.pp - 1) return "output_layer.weight";
  std::string name(which.name);
  if (const std::size_t at = name.find("{layer}"); at != name.npos)
    name.replace(at, 7, std::to_string(tiny().layers_of(f).layer_of(member)));
  if (const std::size_t at = name.find("{expert}"); at != name.npos) name.replace(at, 8, std::to_string(expert));
  return name;
}

void add_planned(elements& all, const computed_switch& change, rank_t src, rank_t dst, index_t stage, state_set states,
                 int f, const family_box& where) {
  const family& which = tiny()[f];
  for (const int s : all_states)
    if (states.contains(s))
      testing::each_point(where, [&](const index_t(&x)[family_ndim]) {
        const index_t flat = (x[2] * which.extent[3] + x[3]) * which.extent[4] + x[4];
        ++all[{src, dst, stage, std::string(adam[s].name),
               name_on(change.to().space(), f, x[0], x[1], change.to_rank(dst)), flat}];
      });
}

void add_printed(elements& all, const json& t) {
  const auto& dims = t.at("dims");
  const auto& box = t.at("box");
  REQUIRE(dims.size() == box.size());
  std::vector<index_t> flat{0};
  for (std::size_t i = 0; i < dims.size(); ++i) {
    std::vector<index_t> longer;
    for (const index_t prefix : flat)
      for (index_t x = box[i][0]; x < box[i][1]; ++x) longer.push_back(prefix * dims[i].get<index_t>() + x);
    flat.swap(longer);
  }
  for (const index_t e : flat) ++all[{t.at("src"), t.at("dst"), t.at("stage"), t.at("state"), t.at("tensor"), e}];
  CHECK(t.at("phase") == 0);
  CHECK(t.at("relay") == false);
  CHECK(t.size() == 9);
}
}  // namespace

TEST_CASE(
    "transfers: what is printed is what is planned, element by element, where it arrives; of one device's view, where "
    "it leaves too") {
  const struct {
    const char *from, *to;
  } switches[] = {
      {"tp=2,dp=2", "pp=2,dp=2,ep=2"}, {"dp=4,ep=2,zero=1", "tp=2,pp=2,zero=1"}, {"pp=2", "pp=4"}, {"pp=4", ""}};
  for (const auto& change : switches)
    for (const index_t stages : {1, 3})
      for (const state_set states : {all_states, only(0), optimizer_states}) {
        const std::string from_text = change.from, to_text = change.to;
        INFO(from_text, " to ", to_text);
        CAPTURE(stages);
        const space from(tiny(), parse_degrees(from_text)), to(tiny(), parse_degrees(to_text));
        const rank_t devices = std::max(from.ranks(), to.ranks() + 1);
        std::vector<rank_t> on;
        for (rank_t r = 0; r < to.ranks(); ++r) on.push_back(r + 1);
        const layout_switch asked(from, to, {.to = device_map(on), .states = states, .devices = devices});
        for (const figures_of view : {figures_of::whole_switch, figures_of::one_device}) {
          elements planned, printed;
          for (rank_t device = 0; device < devices; ++device) {
            const plan p = make_plan(asked, device);
            const staged_plan cut = stage_plan(p, asked, stages);
            text_output out;
            out << "[";
            json_items items(out);
            if (stages == 1) write_transfers(items, asked, p, view);
            else write_transfers(items, asked, cut, view);
            out << "]";
            for (const json& t : json::parse(out.text())) add_printed(printed, t);
            const bool leaving_too = view == figures_of::one_device;
            if (stages == 1)
              for (const std::vector<transfer>* list : {&p.receives, &p.retains, &p.sends}) {
                if (list == &p.sends && !leaving_too) continue;
                for (const transfer& t : *list)
                  add_planned(planned, asked, t.src, t.dst, 0, t.states, t.family, t.where);
              }
            else
              for (const std::vector<staged_piece>* list : {&cut.receives, &cut.retains, &cut.sends}) {
                if (list == &cut.sends && !leaving_too) continue;
                for (const staged_piece& t : *list)
                  add_planned(planned, asked, t.src, t.dst, t.stage, t.states, t.tensor.family,
                              {{{t.tensor.member, t.tensor.member + 1},
                                {t.tensor.expert, t.tensor.expert + 1},
                                t.where.dim[0],
                                t.where.dim[1],
                                t.where.dim[2]}});
              }
          }
          CHECK_FALSE(planned.empty());
          const bool same = printed == planned;
          CHECK(same);
        }
      }
}

TEST_CASE("lost: what ranks of TO hold and lost devices alone held, each once; of one device, what it lacks") {
  const space from(tiny(), parse_degrees("tp=2,dp=2,zero=1")), to(tiny(), parse_degrees("tp=4,dp=2"));
  const layout_switch asked(
      from, to,
      {.to = device_map({4, 5, 6, 7, 8, 9, 10, 11}), .lost = {1, 2, 3}, .lost_elements = when_lost::leave_out});
  const auto lost_of = [&](const std::vector<transfer>* of_device) {
    text_output out;
    out << "{";
    write_lost(out, asked, of_device);
    out << "\"end\":0}";
    elements all;
    const json printed = json::parse(out.text());
    for (json one : printed.at("lost")) {
      CHECK(one.size() == 4);
      one["src"] = one["dst"] = one["stage"] = one["phase"] = 0, one["relay"] = false;
      add_printed(all, one);
    }
    return all;
  };
  elements held, gone, wanted;  // brute force: by ranks that live, by those that do not
  const auto add = [&](elements& all, const space& s, rank_t rank) {
    const computed_holding holding(s);
    for (const int state : all_states)
      each_held(holding, rank, state == 0 ? role::parameter : role::optimizer, [&](int f, const family_box& b) {
        testing::each_point(b, [&](const index_t(&x)[family_ndim]) {
          const index_t flat = (x[2] * tiny()[f].extent[3] + x[3]) * tiny()[f].extent[4] + x[4];
          all[{0, 0, 0, std::string(adam[state].name), name_on(s, f, x[0], x[1], 0), flat}] = 1;
        });
      });
  };
  add(held, from, 0);
  for (const rank_t rank : {1, 2, 3}) add(gone, from, rank);
  for (const auto& [element, once] : gone)
    if (held.count(element) == 0) wanted[element] = once;
  CHECK(wanted.size() > 100);
  CHECK(lost_of(nullptr) == wanted);
  std::map<std::string, std::size_t> by_state;
  for (const auto& [element, once] : wanted) ++by_state[std::get<3>(element)];
  CHECK(by_state.at("master") > by_state.at("param"));  // whose other half lives on
  for (rank_t device = 4; device < 12; ++device) {
    elements lacks, own;
    add(own, to, device - 4);
    for (const auto& [element, once] : wanted)
      if (own.count(element) > 0) lacks[element] = once;
    const plan p = make_plan(asked, device);
    CHECK(lost_of(&p.lost) == lacks);
  }
}

TEST_CASE("rank_of_device has TO's rank on every device, and -1 where there is none") {
  const space one(tiny(), parse_degrees("dp=3"));
  const layout_switch asked(one, one, {.to = device_map({4, 0, 2}), .devices = 6});
  text_output out;
  write_rank_of_device(out, asked);
  CHECK(out.text() == "\"rank_of_device\":[1,-1,2,-1,0,-1]");
}

TEST_CASE("every figure stands under its own name") {
  switch_figures f{.how = {.stages = 17},
                   .moved = 1,
                   .relayed = 2,
                   .retained = 3,
                   .created = 29,
                   .least = 4,
                   .inter_node = 5,
                   .cross_rail = 30,
                   .messages = 6,
                   .max_send = 7,
                   .max_receive = 8,
                   .peak = 9,
                   .peak_floor = 10,
                   .peak_excess = 11,
                   .devices = {},
                   .busiest = {}};
  f.devices = {{12, 13, 14, 15, 27, 16, 18, 19}, {20, 21, 22, 23, 28, 24, 25, 26}};
  text_output out;
  out << "{";
  write_figures(out, f, 0.5);
  out << "}";
  CHECK(json::parse(out.text()) == json::parse(R"({"devices": [
    {"device": 12, "send_bytes": 13, "receive_bytes": 14, "retained_bytes": 15, "before_bytes": 16,
    "after_bytes": 18, "peak_bytes": 19},
    {"device": 20, "send_bytes": 21, "receive_bytes": 22, "retained_bytes": 23, "before_bytes": 24,
    "after_bytes": 25, "peak_bytes": 26}],
    "summary": {"moved_bytes": 1, "relayed_bytes": 2, "retained_bytes": 3, "created_bytes": 29, "least_bytes": 4,
    "inter_node_bytes": 5, "cross_rail_bytes": 30, "relay": "never", "phases": 1, "slots": 17,
    "messages": 6, "stages": 17,
    "max_send_bytes": 7, "max_receive_bytes": 8, "peak_bytes": 9, "peak_floor_bytes": 10, "peak_excess_bytes": 11,
    "unread_kept_stages": null, "relabelled": false, "planning_seconds": 0.5}})"));
  f.how = {relay::always, 2, 17}, f.phases = 4, f.unread_kept = 3;
  text_output relayed;
  relayed << "{";
  write_summary(relayed, f, when_lost::refuse);
  relayed << "}";
  const json summary = json::parse(relayed.text());
  CHECK(summary["relay"] == "always");
  CHECK(summary["stages"] == 17);
  CHECK(summary["phases"] == 4);
  CHECK(summary["slots"] == 20);
  CHECK(summary["unread_kept_stages"] == 3);
}
