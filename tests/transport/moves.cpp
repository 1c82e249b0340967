// SPDX-License-Identifier: Apache-2.0
// What devices do in a switch by messages, as data and without a wire: the messages of both ends meet, lie where they
// may and nowhere twice, and copied by hand from end to end they bring every element where it belongs.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include <reshard/memory/rank_storage.hpp>
#include <reshard/model/transformer.hpp>
#include <reshard/parallelism/parse_degrees.hpp>
#include <reshard/plan/make_plan.hpp>
#include <reshard/schedule/staged_plan.hpp>
#include <reshard/testing/known_values.hpp>
#include <reshard/transport/exchange/moves.hpp>

using namespace reshard;

namespace {

using change_of_layouts = computed_switch;

/// How a switch is exchanged.
struct exchanged {
  exchange_as how;
  index_t stages;
  bytes_t trailer, round_bytes;
  in_tensors may_lie = in_tensors::both_ways;
  bytes_t alignment = 1;

  index_t lag() const { return lag_of_exchange(how); }
};

/// A device's part, with its arrays.
struct device_part {
  device_part(const change_of_layouts& change, rank_t d, const exchanged& x)
      : device(d), how(x), staged(stage_plan(make_plan(change, d), change, slot_times{x.stages, 1, x.lag()})),
        before("no rank"), after("no rank") {
    if (change.from_rank(d) >= 0) {
      before = rank_storage(change.from(), change.from_rank(d), "before");
      fill(before.tensors(), change.from());
    }
    if (change.to_rank(d) >= 0) after = rank_storage(change.to(), change.to_rank(d), "after", pages_are::reserved);
    before.tensors().seal(), after.tensors().seal();
    pages = std::make_unique<page_stages>(after.tensors(), binding_side::target, change.states());
    const arena_sizes sizes(staged, x.how, x.trailer, x.round_bytes);
    for (const staged_piece& p : staged.receives)
      each_part_of(
          p, [&](const bound_box& b) { pages->written(b, p.stage + (sizes.several_rounds(p.stage) ? 0 : x.lag())); });
    for (const staged_piece& p : staged.retains)
      each_part_of(p, [&](const bound_box& b) { pages->written(b, p.stage); });
    arena_source source;
    source.may_lie = x.may_lie, source.alignment = x.alignment;
    moves =
        prepare_exchange(staged, before.tensors(), after.tensors(), *pages, x.how, x.trailer, x.round_bytes, source);
    taken = pages->taken_by_stage(x.stages + x.lag());
  }
  template <typename Visit>
  void each_part_of(const staged_piece& p, Visit&& visit) {
    for (const int state : p.states) after.tensors().meet({state, p.tensor, p.where}, visit);
  }
  void take(index_t slot) {
    for (const block_span& span : taken[static_cast<std::size_t>(slot)])
      after.tensors().blocks()[span.block].commit(span.pages);
  }
  void run(const job_list& jobs, index_t entry) {
    for (std::size_t i = jobs.begin(entry); i < jobs.end(entry); ++i) jobs.run(i, after.tensors());
  }
  /// Whether a stretch lies in arrays.
  static bool lies_in(const binding& arrays, const message& m) {
    for (const bound_box& b : arrays.boxes())
      if (m.data >= b.data && m.data + m.bytes <= b.data + b.bytes()) return true;
    return false;
  }

