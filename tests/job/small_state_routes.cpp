// SPDX-License-Identifier: Apache-2.0
// The routes of small state: by hand where each sentence of a refusal counts, and of random directories against the
// sets of the definition, written out.
#include <doctest/doctest.h>

#include <set>
#include <string>
#include <vector>

#include <reshard/job/detail/small_state_routes.hpp>

#include "../support/dice.hpp"
#include "../support/refused.hpp"

using namespace reshard;

namespace {

using directories = std::vector<blob_directory>;

const blob_id step{"step"}, rng0{"rng", "0"}, rng1{"rng", "1"}, rng2{"rng", "2"};

bool has(const blob_directory& d, const blob_id& id) {
  for (const blob_entry& e : d.has)
    if (e.id == id) return true;
  return false;
}
bool asks(const blob_directory& d, const blob_id& id) {
  for (const blob_id& w : d.wants)
    if (d.takes_part && w == id) return true;
  return false;
}

/// The definition of small_state_routes; nothing in it is to be refused.
std::vector<blob_route> defined(const directories& of_device) {
  std::set<blob_id> ids;
  for (const blob_directory& d : of_device)
    for (const blob_entry& e : d.has) ids.insert(e.id);
  std::vector<blob_route> routes;
  for (const blob_id& id : ids) {
    blob_route route;
    bool found = false, asked = id.key.empty();
    for (std::size_t d = 0; d < of_device.size(); ++d) {
      asked = asked || asks(of_device[d], id);
      const bool due = of_device[d].takes_part && (id.key.empty() || asks(of_device[d], id));
      if (due && !has(of_device[d], id)) route.dst.push_back(static_cast<rank_t>(d));
      for (const blob_entry& e : of_device[d].has)
        if (!found && e.id == id) found = true, route.what = e, route.src = static_cast<rank_t>(d);
    }
    if (asked) routes.push_back(route);
  }
  return routes;
}

/// How many times routes_of takes breath.
int breaths(const directories& of_device) {
  int count = 0;
  const auto add = detail::sink<>::of([&count] { ++count; });
  static_cast<void>(detail::routes_of(of_device, add));
  return count;
}

/// A blob of so many bytes, name and key not counted.
blob_entry long_entry(const std::string& name, bytes_t bytes, const std::string& key = {}) {
  return {{name, key}, bytes, 7};
}

}  // namespace

TEST_CASE("what is the same on all goes to each that takes part and has it not, from the lowest that has it") {
  const blob_entry e{step, 8, 42};
  const directories all = {{.takes_part = false}, {}, {.has = {e}}, {}, {.has = {e}}, {}, {.takes_part = false}};
  const std::vector<blob_route> expected = {{e, 2, {1, 3, 5}}};
  CHECK(small_state_routes(all) == expected);
  CHECK(unasked_blobs(all).empty());
  const std::vector<blob_route> nowhere = {{e, 0, {}}};
  CHECK(small_state_routes({{.has = {e}}}) == nowhere);
  CHECK(small_state_routes({}).empty());
  CHECK(small_state_routes({{}, {}}).empty());
  CHECK(e.counted() == 12);
  CHECK(blob_entry{rng1, 8, 42}.counted() == 12);
}

TEST_CASE("what is a rank's goes to those that ask for it, and nowhere where none does that takes part") {
  const blob_entry zero{rng0, 4, 1}, one{rng1, 4, 2}, two{rng2, 5, 3};
  const directories all = {{.has = {one}, .wants = {rng0}},
                           {.has = {zero, two}, .wants = {rng1, rng1}},
                           {.takes_part = false, .has = {one}, .wants = {rng2}},
                           {.has = {one}, .wants = {rng1, rng0}}};
  const std::vector<blob_route> expected = {{zero, 1, {0, 3}}, {one, 0, {1}}};
  CHECK(small_state_routes(all) == expected);
  CHECK(unasked_blobs(all) == std::vector<blob_id>{rng2});
  CHECK(unasked_blobs({{.has = {one, zero}}, {.has = {{step, 1, 1}}}}) == std::vector<blob_id>{rng0, rng1});
}

TEST_CASE("bytes that differ under one name are refused with both devices and how many agree") {
  const blob_entry e{step, 8, 42}, longer{step, 9, 42}, otherwise{step, 8, 43};
  CHECK_REFUSED(small_state_routes({{}, {.has = {e}}, {.has = {e}}, {.has = {longer}}}),
                "small state step differs: device 1 has 8 bytes of hash 42, device 3 has 9 bytes of hash 42; 2 of 3 "
                "that have it agree with device 1");
  CHECK_REFUSED(small_state_routes({{.has = {e}}, {.has = {otherwise}}, {.takes_part = false, .has = {e}}}),
                "device 0 has 8 bytes of hash 42, device 1 has 8 bytes of hash 43; 2 of 3 that have it agree with");
  CHECK_REFUSED(small_state_routes({{.has = {{rng0, 1, 1}}}, {.has = {{rng0, 1, 2}}}}), "small state rng[0] differs");
}

TEST_CASE("a name of two rules is refused, wherever it stands among others") {
  const std::string words =
      "small state rng is the same on all devices for device 1, and per rank (0) for device 0; a name has one rule";
  const blob_entry same{{"rng"}, 8, 1}, keyed{rng0, 8, 1}, before{{"a"}, 1, 1}, behind{{"z"}, 1, 1};
  CHECK_REFUSED(small_state_routes({{.has = {keyed}}, {.has = {same}}}), words);
  CHECK_REFUSED(small_state_routes({{.has = {before, keyed, behind}}, {.has = {behind, same}}}), words);
  CHECK(small_state_routes({{.has = {{{"rn"}, 8, 1}, keyed, {rng1, 8, 1}}}}).size() == 1);
}

