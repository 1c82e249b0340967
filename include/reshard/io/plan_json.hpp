// SPDX-License-Identifier: Apache-2.0
// A plan as JSON, of any two sides, and back:
//   {"format": "reshard plan", "version": 4, "list": "param:bf16:3,..", "device": 3, "sends": [..], "receives": [..],
//   "retains": [..], "creates": [..], "lost": [..]}
//   with {"src": 3, "dst": 7, "states": ["param"], "family": "wte", "box": [[0, 1], ..], "phase": 0,
//   "purpose": "delivered", "stream": 0} for every box of a family.
// Builds on: io/detail/plan_check.hpp, io/print.hpp, nlohmann-json.
#pragma once

#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include <reshard/io/detail/plan_check.hpp>
#include <reshard/io/print.hpp>

namespace reshard::io {

namespace detail {

inline constexpr std::string_view plan_format = "reshard plan";
inline constexpr int plan_json_version = 4;
inline constexpr const char* purpose_names[] = {"delivered", "passed_on"};
inline constexpr const char* plan_lists[] = {"sends", "receives", "retains", "creates", "lost"};

template <Holding H>
int family_named(const H& h, std::string_view name) {
  for (int f = 0; f < h.families(); ++f)
    if (h.family_at(f).name == name) return f;
  refuse("plan from JSON: no family is called '", one_line(name), "'");
}

inline int phase_of(index_t number) {
  if (number < 0 || number > most_phases) refuse("plan from JSON: phase ", number, "; phases are 0 to ", most_phases);
  return static_cast<int>(number);
}
inline purpose purpose_named(std::string_view name) {
  for (const purpose one : {purpose::delivered, purpose::passed_on})
    if (name == purpose_names[static_cast<std::size_t>(one)]) return one;
  refuse("plan from JSON: no purpose is called '", one_line(name), "'");
}

/// The states of these names that tensors of a kind have.
inline state_set states_named(const nlohmann::json& names, const state_list& list, tensor_kind kind) {
  state_set states;
  for (const nlohmann::json& name : names) {
    const state_set one = list.named(name.get<std::string>());
    if (one.empty()) refuse("plan from JSON: no state is called '", one_line(name.get<std::string>()), "'");
    states = states | one;
  }
  return states_of(kind, states);
}

}  // namespace detail

/// A plan as one line of JSON, which plan_from_json reads back beside the same switch.
template <Holding From, Holding To>
[[nodiscard]] std::string to_json(const plan& p, const layout_switch<From, To>& change) {
  nlohmann::ordered_json result{{"format", detail::plan_format},
                                {"version", detail::plan_json_version},
                                {"list", to_text(change.list())},
                                {"device", p.device}};
  const std::vector<transfer>* lists[] = {&p.sends, &p.receives, &p.retains, &p.creates, &p.lost};
  for (std::size_t i = 0; i < std::size(detail::plan_lists); ++i) {
    nlohmann::ordered_json& list = result[detail::plan_lists[i]] = nlohmann::ordered_json::array();
    for (const transfer& t : *lists[i]) {
      nlohmann::ordered_json states = nlohmann::ordered_json::array(), box = states;
      for (const int s : t.states) states.push_back(change.list()[s].name);
      for (const interval& side : t.where.dim) box.push_back({side.begin, side.end});
      list.push_back({{"src", t.src},
                      {"dst", t.dst},
                      {"states", states},
                      {"family", change.to().family_at(t.family).name},
                      {"box", box},
                      {"phase", t.phase},
                      {"purpose", detail::purpose_names[static_cast<std::size_t>(t.why)]},
                      {"stream", t.stream}});
    }
  }
  try {
    return result.dump();
  } catch (const nlohmann::json::exception&) {
    refuse("plan to JSON: a tensor's name is not UTF-8");
  }
}

/// The plan that to_json wrote of this switch; anything else is refused.
template <Holding From, Holding To>
[[nodiscard]] plan plan_from_json(std::string_view text, const layout_switch<From, To>& change) {
  plan p;
  try {
    const nlohmann::json read = nlohmann::json::parse(text);
    if (read.at("format") != detail::plan_format)
      refuse("plan from JSON: its format is not '", detail::plan_format, "'");
    if (read.at("version") != detail::plan_json_version)
      refuse("plan from JSON: version ", one_line(read.at("version").dump()), "; version ", detail::plan_json_version,
             " is read here");
    if (read.at("list") != to_text(change.list()))
      refuse("plan from JSON: it is of the states ", one_line(read.at("list").dump()), ", and the switch has ",
             to_text(change.list()));
    p.device = read.at("device").get<rank_t>();
    std::vector<transfer>* lists[] = {&p.sends, &p.receives, &p.retains, &p.creates, &p.lost};
    for (std::size_t i = 0; i < std::size(detail::plan_lists); ++i)
      for (const nlohmann::json& t : read.at(detail::plan_lists[i])) {
        const int family = detail::family_named(change.to(), t.at("family").get<std::string>());
        transfer one{t.at("src").get<rank_t>(),
                     t.at("dst").get<rank_t>(),
                     detail::states_named(t.at("states"), change.list(), change.to().family_at(family).kind),
                     family,
                     {},
                     detail::phase_of(t.at("phase").get<index_t>()),
                     detail::purpose_named(t.at("purpose").get<std::string>()),
                     t.at("stream").get<std::uint64_t>()};
        if (t.at("box").size() != family_ndim)
          refuse("plan from JSON: a box of ", t.at("box").size(), " intervals; it has ", family_ndim);
        for (std::size_t axis = 0; axis < family_ndim; ++axis)
          one.where.dim[axis] = {t.at("box")[axis].at(0).get<index_t>(), t.at("box")[axis].at(1).get<index_t>()};
        lists[i]->push_back(one);
      }
  } catch (const nlohmann::json::exception& e) {
    refuse("plan from JSON: ", one_line(e.what()));
  }
  require_plan_of(change, p, "plan from JSON");
  return p;
}

}  // namespace reshard::io
