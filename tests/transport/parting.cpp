// SPDX-License-Identifier: Apache-2.0
// What devices that broke off agree on, folded word by word and by hand; and which meetings and transports can part.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include <reshard/transport/parting.hpp>

#include <reshard/transport/forwarding.hpp>

using namespace reshard;

namespace {

/// A device's word: how many stages it knows to be in place, and whether it has everything.
struct parting_word {
  index_t known;
  bool has_all;
};
parting parted(const std::vector<rank_t>& devices, const std::vector<parting_word>& words) {
  parting all;
  for (std::size_t i = 0; i < devices.size(); ++i) all.add(devices[i], words[i].known, words[i].has_all);
  return all;
}

/// A meeting of which nothing but its calls is said; `part` and `hub` make it one that some survive.
struct told_meeting {
  rank_t device() const, devices() const;
  patience waits() const;
  std::vector<rank_t> absent() const, behind(index_t) const;
  agreement agree(const proposal&);
  std::vector<std::string> gather(const std::string&);
  void confirm(index_t), poll(), require_whole(), give_up(const std::string&), fail(const std::string&);
  index_t confirmed() const;
  bool in_place(index_t) const;
};
struct surviving : told_meeting {
  parting part(bool);
  rank_t hub() const;
};
static_assert(Meeting<told_meeting> && !SurvivingMeeting<told_meeting> && SurvivingMeeting<surviving>);

/// The same of a transport.
struct told_transport {
  rank_t device() const, devices() const;
  transport_facts facts() const;
  agreement agree(const proposal&);
  std::int64_t all_reduce_max(std::int64_t);
  std::vector<std::string> gather(const std::string&);
  void keep_alive(), fail(const std::string&), locate(binding&), offer(const binding&), settle(), check_messages(bool);
  bool reaches(memory_place) const;
  void fill_with_zeros(const bound_box&), contact(const std::vector<rank_t>&, const std::vector<rank_t>&);
  reshard::footprint footprint(const staged_plan&) const;
  int prepare(const staged_plan&, const binding&, page_stages&);
  std::string disagreement(int&);
  void connect(int&), move(int&, index_t), await(index_t);
};
struct parting_end : told_transport {
  parting part(index_t, bool);
  rank_t decides() const;
};
static_assert(Transport<told_transport> && !PartingTransport<told_transport> && PartingTransport<parting_end>);

// Each lacks one thing of these, or answers it otherwise.
#define PARTS_NOT(concept, name, base, ...) \
  struct name : base {                      \
    __VA_ARGS__                             \
  };                                        \
  static_assert(!concept<name>)
PARTS_NOT(SurvivingMeeting, meeting_without_part, surviving, void part(bool) = delete;);
PARTS_NOT(SurvivingMeeting, meeting_without_hub, surviving, void hub() const = delete;);
PARTS_NOT(SurvivingMeeting, meeting_whose_hub_moves, surviving, rank_t hub(););
PARTS_NOT(SurvivingMeeting, meeting_that_parts_with_survivors, surviving, std::vector<rank_t> part(bool););
PARTS_NOT(SurvivingMeeting, no_meeting_that_parts, surviving, void poll() = delete;);
PARTS_NOT(PartingTransport, transport_without_part, parting_end, void part(index_t, bool) = delete;);
PARTS_NOT(PartingTransport, transport_that_asks_less, parting_end, parting part(index_t););
PARTS_NOT(PartingTransport, transport_without_decides, parting_end, void decides() const = delete;);
PARTS_NOT(PartingTransport, transport_that_decides_anew, parting_end, rank_t decides(););
PARTS_NOT(PartingTransport, no_transport_that_parts, parting_end, void await(index_t) = delete;);
#undef PARTS_NOT
static_assert(!SurvivingMeeting<parting_end> && !PartingTransport<surviving>);
static_assert(PartingTransport<forwarding<parting_end>> && !PartingTransport<forwarding<told_transport>>);
}  // namespace

TEST_CASE("of the survivors' words the highest stage counts, and all have everything where each has it") {
  const parting none;
  CHECK((none.in_place == 0 && !none.all_have_all && none.survivors.empty()));
  for (unsigned who = 0; who < 8; ++who) {  // bit i: the i-th of three has everything
    const parting p = parted({0, 2, 5}, {{3, (who & 1u) != 0}, {7, (who & 2u) != 0}, {5, (who & 4u) != 0}});
    CHECK(p.in_place == 7);
    CHECK(p.all_have_all == (who == 7));
    CHECK(p.survivors == std::vector<rank_t>{0, 2, 5});
  }
  CHECK(parted({4}, {{0, true}}).all_have_all);
  CHECK_FALSE(parted({4}, {{9, false}}).all_have_all);
}

TEST_CASE("they are in doubt where all have everything, and who decides so is not among them") {
  const parting whole = parted({0, 2, 5}, {{3, true}, {3, true}, {3, true}}),
                part = parted({0, 2, 5}, {{3, true}, {3, false}, {3, true}});
  for (rank_t decides = 0; decides < 7; ++decides) {
    CHECK(whole.in_doubt(decides) == (decides != 0 && decides != 2 && decides != 5));
    CHECK_FALSE(part.in_doubt(decides));
    CHECK_FALSE(parting{}.in_doubt(decides));
  }
}
