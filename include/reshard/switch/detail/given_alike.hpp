// SPDX-License-Identifier: Apache-2.0
// What all devices must be given alike before they can make one switch: the budget, what becomes of sources, the route,
// the states by name, type and level, the tensors by name and extents, the layouts and where their ranks sit. Their
// numbers alone are what plans speak of; two devices whose numbers mean other things would move the wrong bytes.
// Builds on: switch/detail/given.hpp, transport/transport.hpp.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <reshard/switch/detail/given.hpp>
#include <reshard/transport/transport.hpp>

namespace reshard {

namespace detail {

/// Whether all devices call with the same number.
template <Transport T>
bool alike_over(T& transport, std::int64_t mine) {
  const std::int64_t most = transport.all_reduce_max(mine), least = -transport.all_reduce_max(-mine);
  return most == least;
}

/// Where devices were given different things: the lowest device's and the lowest that was given another.
template <Transport T>
std::string difference_between(T& transport, const given& mine) {
  if (alike_over(transport, mine.value)) return {};
  const agreement first = transport.agree({0, 0, mine.text});
  const std::int64_t of_first = transport.all_reduce_max(transport.device() == first.refuser ? mine.value : -1);
  const agreement other = transport.agree({0, 0, mine.value != of_first ? mine.text : std::string()});
  return text_of("device ", first.refuser, " was given ", first.sentence, " and device ", other.refuser, " ",
                 other.sentence, "; all make one switch");
}

/// Where devices were given different families: what difference_between says of the first that differs.
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
  return difference_between(transport, {value(differ), family_in_words(of, differ - 1)});
}

}  // namespace detail

/// Called by all devices: a sentence, the same on all, where they were not given the same budget, use of sources,
/// states, tensors, placement or layouts; nothing where they were, which takes one agreement on two numbers.
template <Transport T, Holding From, Holding To>
std::string difference_over(T& transport, const layout_switch<From, To>& change, const switch_options& options) {
  const detail::given budget = detail::given_budget(options.budget), use = detail::given_sources(options.after_use),
                      states = detail::given_states(change.list(), change.states()),
                      route = detail::given_routing(options.route, change.on()),
                      placed = detail::given_placement(change), layouts = detail::given_layouts(change);
  const std::vector<digest> families = detail::digests_of_families(change.to());
  digest all = families.back();
  for (const std::int64_t value : {std::int64_t{change.to().families()}, budget.value, use.value, states.value,
                                   route.value, placed.value, layouts.value})
    all.add(value);
  if (detail::alike_over(transport, detail::number_of(all))) return {};
  std::string sentence = detail::difference_between(transport, budget);
  if (sentence.empty()) sentence = detail::difference_between(transport, use);
  if (sentence.empty()) sentence = detail::difference_between(transport, states);
  if (sentence.empty()) sentence = detail::difference_between(transport, route);
  if (sentence.empty()) sentence = detail::difference_of_families(transport, change.to(), families);
  if (sentence.empty()) sentence = detail::difference_between(transport, placed);
  if (sentence.empty()) sentence = detail::difference_between(transport, layouts);
  return sentence;
}

}  // namespace reshard
