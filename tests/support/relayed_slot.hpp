// SPDX-License-Identifier: Apache-2.0
// What one slot of a switch with relay moves over which ports, stream by stream, by the contract's words.
#pragma once

#include <vector>

#include <reshard/cost/detail/relayed_streams.hpp>

#include "any_links.hpp"

namespace testing {

/// A slot with `amount(stream, stage)` bytes of each stream that moves in it.
template <typename Amount>
slot_in_words slot_of(const links_in_words& words, const std::vector<reshard::relayed_stream>& streams,
                      reshard::index_t t, reshard::index_t stages, Amount&& amount) {
  slot_in_words slot;
  for (const reshard::relayed_stream& s : streams) {
    const reshard::index_t k = t - s.phase;
    if (k < 0 || k >= stages) continue;
    const double bytes = amount(s, k);
    if (s.source == reshard::had::before) slot.copies(words, s.sized.src, bytes);
    if (s.sized.src == s.sized.dst) continue;
    if (s.why == reshard::purpose::delivered) slot.copies(words, s.sized.dst, bytes);
    slot.passes(words, s.sized.src, s.sized.dst, bytes);
    if (s.sized.in_stage(k, stages) > 0) slot.messages.insert({s.sized.src, s.sized.dst, s.phase});
  }
  return slot;
}

}  // namespace testing