  rank_t device;
  exchanged how;
  staged_plan staged;
  rank_storage before, after;
  std::unique_ptr<page_stages> pages;
  exchange_moves moves;
  std::vector<std::vector<block_span>> taken;
};
using parts = std::vector<std::unique_ptr<device_part>>;

parts all_parts(const change_of_layouts& change, const exchanged& x) {
  parts all;
  for (rank_t d = 0; d < change.devices(); ++d) all.push_back(std::make_unique<device_part>(change, d, x));
  return all;
}

/// What was met, so that a test can say that all of it occurred.
struct met {
  index_t messages = 0, sent_in_place = 0, came_in_place = 0, several = 0, rounds = 0, empty_rounds = 0;
  index_t came_alone = 0, came_behind = 0;  // in place: without a lag in a stage of one round; with one, in several
};

/// Messages of a device in each stage and round, by what they say.
void check_shape(const device_part& p, met& seen) {
  const exchange_moves& m = p.moves;
  const exchanged& x = p.how;
  CHECK(m.slots == x.stages);
  CHECK(m.trailer == x.trailer);
  REQUIRE(std::ssize(m.first) == x.stages + 1);
  CHECK(m.first.front() == 0);
  CHECK(m.first.back() == m.rounds.size());
  CHECK(m.placed.size() == m.in.size());
  CHECK(m.unpacked.size() == m.in.size());
  std::size_t out = 0, in = 0;
  bytes_t sent = 0;
  const arena_sizes sizes(p.staged, x.how, x.trailer, x.round_bytes);
  for (index_t k = 0; k < x.stages; ++k) {
    CHECK((m.several[static_cast<std::size_t>(k)] != 0) == sizes.several_rounds(k));
    seen.several += sizes.several_rounds(k) ? 1 : 0;
    if (x.how != exchange_as::naive) CHECK(m.first_round(k) < m.first_round(k + 1));
    for (std::size_t r = m.first_round(k); r < m.first_round(k + 1); ++r) {
      const exchange_round& round = m.rounds[r];
      CHECK(round.stage == k);
      CHECK(round.out_begin == out);
      CHECK(round.in_begin == in);
      CHECK(round.out_end >= out);
      CHECK(round.in_end >= in);
      ++seen.rounds, seen.empty_rounds += round.out_end == out && round.in_end == in ? 1 : 0;
      if (x.how == exchange_as::naive) {  // one pair meets at a time
        CHECK(round.out_end - out + round.in_end - in >= 1);
        CHECK(round.out_end - out <= 1);
        CHECK(round.in_end - in <= 1);
        if (round.out_end > out && round.in_end > in) CHECK(m.out[out].peer == m.in[in].peer);
      }
      const auto arena = r % static_cast<std::size_t>(1 + x.lag());
      for (const bool sends : {true, false}) {
        std::vector<std::pair<const std::byte*, const std::byte*>> stretches;
        const std::byte* const begin = (sends ? m.arenas.out : m.arenas.in)[x.how == exchange_as::naive ? 0 : arena];
        const bytes_t bytes = (sends ? sizes.out : sizes.in)[x.how == exchange_as::naive ? 0 : arena];
        for (std::size_t i = sends ? out : in; i < (sends ? round.out_end : round.in_end); ++i) {
          const message& one = (sends ? m.out : m.in)[i];
          CHECK(one.stage == k);
          CHECK(one.bytes % 512 == 0);
          CHECK(one.bytes > 0);
          if (x.how != exchange_as::naive) CHECK(one.bytes <= x.round_bytes);
          ++seen.messages;
          const bool in_place = device_part::lies_in((sends ? p.before : p.after).tensors(), one);
          if (!sends) CHECK((m.placed[i] != 0) == in_place);
          if (in_place) {
            CHECK(x.trailer == 0);
            CHECK(x.may_lie != in_tensors::never);
            CHECK(reinterpret_cast<std::uintptr_t>(one.data) % static_cast<std::uintptr_t>(x.alignment) == 0);
            if (!sends) CHECK((x.may_lie == in_tensors::both_ways && (x.lag() == 0 || sizes.several_rounds(k))));
            (sends ? seen.sent_in_place : seen.came_in_place) += 1;
            if (!sends)
              (x.lag() > 0 ? seen.came_behind : seen.came_alone) += x.lag() > 0 || !sizes.several_rounds(k) ? 1 : 0;
            CHECK((sends ? m.pack : m.unpack).end(static_cast<index_t>(i)) -
                      (sends ? m.pack : m.unpack).begin(static_cast<index_t>(i)) ==
                  (sends ? 0u : m.unpack.end(static_cast<index_t>(i)) - m.unpack.begin(static_cast<index_t>(i))));
          } else {
            CHECK(one.data >= begin);
            CHECK(one.data + one.bytes <= begin + bytes);
            stretches.emplace_back(one.data, one.data + one.bytes);
          }
        }
        std::sort(stretches.begin(), stretches.end());
        for (std::size_t i = 1; i < stretches.size(); ++i) CHECK(stretches[i - 1].second <= stretches[i].first);
      }
      for (std::size_t i = out; i < round.out_end; ++i) sent += m.out[i].bytes;
      out = round.out_end, in = round.in_end;
    }
  }
  CHECK(out == m.out.size());
  CHECK(in == m.in.size());
  CHECK(m.sent_bytes() == sent);
  std::set<rank_t> peers;
  for (const message& one : m.out) peers.insert(one.peer);
  for (const message& one : m.in) peers.insert(one.peer);
  CHECK(m.peers() == std::vector<rank_t>(peers.begin(), peers.end()));
}

/// Both ends of every pair have the same digest, and of every message the same two.
void check_pairs(const parts& all) {
  std::set<std::uint64_t> whose;
  std::size_t messages = 0;
  for (const auto& a : all)
    for (const auto& b : all) {
      const auto of = [](const device_part& p, rank_t peer) {
        for (const peer_digests& d : p.moves.digests)
          if (d.peer == peer) return d;
        return peer_digests{};
      };
      CHECK(of(*a, b->device).out == of(*b, a->device).in);
      std::vector<std::uint64_t> sent, came;
      bool any = false;
      for (std::size_t i = 0; i < a->moves.out.size(); ++i) {
        if (a->moves.out[i].peer != b->device) continue;
        any = true;
        if (a->how.trailer > 0) sent.push_back(a->moves.whose_out[i]);
      }
      for (std::size_t i = 0; i < b->moves.in.size(); ++i)
        if (b->moves.in[i].peer == a->device && b->how.trailer > 0) came.push_back(b->moves.whose_in[i]);
      CHECK((of(*a, b->device).out != 0) == any);
      CHECK(sent == came);
      whose.insert(sent.begin(), sent.end()), messages += sent.size();
    }
  CHECK(whose.size() == messages);
}

/// Carries all messages by hand, stage after stage, in any order of devices; what is wrong in the end.
index_t carried(parts& all, const change_of_layouts& change) {
  std::map<std::pair<rank_t, rank_t>, std::deque<std::vector<std::byte>>> under_way;
  for (index_t slot = 0; slot < all[0]->how.stages + all[0]->how.lag(); ++slot) {
    for (const auto& p : all) {
      p->take(slot);
      if (slot >= p->how.stages) continue;
      exchange_moves& m = p->moves;
      for (std::size_t r = m.first_round(slot); r < m.first_round(slot + 1); ++r) {
        for (std::size_t i = m.rounds[r].out_begin; i < m.rounds[r].out_end; ++i)
          p->run(m.pack, static_cast<index_t>(i));
        for (std::size_t i = m.rounds[r].out_begin; i < m.rounds[r].out_end; ++i) {
          if (m.trailer > 0) seal_message(m.out[i], m.whose_out[i]);
          under_way[{p->device, m.out[i].peer}].emplace_back(m.out[i].data, m.out[i].data + m.out[i].bytes);
        }
      }
      p->run(m.retain, slot);
      CHECK(m.retained_jobs(slot) == static_cast<index_t>(m.retain.end(slot) - m.retain.begin(slot)));
    }
    for (auto p = all.rbegin(); p != all.rend(); ++p) {
      if (slot >= (*p)->how.stages) continue;
      exchange_moves& m = (*p)->moves;
      // What comes of a stage of one round is written a lag later: here nothing else is, so that pages may come now.
      if ((*p)->how.lag() > 0) (*p)->take(slot + 1);
      for (std::size_t r = m.first_round(slot); r < m.first_round(slot + 1); ++r)
        for (std::size_t i = m.rounds[r].in_begin; i < m.rounds[r].in_end; ++i) {
          auto& line = under_way[{m.in[i].peer, (*p)->device}];
          REQUIRE_FALSE(line.empty());
          REQUIRE(static_cast<bytes_t>(line.front().size()) == m.in[i].bytes);
          if (m.placed[i] != 0) m.unpack.take_pages(static_cast<index_t>(i), (*p)->after.tensors());
          std::memcpy(m.in[i].data, line.front().data(), line.front().size());
          line.pop_front();
          if (m.trailer > 0) CHECK(check_message(m.in[i], m.whose_in[i]) == message_is::right);
          if (m.placed[i] == 0) (*p)->run(m.unpack, static_cast<index_t>(i));
        }
    }
  }
  for (const auto& [pair, line] : under_way) CHECK(line.empty());
  index_t wrong = 0;
  for (const auto& p : all)
    if (change.to_rank(p->device) >= 0) wrong += compare(p->after.tensors(), change.to()).wrong;
  return wrong;
}

const model tiny = make_transformer(
    {.name = "tiny", .layers = 2, .hidden = 32, .heads = 4, .groups = 2, .head_dim = 8, .ffn = 32, .vocabulary = 64});
change_of_layouts change_of(const char* from, const char* to, const placement& on = {}) {
  return layout_switch(space(tiny, parse_degrees(from)), space(tiny, parse_degrees(to)), on);
}
std::vector<change_of_layouts> some_changes() {
  std::vector<change_of_layouts> all;
  all.push_back(change_of("tp=2,pp=2", "dp=2,tp=2,zero=1"));
  all.push_back(change_of("dp=4,zero=1", "tp=4"));
  all.push_back(change_of("dp=2,zero=1", "pp=2", {.to = device_map({2, 1})}));
  all.push_back(change_of("dp=3,zero=1", "dp=2,zero=1"));
  all.push_back(change_of("dp=2", "dp=1"));  // nothing moves
  all.push_back(change_of("tp=2", "tp=2", {.to = device_map({1, 0})}));
  return all;
}

}  // namespace

