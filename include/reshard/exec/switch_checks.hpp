// SPDX-License-Identifier: Apache-2.0
// What a device checks of its own bindings before a switch: every element that its plan needs is bound, and no target lies in
// memory that a source lies in.
// Builds on: plan/transfer.hpp, exec/binding.hpp.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include <reshard/exec/binding.hpp>
#include <reshard/exec/switch_options.hpp>
#include <reshard/plan/transfer.hpp>

namespace reshard {

/// Refuses where an element of the transfers is not bound. `device` begins the sentence, `which` is FROM or TO.
inline void require_bound(const std::string& device, const std::vector<transfer>& transfers, const binding& in, const char* which,
                          const tensor_names& names) {
  for (const transfer& t : transfers)
    for (int state = 0; state < state_count; ++state) {
      if (!t.states.contains(state)) continue;
      for (index_t member = t.where.dim[0].begin; member < t.where.dim[0].end; ++member)
        for (index_t expert = t.where.dim[1].begin; expert < t.where.dim[1].end; ++expert) {
          const tensor_box wanted{state, t.family, member, expert, {{t.where.dim[2], t.where.dim[3], t.where.dim[4]}}};
          index_t missing = wanted.where.volume();
          in.meet(wanted, [&](const bound_box& b) { missing -= b.where.volume(); });
          if (missing != 0)
            refuse(device, ", ", in.who(), ": ", missing, " of ", wanted.where.volume(), " elements that the plan needs of ",
                   adam_states[state].name, " of ", names(t.family, member, expert), " are not bound, on the side of ", which);
        }
    }
}

/// Refuses where what a switch makes would lie in memory that it reads, in pages that it gives back, or twice at one address.
/// Boxes are compared by the stretch from their first byte to their last, so arrays that interleave are refused too.
inline void require_apart(const std::string& device, const binding& from, const binding& into, state_set moving, sources after_use) {
  struct stretch {
    const std::byte* begin;
    const std::byte* end;
    const bound_box* of;
  };
  const auto stretches = [moving](const binding& in) {
    std::vector<stretch> result;
    for (const bound_box& b : in.boxes()) {
      if (!moving.contains(b.state)) continue;
      bytes_t bytes = b.element_bytes();
      for (int i = 0; i < 3; ++i) bytes += (b.where.dim[i].size() - 1) * b.stride[i] * b.element_bytes();
      result.push_back({b.data, b.data + bytes, &b});
    }
    std::sort(result.begin(), result.end(), [](const stretch& x, const stretch& y) { return std::less<>()(x.begin, y.begin); });
    return result;
  };
  const std::vector<stretch> read = stretches(from), targets = stretches(into);
  auto s = read.begin();
  const bound_box* last = nullptr;
  for (const stretch& t : targets) {
    if (last != nullptr && last->data == t.begin)
      refuse(device, ", ", into.who(), ": ", into.name(*last), " and ", into.name(*t.of), " begin at the same address");
    last = t.of;
    while (s != read.end() && std::less_equal<>()(s->end, t.begin)) ++s;
    if (s != read.end() && std::less<>()(s->begin, t.end))
      refuse(device, ", ", into.who(), ": ", into.name(*t.of), " lies in the memory of ", from.name(*s->of), " of ", from.who(),
             "; a switch wants memory of its own for what it makes");
    if (after_use == sources::release && (from.block_of(t.begin) >= 0 || from.block_of(t.end - 1) >= 0))
      refuse(device, ", ", into.who(), ": ", into.name(*t.of), " lies in pages that ", from.who(), " gives back");
  }
}

}  // namespace reshard
