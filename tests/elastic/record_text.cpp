// SPDX-License-Identifier: Apache-2.0
// Records as stored text: random ones come back as they were, every field of them in use; each byte that is changed or
// missing is found out; a text that says what is no record is refused by what it says.
#include <doctest/doctest.h>

#include <algorithm>
#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <reshard/elastic/record_text.hpp>

#include "../support/dice.hpp"
#include "../support/refused.hpp"
#include "../support/tries.hpp"

using namespace reshard;
using testing::dice;

namespace {

constexpr index_t largest = std::numeric_limits<index_t>::max();

/// A name of up to 63 characters that a name may have.
member_name any_name(dice& random) {
  std::string text;
  const index_t length = random.below(4) == 0 ? random.within(1, 63) : random.within(1, 3);
  while (std::ssize(text) < length)
    if (const auto c = static_cast<char>(random.within('!', '~')); std::string("\"',\\").find(c) == std::string::npos)
      text += c;
  return text;
}
member_list any_names(dice& random, index_t least) {
  member_list list;
  const index_t n = random.within(least, 5);
  while (std::ssize(list) < n) add_members(list, {any_name(random)});
  return list;
}
index_t any_number(dice& random) {
  return random.below(8) == 0 ? largest : random.below(3) == 0 ? 0 : random.below(index_t{1} << random.within(1, 62));
}
world any_world(dice& random, index_t epoch) {
  world w{.epoch = epoch, .members = any_names(random, 1)};
  const auto n = static_cast<index_t>(w.members.size());
  (n % 2 == 0 && random.coin() ? w.layout.tp : n > 1 && random.coin() ? w.layout.pp : w.layout.dp) = n;
  w.layout.dp = n / (w.layout.tp * w.layout.pp);
  if (random.coin()) w.layout.zero = random.within(1, 2);
  if (random.below(4) == 0) w.layout.order = parse_rank_order("pp-dp-tp");
  if (random.below(4) == 0) w.layout.shard = shard_by::rows;
  w.first_step = any_number(random);
  w.cursor = any_number(random);
  w.batch = std::max<index_t>(1, any_number(random));
  return w;
}
/// Any record, and what of it is in use.
job_record any_record(dice& random, std::map<std::string, int>& seen) {
  job_record r;
  r.phase = static_cast<job_phase>(random.below(job_phases));
  r.attempt = any_number(random);
  r.boundary = any_number(random);
  r.wanted = std::max<index_t>(1, any_number(random));
  if (r.phase != job_phase::founding) {
    r.epoch = random.within(1, 1000);
    for (index_t n = makes_steps(r.phase) ? 1 : std::min(r.epoch, random.within(1, 3)); n > 0; --n)
      r.worlds.push_back(any_world(random, r.epoch - n + 1));
  }
  if (r.phase == job_phase::proposed || r.phase == job_phase::armed)
    r.proposed.push_back(any_world(random, r.epoch + 1));
  for (const member_name& who : r.concerned()) {
    if (random.coin()) continue;
    promise p{.told = {who, random.within(-1, 3), static_cast<update_stage>(random.below(3))}, .scalar = random.bits()};
    if (random.below(4) == 0) p.scalar = bits_of_scalar(-0.0);
    if (random.coin()) p.of_epoch = r.worlds[static_cast<std::size_t>(random.below(std::ssize(r.worlds)))].epoch;
    if (p.holds_state() && p.of_epoch > 0 && p.of_epoch < r.epoch && random.below(4) > 0) {
      p.torn_stages = any_number(random);
      const bool most = p.torn_stages == largest;
      p.torn_in_place = most ? 7 : random.below(p.torn_stages + 1);
      p.torn_here = most ? largest : p.torn_in_place + random.below(p.torn_stages - p.torn_in_place + 1);
      p.torn_unread = most ? largest : random.below(p.torn_stages + 1);
    }
    for (index_t n = random.below(4); n > 0 && random.coin(); --n)
      p.copies.push_back({any_name(random), random.coin() ? random.below(5) : largest});
    ++seen[p.copies.empty() ? "no copies" : "copies"];
    r.promises.push_back(p);
    ++seen["promise at stage " + std::to_string(static_cast<int>(p.told.stage))];
    ++seen[p.holds_state() ? "holds state" : "holds nothing"];
    ++seen[p.torn_in_place > 0 ? "torn" : "not torn"];
    ++seen[p.of_epoch > 0 ? "in a layout" : "in none"];
  }
  r.from_copies = r.phase == job_phase::entering && !r.promises.empty() && random.coin();
  ++seen[r.from_copies ? "from copies" : "from what is held"];
  if (random.coin()) r.gone = any_names(random, 0);
  if (random.coin()) r.request = any_name(random);
  ++seen[std::string(name(r.phase))];
  ++seen[std::to_string(r.worlds.size()) + " worlds"];
  for (const world& w : r.worlds) ++seen[to_text(w.layout).empty() ? "a layout without text" : "a layout"];
  ++seen[r.gone.empty() ? "nobody gone" : "gone"];
  ++seen[r.request.empty() ? "no request" : "a request"];
  for (const index_t n : {r.attempt, r.boundary, r.wanted}) seen["the largest number"] += n == largest ? 1 : 0;
  return r;
}

constexpr world one_of(index_t epoch) {
  return {.epoch = epoch, .members = {"a", "b"}, .layout = {.dp = 2}, .batch = 4};
}
job_record armed_record() {
  return {.phase = job_phase::armed,
          .epoch = 3,
          .attempt = 1,
          .boundary = 120,
          .wanted = 2,
          .worlds = {one_of(3)},
          .proposed = {{.epoch = 4, .members = {"b"}, .first_step = 120, .cursor = 480, .batch = 4}},
          .request = "ask#1"};
}
job_record recovering_record() {
  return {.phase = job_phase::recovering,
          .epoch = 3,
          .worlds = {one_of(2), one_of(3)},
          .promises = {{.told = {"b", 7, update_stage::scalar},
                        .scalar = bits_of_scalar(0.5),
                        .of_epoch = 2,
                        .torn_stages = 4,
                        .torn_in_place = 1,
                        .torn_here = 3,
                        .torn_unread = 2}},
          .gone = {"a"}};
}
/// A text of these words that is whole.
std::string sealed(const std::string& words) {
  const std::string rest = " " + words;
  return std::string(record_form) + " " + reshard::detail::hex_text(reshard::fnv1a(rest)) + rest;
}
/// The words of a record behind its form and digest.
std::string words_of(const job_record& r) { return stored_text(r).substr(record_form.size() + 18); }
/// What a record with a change is refused with.
template <typename Change>
std::string fault(job_record r, const Change& change) {
  change(r);
  return testing::refused([&] { static_cast<void>(stored_text(r)); });
}

}  // namespace

