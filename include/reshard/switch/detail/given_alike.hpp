// SPDX-License-Identifier: Apache-2.0
// What all devices must be given alike before they can make one switch: the budget, what becomes of sources, the route,
// the states by name, type and level, the tensors by name and extents, the layouts and where their ranks sit. Their
// numbers alone are what plans speak of; two devices whose numbers mean other things would move the wrong bytes.
// Builds on: switch/detail/given.hpp, transport/agreeing_transport.hpp.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <reshard/switch/detail/given.hpp>
#include <reshard/transport/agreeing_transport.hpp>

namespace reshard {

namespace detail {

/// What a device was given, in the order in which differences are told. Of two numbers of tensors the less stands where
/// the other list has one more tensor.
template <Holding From, Holding To>
std::vector<given> all_given(const layout_switch<From, To>& change, const switch_options& options) {
  std::vector<given> all = {given_budget(options.budget), given_sources(options.after_use),
                            given_states(change.list(), change.states()), given_routing(options.route, change.on())};
  const int families = change.to().families();
  for (int f = 0; f < families; ++f) all.push_back(given_family(change.to(), f));
  all.push_back({families, text_of("no more than ", families, " tensors")});
  all.push_back(given_placement(change));
  all.push_back(given_layouts(change));
  return all;
}

/// Called by all devices: nothing where they were given the same, which takes one agreement; else a sentence, the same
/// on all, about the first thing that differs, as the lowest device was given it and the lowest that was given another.
template <AgreeingTransport T>
std::string difference_between(T& transport, const std::vector<given>& mine) {
  digest of;
  for (const given& one : mine) of.add(one.value);
  const auto brought = static_cast<std::uint64_t>(number_of(of));
  const agreement all = transport.agree({number_of(of), brought});
  const auto living = static_cast<std::uint64_t>(transport.devices()) - transport.facts().absent.size();
  if (all.sum == living * static_cast<std::uint64_t>(all.largest)) return {};
  std::string values = "=";  // a device that is gone says nothing
  for (const given& one : mine) values.append(reinterpret_cast<const char*>(&one.value), sizeof one.value);
  const std::vector<std::string> told = transport.gather(values);
  std::optional<rank_t> first, other;
  std::size_t differs = mine.size();
  for (std::size_t d = 0; d < told.size(); ++d) {
    if (told[d].empty()) continue;
    if (!first) first = static_cast<rank_t>(d);
    const std::string& usual = told[static_cast<std::size_t>(*first)];
    const auto [at, its] = std::mismatch(usual.begin(), usual.end(), told[d].begin(), told[d].end());
    if (at == usual.end()) continue;
    const std::size_t part = static_cast<std::size_t>(at - usual.begin() - 1) / sizeof(std::int64_t);
    if (part < differs) differs = part, other = static_cast<rank_t>(d);
  }
  if (!other) return {};
  const bool asked = transport.device() == *first || transport.device() == *other;
  const std::vector<std::string> words = transport.gather(asked ? mine[differs].text : std::string());
  const auto of_device = [&](rank_t d) { return words[static_cast<std::size_t>(d)]; };
  return text_of("device ", *first, " was given ", of_device(*first), " and device ", *other, " ", of_device(*other),
                 "; all make one switch");
}

}  // namespace detail

/// Called by all devices: a sentence, the same on all, where they were not given the same budget, use of sources,
/// states, route, tensors, placement or layouts; nothing where they were, which takes one agreement.
template <AgreeingTransport T, Holding From, Holding To>
std::string difference_over(T& transport, const layout_switch<From, To>& change, const switch_options& options) {
  return detail::difference_between(transport, detail::all_given(change, options));
}

}  // namespace reshard