TEST_CASE("what nobody has is refused with who asks, and with what there is of that name") {
  const blob_entry zero{rng0, 4, 1}, two{rng2, 5, 3}, other{{"seed", "0"}, 4, 1}, same{step, 1, 1};
  const auto asked = [&](const blob_id& id) {
    return directories{{.has = {{{"a", "x"}, 1, 1}, zero, two}}, {.has = {same, other}}, {.wants = {rng0, id}}};
  };
  CHECK_REFUSED(small_state_routes(asked(rng1)),
                "device 2 asks for small state rng[1], which no device has; there are 2 keys, the first of them 0");
  CHECK_REFUSED(small_state_routes(asked({"seed", "1"})), "there are 1 keys, the first of them 0");
  CHECK_REFUSED(small_state_routes(asked({"quiet", "1"})),
                "device 2 asks for small state quiet[1], and no device has any quiet");
  CHECK_REFUSED(small_state_routes(asked({"zz", "1"})), "no device has any zz");
  CHECK_REFUSED(small_state_routes(asked({"step", "1"})),
                "device 2 asks for small state step[1], and step is the same on all devices");
  CHECK(small_state_routes({{.takes_part = false, .wants = {rng1}}}).empty());
}

TEST_CASE("a device may have most_small_bytes afterwards and not one more, names and keys counted") {
  const bytes_t half = most_small_bytes / 2;
  const auto with = [&](bytes_t more) {
    return directories{{.has = {long_entry("a", half - 1)}}, {.has = {long_entry("b", half - 1 + more)}}};
  };
  CHECK(small_state_routes(with(0)).size() == 2);
  CHECK_REFUSED(small_state_routes(with(1)), "device 0 would have 1048577 bytes of small state; at most 1048576 a");
  const auto keyed = [&](bytes_t more) {
    return directories{{.takes_part = false, .has = {long_entry("a", half - 1), long_entry("r", half, "0")}},
                       {},
                       {.wants = {{"s", "1"}}},
                       {.has = {long_entry("s", half - 2 + more, "1")}}};
  };
  CHECK(small_state_routes(keyed(0)).size() == 2);
  CHECK(small_state_routes(keyed(0))[1].dst == std::vector<rank_t>{2});
  CHECK_REFUSED(small_state_routes(keyed(1)), "device 2 would have 1048577 bytes");
  // what it had and keeps counts, what nobody asks for does not
  CHECK(small_state_routes({{.has = {long_entry("r", most_small_bytes, "0")}}}).empty());
  CHECK_REFUSED(small_state_routes({{.has = {long_entry("r", most_small_bytes, "0")}, .wants = {{"r", "0"}}}}),
                "device 0 would have 1048578 bytes");
}

TEST_CASE("breath is taken at every 1024th entry, name and wish") {
  const auto of = [](int names, bool asked) {
    directories all(2);
    for (int i = 0; i < names; ++i) {
      all[0].has.push_back({{"r", std::to_string(i)}, 1, 1});
      if (asked) all[1].wants.push_back({"r", std::to_string(i)});
    }
    return all;
  };
  // one draw for an entry, two for its name, one for a wish
  CHECK(breaths(of(341, false)) == 0);
  CHECK(breaths(of(342, false)) == 1);
  CHECK(breaths(of(682, false)) == 1);
  CHECK(breaths(of(683, false)) == 2);
  CHECK(breaths(of(255, true)) == 0);
  CHECK(breaths(of(256, true)) == 1);
  CHECK(breaths(of(512, true)) == 2);
}

TEST_CASE("random directories: the routes and what is left are the sets of the definition") {
  testing::dice random(61);
  int routed = 0, left = 0, several = 0;
  for (int n = testing::thrown(300); n > 0; --n) {
    directories all(static_cast<std::size_t>(random.within(1, 6)));
    std::set<blob_id> there;
    for (blob_directory& d : all) {
      d.takes_part = random.below(4) != 0;
      for (const char* name : {"a", "b"})
        if (random.below(3) == 0) d.has.push_back({{name}, 8, 5});
      for (const char* key : {"0", "1", "2", "3"})
        if (random.below(4) == 0) d.has.push_back({{"r", key}, 4, 6});
      for (const blob_entry& e : d.has)
        if (!e.id.key.empty()) there.insert(e.id);
    }
    std::set<blob_id> unasked = there;
    for (blob_directory& d : all)
      for (const blob_id& id : there)
        if (random.below(4) == 0) {
          d.wants.push_back(id);
          if (d.takes_part) unasked.erase(id);
        }
    const std::vector<blob_route> routes = small_state_routes(all);
    CHECK(routes == defined(all));
    CHECK(unasked_blobs(all) == std::vector<blob_id>(unasked.begin(), unasked.end()));
    routed += static_cast<int>(routes.size()), left += static_cast<int>(unasked.size());
    for (const blob_route& r : routes) several += r.dst.size() > 1 ? 1 : 0;
  }
  CHECK_DRAWN(routed > 300);
  CHECK_DRAWN(left > 100);
  CHECK_DRAWN(several > 100);
}