TEST_CASE("the text of records") {
  CHECK(words_of(job_record{}) == "founding 0 0 0 1 , ,");
  CHECK(words_of(armed_record()) == "armed 3 1 120 2 ask#1 , world 3 a,b dp=2 0 0 4 proposed 4 b tp=1 120 480 4");
  CHECK(
      words_of(recovering_record()) ==
      "recovering 3 0 0 1 , a world 2 a,b dp=2 0 0 4 world 3 a,b dp=2 0 0 4 promise b 7 2 3fe0000000000000 2 4 1 3 2");
  job_record copied = recovering_record();
  copied.phase = job_phase::entering;
  copied.from_copies = true;
  copied.promises[0].copies = {{"b", 6}, {"a", 4}};
  CHECK(words_of(copied) ==
        "entering 3 0 0 1 , a from_copies world 2 a,b dp=2 0 0 4 world 3 a,b dp=2 0 0 4 promise b 7 2 "
        "3fe0000000000000 2 4 1 3 2 copy b 6 copy a 4");
  CHECK(stored_text(job_record{}) == sealed("founding 0 0 0 1 , ,"));
  // the digest is the same on every machine and in every version of this form
  CHECK(stored_text(job_record{}).substr(0, 33) == "reshard-record-3 8e85dbe55c2b69cc");
}

TEST_CASE("a scalar's bits: a double comes back bit for bit") {
  static_assert(bits_of_scalar(1.0) == 0x3FF0000000000000u && scalar_of_bits(bits_of_scalar(0.1)) == 0.1);
  for (const std::uint64_t bits : {0x8000000000000000u, 0x7FF8000000000001u, std::uint64_t{1}, 0xFFFFFFFFFFFFFFFFu})
    CHECK(bits_of_scalar(scalar_of_bits(bits)) == bits);
}

TEST_CASE("random records come back as they were") {
  dice random(1);
  std::map<std::string, int> seen;
  const int rounds = testing::tries(2000);
  for (int i = 0; i < rounds; ++i) {
    const job_record r = any_record(random, seen);
    const std::string text = stored_text(r);
    CAPTURE(text);
    CHECK(record_of(text) == r);
    CHECK(stored_text(record_of(text)) == text);
  }
  std::string counted;
  for (const auto& [what, times] : seen) counted += what + ": " + std::to_string(times) + "; ";
  MESSAGE(rounds << " records: " << counted);
  CHECK_DRAWN(seen.size() == 33);
}