TEST_CASE("in each way, in one stage and in several, in one round and in several, all messages meet and all is right") {
  met seen;
  for (const change_of_layouts& change : some_changes())
    for (const exchange_as how : {exchange_as::naive, exchange_as::buffered, exchange_as::asynchronous})
      for (const index_t stages : {1, 3})
        for (const bytes_t trailer : {bytes_t{0}, trailer_bytes})
          for (const bytes_t round_bytes : {bytes_t{4096}, usual_round_bytes}) {
            CAPTURE(static_cast<int>(how));
            CAPTURE(stages);
            CAPTURE(trailer);
            CAPTURE(round_bytes);
            parts all = all_parts(change, {how, stages, trailer, round_bytes});
            for (const auto& p : all) check_shape(*p, seen);
            check_pairs(all);
            CHECK(carried(all, change) == 0);
          }
  MESSAGE(seen.messages << " messages, " << seen.sent_in_place << " sent and " << seen.came_in_place
                        << " received in place; " << seen.several << " stages of several rounds, " << seen.rounds
                        << " rounds, " << seen.empty_rounds << " of them empty");
  CHECK(seen.messages > 1000);
  CHECK(seen.sent_in_place > 20);
  CHECK(seen.came_in_place > 20);
  CHECK(seen.came_alone > 20);
  CHECK(seen.came_behind > 20);
  CHECK(seen.several > 20);
  CHECK(seen.empty_rounds > 5);
}

