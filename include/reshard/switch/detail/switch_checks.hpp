// SPDX-License-Identifier: Apache-2.0
// What a device checks of its own bindings before a switch: every element that its plan needs is bound, and every byte
// that it makes is a byte of its own.
// Builds on: plan/plan.hpp, memory/binding.hpp, base/sort.hpp.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include <reshard/base/sort.hpp>
#include <reshard/memory/binding.hpp>
#include <reshard/plan/plan.hpp>
#include <reshard/switch/options.hpp>

namespace reshard {

/// Refuses bindings that keep a state which moves under another name or type than the switch does, or at another level.
inline void require_one_list(const std::string& device, const binding& in, const state_list& list,
                             const state_set& moving) {
  const auto told = [](const state& s) {
    return detail::text_of(s.name.empty() ? "nothing" : s.name, ":", name(s.type), ":", s.level);
  };
  for (const int s : moving)
    if (!in.boxes().empty() && s != statistic_state && in.list()[s] != list[s])
      refuse(device, ", ", in.who(), ": state ", s, " is bound as ", told(in.list()[s]), ", and the switch moves ",
             told(list[s]), "; bindings and switch have one list of states");
}

/// Refuses where an element of the transfers is not bound. `device` begins the sentence, `side` is FROM or TO.
inline void require_bound(const std::string& device, const std::vector<transfer>& transfers, const binding& in,
                          const char* side, const tensor_names& names) {
  for (const transfer& t : transfers)
    for (const int state : t.states) {
      each_tensor(t.family, t.where, [&](const tensor_id& tensor, const box<3>& part) {
        index_t missing = part.volume();
        in.meet({state, tensor, part}, [&](const bound_box& b) { missing -= b.where.volume(); });
        if (missing != 0)
          refuse(device, ", ", in.who(), ": ", missing, " of ", part.volume(), " elements that the plan needs of ",
                 in.list()[state].name, " of ", names(tensor), " are not bound, on the side of ", side);
      });
    }
}

/// Refuses where elements that move would lose bits on their way from the type that FROM's memory holds to their
/// state's (`side` is FROM), or from that to what TO's holds, unless rounding is allowed.
inline void require_exact(const std::string& device, const binding& in, const std::string& side, state_set moving,
                          rounding rounds) {
  if (rounds == rounding::to_nearest) return;
  for (const bound_box& b : in.boxes()) {
    const bool from = side == "FROM";
    const dtype first = from ? b.holds : b.travels, then = from ? b.travels : b.holds;
    if (b.converts() && moving.contains(b.state) && loses_bits(first, then))
      refuse(device, ", ", in.who(), ": ", in.name(b), from ? " is held as " : " travels as ", name(first),
             from ? " and travels as " : " and is to be held as ", name(then),
             ", which loses bits; rounding::to_nearest "
             "in the switch's options allows it");
  }
}

namespace detail {

/// Bytes in memory of a bound box: all of it, or a run of it.
struct stretch {
  const std::byte* begin;
  const std::byte* end;
  const bound_box* of;
  bool target;