TEST_CASE("a byte that is changed, and a text that ends early, are found out") {
  int changed = 0, cut = 0;
  for (const job_record& r : {armed_record(), recovering_record(), job_record{}}) {
    const std::string text = stored_text(r);
    for (std::size_t at = 0; at < text.size(); ++at) {
      for (const int mask : {1, 2, 16, 32, 128, 255}) {
        std::string damaged = text;
        damaged[at] = static_cast<char>(damaged[at] ^ mask);
        const std::string sentence = testing::refused([&] { static_cast<void>(record_of(damaged)); });
        CAPTURE(damaged);
        CHECK(sentence.starts_with("reshard: record: the text "));
        ++changed;
      }
      CHECK_REFUSED(record_of(text.substr(0, at)), "record: the text ");
      ++cut;
    }
    CHECK_REFUSED(record_of(text + " "), "record: the text is damaged: the digest of its ");
  }
  MESSAGE(changed << " changes and " << cut << " cuts, all refused");
}

TEST_CASE("whole texts of random words: a refusal, or a record") {
  dice random(2);
  int read = 0, refused = 0;
  for (const job_record& r : {armed_record(), recovering_record()}) {
    const std::string words = words_of(r);
    for (std::size_t at = 0; at < words.size(); ++at)
      for (int i = 0; i < testing::tries(20); ++i) {
        std::string other = words;
        const index_t kind = random.below(3);
        if (kind == 0) other[at] = static_cast<char>(random.below(256));
        else if (kind == 1) other.erase(at, static_cast<std::size_t>(random.within(1, 5)));
        else other.insert(at, words.substr(static_cast<std::size_t>(random.below(std::ssize(words))), 4));
        CAPTURE(other);
        try {
          const job_record got = record_of(sealed(other));
          CHECK(record_of(stored_text(got)) == got);
          ++read;
        } catch (const refusal& sentence) {
          CHECK(std::string(sentence.what()).starts_with("reshard: "));
          ++refused;
        }
      }
  }
  MESSAGE(read << " read, " << refused << " refused");
  CHECK(read > 0);
  CHECK(refused > 0);
}

TEST_CASE("texts that are none of a record") {
  const auto said = [](const std::string& text) {
    return testing::refused([&] { static_cast<void>(record_of(text)); });
  };
  CHECK(said("") == "reshard: record: the text begins with '', and a stored one with reshard-record-3");
  CHECK(said("reshard-record-4 x") ==
        "reshard: record: the text begins with 'reshard-record-4', and a stored one with reshard-record-3");
  CHECK(said("\n\xff" + std::string(50, 'x') + " y") == "reshard: record: the text begins with '??" +
                                                            std::string(38, 'x') +
                                                            "..', and a stored one with "
                                                            "reshard-record-3");
  CHECK(said("reshard-record-3") ==
        "reshard: record: the text is damaged: the digest of its 0 characters is cbf29ce484222325, and it says");
  CHECK(said(sealed("idling 0")) ==
        "reshard: record: the phase is 'idling'; it is founding, idle, proposed, armed, entering, recovering, waiting, "
        "lost, done");
  for (const char* const bad : {"-", "", "x", "1x", "+1", "9223372036854775808", "-9223372036854775809"})
    CHECK(said(sealed("idle " + std::string(bad) + " 1")) ==
          "reshard: record: the epoch is '" + std::string(bad) + "'; it is a whole number of 64 bits");
  CHECK(said(sealed("idle -9223372036854775808 1")) ==
        "reshard: record: the boundary is ''; it is a whole number of 64 bits");
  CHECK(said(sealed("founding 0 0 0 1 a,b ,")) == "reshard: record: the request is a and b; it is one name");
  CHECK(said(sealed("founding 0 0 0 1 , a,")) ==
        "reshard: record: who is gone is 'a,': name: a name has 1 to 63 characters, and this one has 0");
  CHECK(said(sealed("founding 0 0 0 1 , , worlds")) == "reshard: record: 'worlds' stands behind its end");
  CHECK(said(sealed("idle 1 0 0 1 , , world 1 a dq=1 0 0 1")).starts_with("reshard: layout: 'dq' is no key"));
  CHECK(said(sealed("idle 1 0 0 1 , , world 1 a tp=1 0 0 1 promise a 1 3 0 1 0 0")) ==
        "reshard: record: the stage of a promise is '3'; it is 0, 1, 2");
  CHECK(said(sealed("idle 1 0 0 1 , , world 1 a tp=1 0 0 1 promise a 1 2 0 1 0 0")) ==
        "reshard: record: the scalar of a promise is '0'; it is 16 digits, 0 to f");
}