TEST_CASE("messages lie in tensors as far as a wire allows, and begin at multiples of what it asks for") {
  met both, outgoing, never, aligned;
  for (const change_of_layouts& change : some_changes()) {
    const auto count = [&](met& seen, in_tensors may_lie, bytes_t alignment) {
      parts all = all_parts(change, {exchange_as::buffered, 1, 0, 4096, may_lie, alignment});
      for (const auto& p : all) check_shape(*p, seen);
      CHECK(carried(all, change) == 0);
    };
    count(both, in_tensors::both_ways, 1), count(outgoing, in_tensors::outgoing, 1);
    count(never, in_tensors::never, 1), count(aligned, in_tensors::both_ways, 4096);
  }
  CHECK(both.came_in_place > 0);
  CHECK(outgoing.sent_in_place == both.sent_in_place);
  CHECK(outgoing.came_in_place == 0);
  CHECK(never.sent_in_place + never.came_in_place == 0);
  CHECK(aligned.sent_in_place < both.sent_in_place);
  CHECK(both.messages == never.messages);
}

TEST_CASE("ends that exchange otherwise have other digests") {
  const change_of_layouts change = change_of("dp=4,zero=1", "tp=4");
  std::set<std::uint64_t> of_pair;
  int ways = 0;
  for (const exchange_as how : {exchange_as::naive, exchange_as::buffered, exchange_as::asynchronous})
    for (const index_t stages : {1, 2})
      for (const bytes_t trailer : {bytes_t{0}, trailer_bytes})
        for (const bytes_t round_bytes : {bytes_t{4096}, bytes_t{8192}}) {
          const device_part p(change, 0, {how, stages, trailer, round_bytes});
          REQUIRE_FALSE(p.moves.digests.empty());
          of_pair.insert(p.moves.digests[0].out), ++ways;
        }
  CHECK(of_pair.size() == static_cast<std::size_t>(ways));
}

TEST_CASE("ends that exchange other things have other digests, and messages of other switches other trailers") {
  std::set<std::uint64_t> of_pair, of_messages;
  std::size_t pairs = 0, messages = 0;
  const auto add = [&](const change_of_layouts& change) {
    parts all = all_parts(change, {exchange_as::buffered, 1, trailer_bytes, usual_round_bytes});
    check_pairs(all);
    for (const auto& p : all) {
      for (const peer_digests& d : p->moves.digests)
        if (d.out != 0) of_pair.insert(d.out), ++pairs;
      of_messages.insert(p->moves.whose_out.begin(), p->moves.whose_out.end());
      messages += p->moves.whose_out.size();
    }
  };
  // ranks that change places: as many bytes of other tensors, of another state, and of the other half
  const placement swapped{.to = device_map({1, 0})};
  for (const int state : {1, 2, 3}) {
    placement on = swapped;
    on.states = only(state);
    add(change_of("tp=2", "tp=2", on));
    add(change_of("pp=2", "pp=2", on));
  }
  CHECK(of_pair.size() == pairs);
  CHECK(of_messages.size() == messages);
  CHECK(pairs == 12);
}
