// SPDX-License-Identifier: Apache-2.0
// The slots of stages and phases, against a world that is played slot by slot.
#include <doctest/doctest.h>

#include <vector>

#include <reshard/schedule/slot_times.hpp>

using namespace reshard;

TEST_CASE("a phase is sent on once it is in place, and all slots are needed") {
  for (index_t stages = 1; stages <= 5; ++stages)
    for (index_t phases = 1; phases <= 4; ++phases)
      for (index_t lag = 0; lag <= 2; ++lag) {
        const slot_times times{stages, phases, lag};
        std::vector<index_t> complete(static_cast<std::size_t>(stages), 0);  // at the end of which slot
        index_t last_sent = 0, last = 0;
        for (index_t k = 0; k < stages; ++k) {
          CHECK(times.slot_of(k, 0) == k);
          for (index_t p = 0; p < phases; ++p) {
            const index_t sent = times.slot_of(k, p), in_place = sent + lag;
            if (p > 0) CHECK(sent == complete[static_cast<std::size_t>(k)] + 1);
            complete[static_cast<std::size_t>(k)] = in_place;
            last_sent = greatest(last_sent, sent), last = greatest(last, in_place);
          }
        }
        CHECK(times.sending() == last_sent + 1);
        CHECK(times.slots() == last + 1);
        for (index_t slots = 0; slots <= times.sending(); ++slots) {  // whose messages are in place
          index_t done = 0;
          for (index_t k = 0; k < stages; ++k) done += times.slot_of(k, phases - 1) < slots ? 1 : 0;
          CHECK(times.stages_in_place(slots) == done);
        }
      }
}

TEST_CASE("of one phase, slots are stages") {
  static_assert(slot_times{7, 1, 1}.sending() == 7 && slot_times{7, 1, 1}.slots() == 8);
  static_assert(slot_times{4, 3, 0}.slots() == 6 && slot_times{4, 3, 1}.slots() == 9);
  CHECK(slot_times{}.slots() == 1);
}
