// SPDX-License-Identifier: Apache-2.0
// compare: which layout to go to, of all that are legal on so many devices.
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <exception>
#include <limits>
#include <optional>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include <reshard/cost/relayed_figures.hpp>
#include <reshard/cost/simulate.hpp>
#include <reshard/io/arguments.hpp>
#include <reshard/io/text_output.hpp>
#include <reshard/parallelism/legal_layouts.hpp>
#include <reshard/plan/make_plan.hpp>
#include <reshard/report/comparison_svg.hpp>
#include <reshard/report/comparison_text.hpp>

#include "asked.hpp"

namespace reshard::tool {

namespace {

/// --devices, 1 to as many as can be gone through one by one.
rank_t devices_asked_for(const arguments& given) {
  const rank_t devices = io::detail::digits_of("--devices", *given.devices);
  if (devices < 1) refuse("--devices: ", devices, " devices; there is at least 1");
  if (devices > max_listed_ranks)
    refuse("--devices: ", devices, " devices; at most ", max_listed_ranks, " are gone through one by one");
  return devices;
}

/// --top; 20 for a person, all for a program.
index_t top_asked_for(const arguments& given) {
  constexpr index_t rows_of_a_person = 20;
  if (!given.top) return given.json ? std::numeric_limits<index_t>::max() : rows_of_a_person;
  const index_t top = io::detail::digits_of("--top", *given.top);
  if (top < 1) refuse("--top: ", top, " layouts; there is at least 1");
  return top;
}

/// Says for which numbers of devices there would be one.
[[noreturn]] void refuse_none(const model& m, const degrees& from, rank_t devices, const varied_axes& axes) {
  const nearest_devices near = devices_with_layouts(m, from, devices, axes);
  std::string would, names;
  if (near.below > 0) would = text_of(near.below);
  if (near.above > 0) would += text_of(would.empty() ? "" : " or ", near.above);
  for (const layout_key axis : axes) names += text_of(names.empty() ? "" : ", ", name(axis));
  refuse("--devices: no layout of ", devices, " devices is legal over the axes ", names, " with every other key as in ",
         "FROM; ", would.empty() ? "no number within 4096 of it has one" : would + " devices have some");
}

/// The switch to one layout, as `simulate` would answer; none where its largest rank is above the memory.
std::optional<compared_layout> compared(const arguments& given, const model& m, const degrees& layout, bytes_t memory) {
  arguments question = given;
  question.to = to_text(layout);
  const any_switch asked = switch_asked_for(question, m);
  compared_layout row;
  row.layout = layout;
  row.bytes_per_rank = max_bytes_per_rank(asked.to(), asked.states());
  if (memory > 0 && row.bytes_per_rank > memory) return {};
  const relay_when usual = asked.on().has_speeds() ? relay_when::faster : relay_when::never;
  const relabelled_switch relabelled = relabelled_for(question, m, asked, usual, stages_unless_named::fastest);
  const any_switch& change = relabelled.change ? *relabelled.change : asked;
  require_possible(question, change);
  routing_asked routed = routing_asked_for(question, change, usual, stages_unless_named::fastest);
  row.seconds = routed.seconds;
  if (routed.how.how == relay::always) {
    const switch_figures f =
        figures_of_relay(change, routed.streams.streams(), routed.how, routed.phases, sources_asked_for(given));
    row.moved = f.moved, row.retained = f.retained, row.peak = f.peak;
    return row;
  }
  figure_collector figures(change, routed.how, routed.phases, figures_of::whole_switch, sources_asked_for(given));
  for (rank_t device = 0; device < change.devices(); ++device) {
    figures.add(make_plan(change, device, routed.how));
  }
  const switch_figures& f = figures.figures();
  row.moved = f.moved, row.retained = f.retained, row.peak = f.peak;
  return row;
}

/// Calls work(i) for all i < count, once each, on all cores; throws the exception of the lowest i that had one.
template <typename Work>
void each_in_parallel(std::size_t count, Work&& work) {
  std::atomic<std::size_t> next{0};
  std::vector<std::exception_ptr> thrown(count);
  const auto work_off = [&] {
    for (std::size_t i = next++; i < count; i = next++) try {
        work(i);
      } catch (...) {
        thrown[i] = std::current_exception();
        next = count;  // all below i are done or under way
      }
  };
  std::vector<std::jthread> others;
  const std::size_t threads = std::min(count, std::size_t{std::max(1u, std::thread::hardware_concurrency())});
  try {
    for (std::size_t i = 1; i < threads; ++i) others.emplace_back(work_off);
  } catch (const std::system_error&) {  // those that could be started, or this one alone
  }
  work_off();
  others.clear();
  for (const std::exception_ptr& one : thrown)
    if (one) std::rethrow_exception(one);
}

}  // namespace

void compare(const arguments& given) {
  require_sensible(given);
  const rank_t devices = devices_asked_for(given);
  const index_t top = top_asked_for(given);
  const bytes_t memory = given.memory ? parse_bytes("--memory", *given.memory) : 0;
  const model m = model_asked_for(given);
  const degrees from = parse_degrees(given.layout);
  const space from_space(m, from);
  const varied_axes axes = given.axes ? parse_axes(*given.axes) : default_axes(m);
  const std::vector<degrees> layouts = legal_layouts(m, from, devices, axes);
  if (layouts.empty()) refuse_none(m, from, devices, axes);
  layout_comparison found;
  found.legal = std::ssize(layouts);
  std::vector<std::optional<compared_layout>> rows(layouts.size());
  std::vector<std::string> refusals(layouts.size());
  each_in_parallel(layouts.size(), [&](std::size_t i) {
    try {
      rows[i] = compared(given, m, layouts[i], memory);
    } catch (const refusal& why) {
      refusals[i] = why.what();
    }
  });
  for (std::size_t i = 0; i < layouts.size(); ++i) {
    if (rows[i]) found.layouts.push_back(*rows[i]);
    else if (refusals[i].empty()) ++found.too_large;
    else if (found.refused++ == 0) found.why_refused = reshard::detail::without_prefix(refusals[i]);
  }
  if (found.refused == found.legal) refuse(found.why_refused);
  sort_best_first(found);
  if (given.svg) {
    text_output picture;
    write_comparison_svg(picture, from_space, devices, found);
    write_file(*given.svg, picture.text());
  }
  text_output out(stdout);
  if (given.json) write_comparison(out, found, top);
  else out << comparison_text(from_space, found, devices, memory, top);
  out.flush();
}

}  // namespace reshard::tool