  friend bool operator<(const stretch& a, const stretch& b) { return std::less<>()(a.begin, b.begin); }
};

/// From the first byte of a box to its last; between them may lie bytes that are not its own.
inline stretch hull(const bound_box& b, bool target) { return {b.data, b.data + b.bytes_spanned(), &b, target}; }

/// Whether each dimension steps over all that the ones with smaller strides reach, so that no two elements share an
/// address.
inline bool nested(const bound_box& b) {
  const std::array<int, 3> order = b.by_stride();
  index_t reach = 1;
  for (auto at = order.rbegin(); at != order.rend(); ++at) {
    const int i = *at;
    if (b.where.dim[i].size() > 1 && b.stride[i] < reach) return false;
    reach += (b.where.dim[i].size() - 1) * b.stride[i];
  }
  return true;
}

/// Calls sink(stretch) for every run of contiguous bytes of a box.
template <typename Sink>
void each_run(const bound_box& b, bool target, Sink&& sink) {
  const bool dense = b.stride[2] == 1;
  const index_t columns = b.where.dim[2].size(), steps = dense ? 1 : columns;
  const bytes_t run = (dense ? columns : 1) * b.element_bytes;
  for (index_t i = 0; i < b.where.dim[0].size(); ++i)
    for (index_t j = 0; j < b.where.dim[1].size(); ++j)
      for (index_t k = 0; k < steps; ++k) {
        const std::byte* at = b.data + (i * b.stride[0] + j * b.stride[1] + k * b.stride[2]) * b.element_bytes;
        sink(stretch{at, at + run, &b, target});
      }
}

/// Refuses where a byte of a target lies in a page that the sources give back.
inline void require_outside_given_pages(const std::string& device, const binding& from, const binding& into,
                                        const std::vector<stretch>& all) {
  for (const stretch& s : all) {
    if (!s.target || !from.meets_block(s.begin, s.end)) continue;
    each_run(*s.of, true, [&](const stretch& run) {
      if (from.meets_block(run.begin, run.end))
        refuse(device, ", ", into.who(), ": ", into.name(*s.of), " lies in pages that ", from.who(), " gives back");
    });
  }
}

}  // namespace detail

/// Runs that are compared at most.
inline constexpr index_t most_runs = index_t{1} << 22;

/// Refuses where a byte of what a switch makes is a byte of something else that it makes or of FROM's, moving or not,
/// or lies in a page that it gives back. Arrays may interleave: boxes whose stretches cross are compared run by run,
/// the others are only sorted.
inline void require_apart(const std::string& device, const binding& from, const binding& into, state_set moving,
                          sources after_use) {
  using detail::stretch;
  std::vector<stretch> all, runs;
  for (const bool target : {false, true})
    for (const bound_box& b : (target ? into : from).boxes())
      if (!target || moving.contains(b.state)) all.push_back(detail::hull(b, target));
  detail::sort_items(all, std::less<stretch>());

  const auto refuse_pair = [&](const stretch& a, const stretch& b) {  // one at least is a target
    if (a.of == b.of && a.target && b.target)
      refuse(device, ", ", into.who(), ": ", into.name(*a.of),
             " has strides by which its elements lie in the same memory");
    const stretch &made = a.target ? a : b, &other = a.target ? b : a;
    if (other.target)
      refuse(device, ", ", into.who(), ": ", into.name(*a.of), " and ", into.name(*b.of), " lie in the same memory");
    refuse(device, ", ", into.who(), ": ", into.name(*made.of), " lies in the memory of ", from.name(*other.of), " of ",
           from.who(), "; a switch wants memory of its own for what it makes");
  };
  const auto require_distinct = [&](auto first, auto last) {
    runs.clear();
    index_t count = 0;
    for (auto s = first; s != last; ++s) {
      const box<3>& of = s->of->where;
      count += least(most_runs + 1, of.volume() / (s->of->stride[2] == 1 ? of.dim[2].size() : 1));
      const binding& in = s->target ? into : from;
      if (count > most_runs)
        refuse(device, ", ", in.who(), ": ", in.name(*s->of), " crosses other arrays in memory; more than ", most_runs,
               " runs are not compared");
    }
    for (auto s = first; s != last; ++s)
      detail::each_run(*s->of, s->target, [&](const stretch& run) { runs.push_back(run); });
    detail::sort_items(runs, std::less<stretch>());
    const stretch* furthest[2] = {};  // of the sources, of the targets: the run that ends last so far
    for (const stretch& run : runs) {
      for (const bool target : {false, true})
        if ((run.target || target) && furthest[target] && std::less<>()(run.begin, furthest[target]->end))
          refuse_pair(*furthest[target], run);
      const stretch*& mine = furthest[run.target];
      if (mine == nullptr || std::less<>()(mine->end, run.end)) mine = &run;
    }
  };
  for (auto first = all.begin(); first != all.end();) {  // stretches that touch one another, directly or through others
    auto last = first;
    bool any_target = false, crossing = false;
    for (const std::byte* end = first->end; last != all.end() && (last == first || std::less<>()(last->begin, end));
         ++last) {
      any_target = any_target || last->target;
      crossing = crossing || last != first || !detail::nested(*last->of);
      if (std::less<>()(end, last->end)) end = last->end;
    }
    if (any_target && crossing) require_distinct(first, last);
    first = last;
  }
  if (after_use == sources::release) detail::require_outside_given_pages(device, from, into, all);
}

}  // namespace reshard