TEST_CASE("what is no record is neither stored nor read") {
  const job_record armed = armed_record(), recovering = recovering_record();
  CHECK(fault(armed, [](job_record& r) { r.attempt = -1; }) ==
        "reshard: record: epoch 3, attempt -1, boundary 120 and 2 members wanted; numbers count from 0, and a job has "
        "at least 1 member");
  CHECK(fault(armed, [](job_record& r) { r.wanted = 0; }).find("and 0 members wanted") != std::string::npos);
  CHECK(fault(armed, [](job_record& r) { r.epoch = -1; }).find("epoch -1, ") != std::string::npos);
  CHECK(fault(armed, [](job_record& r) { r.boundary = -1; }).find("boundary -1 ") != std::string::npos);
  CHECK(fault({}, [](job_record& r) { r.phase = job_phase::idle; }) ==
        "reshard: record: it is idle in epoch 0; founding is epoch 0, and only that");
  CHECK(fault(armed, [](job_record& r) { r.phase = job_phase::founding; }).find("it is founding in epoch 3") !=
        std::string::npos);
  CHECK(fault(recovering, [](job_record& r) { std::swap(r.worlds[0], r.worlds[1]); }) ==
        "reshard: record: a world of epoch 2 comes after one of 3");
  CHECK(fault(recovering, [](job_record& r) { r.worlds.pop_back(); }) ==
        "reshard: record: its last world is of epoch 2, and it is of epoch 3");
  CHECK(fault(recovering, [](job_record& r) { r.worlds[0].members[1] = "a"; }) ==
        "reshard: world: ranks 0 and 1 are both a; a member has one rank");
  CHECK(fault(recovering, [](job_record& r) { r.phase = job_phase::idle; }) ==
        "reshard: record: state may lie in 2 worlds, and it is idle");
  CHECK(fault(armed, [](job_record& r) { r.proposed.clear(); }) ==
        "reshard: record: 0 worlds are proposed, and it is armed");
  CHECK(fault(armed, [](job_record& r) { r.phase = job_phase::idle; }) ==
        "reshard: record: 1 worlds are proposed, and it is idle");
  CHECK(fault(armed, [](job_record& r) { r.proposed[0].epoch = 5; }) ==
        "reshard: record: a world of epoch 5 is proposed, and it is of epoch 3");
  CHECK(fault(armed, [](job_record& r) { r.proposed[0].batch = 0; }) ==
        "reshard: world: a batch of 0 samples; it has at least 1");
  CHECK(fault(recovering, [](job_record& r) { r.gone.push_back({}); }) ==
        "reshard: record: of 2 members that are gone one has no name");
  CHECK(fault(armed, [](job_record& r) {
          r.proposed[0].layout = parse_degrees("string=Et*2mL");
          r.proposed[0].layout.vpp = 2;
        }) == "reshard: layout: string=EttmL is not all that it says; vpp is what its string makes it");
  CHECK(fault(recovering, [](job_record& r) { r.promises.push_back(r.promises[0]); }) ==
        "reshard: record: b promises twice; a member has one promise");
  CHECK(fault(recovering, [](job_record& r) { r.promises[0].told.member = "c"; }) ==
        "reshard: record: c promises, and is in no world that state may lie in");
  CHECK(fault(recovering, [](job_record& r) { r.promises[0].told.version = -2; }) ==
        "reshard: record: b promises version -2; versions count from 0, and nothing is -1");
  CHECK(fault(recovering, [](job_record& r) { r.promises[0].of_epoch = 1; }) ==
        "reshard: record: b holds the layout of epoch 1, and no world is of that");
  for (const index_t placed : {-1, 4})
    CHECK(fault(recovering, [&](job_record& r) { r.promises[0].torn_in_place = placed; }) ==
          "reshard: record: b has 3 of 4 stages in place, and knows of " + std::to_string(placed) + " everywhere");
  CHECK(fault(recovering, [](job_record& r) {
          r.promises[0].copies = {{"a", 0}, {{}, 3}};
        }) == "reshard: record: b has a copy of version 3 of nobody; a copy is of a member, and versions count from 0");
  CHECK(fault(recovering, [](job_record& r) {
          r.promises[0].copies = {{"a", -1}};
        }) == "reshard: record: b has a copy of version -1 of a; a copy is of a member, and versions count from 0");
  CHECK(fault(recovering, [](job_record& r) { r.from_copies = true; }) ==
        "reshard: record: its world begins with copies, and it is recovering with 1 promises; copies are told by "
        "promises, and begin a world that is entered");
  CHECK(fault(recovering, [](job_record& r) {
          r.phase = job_phase::entering;
          r.from_copies = true;
          r.promises.clear();
        }).find("it is entering with 0 promises") != std::string::npos);
  CHECK_REFUSED(record_of(sealed("idle 2 0 0 1 , , world 1 a tp=1 0 0 1")), "its last world is of epoch 1");
}
