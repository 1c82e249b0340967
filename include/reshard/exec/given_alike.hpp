// SPDX-License-Identifier: Apache-2.0
// What all devices must be given alike before they can make one switch: the budget, what becomes of sources, the route,
// the states by name, type and level, the tensors by name and extents. Their numbers alone are what plans speak of; two devices
// whose numbers mean other things would move the wrong bytes.
// Builds on: exec/packing.hpp, exec/switch_options.hpp, exec/transport.hpp, plan/layout_switch.hpp.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <reshard/exec/packing.hpp>
#include <reshard/exec/switch_options.hpp>
#include <reshard/exec/transport.hpp>
#include <reshard/plan/layout_switch.hpp>

namespace reshard {

namespace detail {

/// Something that a device was given: a number, never negative, that is another where it was given something else; and
/// words for it.
struct given {
  std::int64_t value = 0;
  std::string text;
};
/// 62 bits of a digest, as a number.
inline std::int64_t number_of(const digest& d) { return static_cast<std::int64_t>(d.value() >> 2); }

/// Whether all devices call with the same number.
template <Transport T>
bool alike_over(T& transport, std::int64_t mine) {
  const std::int64_t most = transport.all_reduce_max(mine), least = -transport.all_reduce_max(-mine);
  return most == least;
}

/// Where devices were given different things: the lowest device's and the lowest that was given another; where the
/// transport knows no devices, only that they differ.
template <Transport T>
std::string difference_between(T& transport, const char* what, const given& mine) {
  if (alike_over(transport, mine.value)) return {};
  const agreement first = agree_over(transport, {0, 0, mine.text});
  const std::int64_t of_first = transport.all_reduce_max(transport.device() == first.refuser ? mine.value : -1);
  const agreement other = agree_over(transport, {0, 0, mine.value != of_first ? mine.text : std::string()});
  if (first.refuser < 0) return text_of("the devices were given different ", what, "; all make one switch");
  return text_of("device ", first.refuser, " was given ", first.sentence, " and device ", other.refuser, " ",
                 other.sentence, "; all make one switch");
}

inline given given_budget(bytes_t budget) {
  return {budget, budget == no_budget ? "no budget" : text_of("a budget of ", budget, " bytes")};
}
inline given given_sources(sources after_use) {
  return after_use == sources::keep ? given{1, "sources that are kept"} : given{0, "sources that are released"};
}
inline given given_routing(const routing& route) {
  if (route.how == relay::never) return {route.stages, text_of("direct routes in ", route.stages, " stages")};
  digest of;
  of.add(route.chains), of.add(route.stages);
  return {number_of(of), text_of("relay over ", route.chains, " chains a node in ", route.stages, " stages")};
}
inline given given_states(const state_list& list, const state_set& moving) {
  std::string text;
  for (const int s : moving)
    if (s != statistic_state)
      text += text_of(text.empty() ? "" : ",", s, "=", list[s].name, ":", name(list[s].type), ":", list[s].level);
  digest of;
  for (const char c : text) of.add(c);
  of.add(moving.bits());
  return {number_of(of), "the states " + (text.empty() ? "of statistics alone" : text)};
}

/// result[n] is the digest of the first n tensor families of a holding, 0 <= n <= families.
template <Holding H>
std::vector<digest> digests_of_families(const H& of) {
  std::vector<digest> result(1);
  for (int f = 0; f < of.families(); ++f) {
    const family& tensors = of.family_at(f);
    digest next = result.back();
    next.add(static_cast<std::int64_t>(tensors.name.size()));
    for (const char c : tensors.name) next.add(c);
    for (const index_t extent : tensors.extent) next.add(extent);
    result.push_back(next);
  }
  return result;
}
/// A family by its number; how many there are where there are fewer.
template <Holding H>
std::string family_in_words(const H& of, index_t f) {
  if (f >= of.families()) return text_of("no more than ", of.families(), " tensors");
  const family& tensors = of.family_at(static_cast<int>(f));
  std::string extents;
  for (const index_t extent : tensors.extent) extents += text_of(extents.empty() ? "" : " x ", extent);
  return text_of("tensor ", f, " as ", tensors.name, " of ", extents);
}
/// As difference_between, of the first family that is not the same on all devices.
template <Transport T, Holding H>
std::string difference_of_families(T& transport, const H& of, const std::vector<digest>& of_first) {
  const auto value = [&](index_t n) {  // of the first n families, and of their number where there are not as many
    digest d = of_first[static_cast<std::size_t>(least(n, of.families()))];
    if (n > of.families()) d.add(of.families());
    return number_of(d);
  };
  index_t same = 0, differ = transport.all_reduce_max(of.families());
  while (differ - same > 1) {
    const index_t middle = same + (differ - same) / 2;
    (alike_over(transport, value(middle)) ? same : differ) = middle;
  }
  return difference_between(transport, "tensors", {value(differ), family_in_words(of, differ - 1)});
}

}  // namespace detail

/// Called by all devices: a sentence, the same on all, where they were not given the same budget, use of sources,
/// states or tensors; nothing where they were, which takes one agreement on two numbers.
template <Transport T, Holding From, Holding To>
std::string difference_over(T& transport, const layout_switch<From, To>& change, const switch_options& options) {
  const detail::given budget = detail::given_budget(options.budget), use = detail::given_sources(options.after_use),
                      states = detail::given_states(change.list(), change.states()),
                      route = detail::given_routing(options.route);
  const std::vector<digest> families = detail::digests_of_families(change.to());
  digest all = families.back();
  for (const std::int64_t value :
       {std::int64_t{change.to().families()}, budget.value, use.value, states.value, route.value})
    all.add(value);
  if (detail::alike_over(transport, detail::number_of(all))) return {};
  std::string sentence = detail::difference_between(transport, "budgets", budget);
  if (sentence.empty()) sentence = detail::difference_between(transport, "uses of sources", use);
  if (sentence.empty()) sentence = detail::difference_between(transport, "states", states);
  if (sentence.empty()) sentence = detail::difference_between(transport, "routes", route);
  if (sentence.empty()) sentence = detail::difference_of_families(transport, change.to(), families);
  return sentence;
}

}  // namespace reshard
