// SPDX-License-Identifier: Apache-2.0
// Requests that are taken up: the worlds they lead to and every reason against one, by hand; and random requests
// against rules written a second time: who is where, the layout by looking at each, and that the record takes it.
#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <reshard/elastic/next.hpp>
#include <reshard/elastic/take_up.hpp>
#include <reshard/model/transformer.hpp>

#include "../support/dice.hpp"
#include "../support/tries.hpp"
#include "../support/words.hpp"

using namespace reshard;
using testing::dice;

namespace {

const model tiny = make_transformer(
    {.name = "tiny", .layers = 4, .hidden = 8, .heads = 4, .groups = 4, .head_dim = 2, .ffn = 8, .vocabulary = 8});

world world_of(member_list members, const char* layout, index_t batch = 8) {
  return {.epoch = 3,
          .members = std::move(members),
          .layout = parse_degrees(layout),
          .first_step = 10,
          .cursor = 80,
          .batch = batch};
}
taken_request taken(const std::string& request, const world& now, const elastic_policy& p = {}) {
  return take_up(parse_request("q", testing::words_of(request)), now, {"x", "y"}, p, tiny);
}
/// What it leads to, in a line.
std::string led(const std::string& request, const world& now, const elastic_policy& p = {}) {
  const taken_request t = taken(request, now, p);
  CHECK((t.answer ? 1 : 0) + (t.to ? 1 : 0) + (t.finishes ? 1 : 0) == 1);
  return t.answer ? to_text(*t.answer) : t.to ? to_text(*t.to) : "finishes";
}
elastic_policy varying(varied_axes axes, index_t min = 1) {
  elastic_policy p;
  p.axes = std::move(axes);
  p.min = min;
  return p;
}

const elastic_policy by_dp = varying({layout_key::dp});

}  // namespace

TEST_CASE("the fewest bytes are those of the states that the job has") {
  const job_request leave = parse_request("q", testing::words_of("leave a,b"));
  const world now = world_of({"a", "b", "c", "d"}, "dp=4,zero=1");
  // each of the four has all parameters, and a quarter of what the optimizer has
  const state_list parameters{{"param", dtype::bf16, 3}};
  CHECK(to_text(take_up(leave, now, {}, {}, tiny).to->layout) == "pp=2,zero=1");
  CHECK(to_text(take_up(leave, now, {}, {}, tiny, parameters).to->layout) == "dp=2,zero=1");
}

TEST_CASE("who joins comes behind, who leaves makes no gap, who replaces takes the rank") {
  const world now = world_of({"a", "b"}, "dp=2");
  CHECK(led("join y", now, by_dp) == "epoch 4: a, b and y; dp=3; from step 10, sample 80, in batches of 8");
  CHECK(led("join y,x", now, by_dp) == "epoch 4: a, b, y and x; dp=4; from step 10, sample 80, in batches of 8");
  CHECK(led("leave a", now) == "epoch 4: b; tp=1; from step 10, sample 80, in batches of 8");
  CHECK(led("leave b,d", world_of({"a", "b", "c", "d"}, "dp=4"), by_dp) ==
        "epoch 4: a and c; dp=2; from step 10, sample 80, in batches of 8");
  CHECK(led("replace a x", now) == "epoch 4: x and b; dp=2; from step 10, sample 80, in batches of 8");
  CHECK(led("replace b x", world_of({"a", "b"}, "tp=2")) ==
        "epoch 4: a and x; tp=2; from step 10, sample 80, in batches of 8");
  CHECK(led("layout tp=2", now) == "epoch 4: a and b; tp=2; from step 10, sample 80, in batches of 8");
  CHECK(led("batch 3", now) == "epoch 4: a and b; dp=2; from step 10, sample 80, in batches of 3");
  CHECK(led("finish", now) == "finishes");
}

TEST_CASE("the layout of another number: the fewest bytes move") {
  // half of the layers of each go to whoever comes, and nobody's half is cut
  CHECK(taken("join x,y", world_of({"a", "b"}, "tp=2")).to->layout == degrees{.tp = 2, .pp = 2});
  CHECK(taken("leave b", world_of({"a", "b"}, "tp=2")).to->layout == degrees{});
  CHECK(taken("leave c,d", world_of({"a", "b", "c", "d"}, "tp=2,dp=2")).to->layout == degrees{.tp = 2});
  CHECK(taken("leave b,d", world_of({"a", "b", "c", "d"}, "tp=2,dp=2")).to->members == member_list{"a", "c"});
  // what does not vary is as it was
  CHECK(taken("join x,y", world_of({"a", "b"}, "dp=2,zero=1"), by_dp).to->layout == degrees{.dp = 4, .zero = 1});
}

TEST_CASE("what is so already is done") {
  const world now = world_of({"a", "b"}, "dp=2");
  for (const char* const request :
       {"join a", "join b,a", "leave z", "leave x,z", "replace z a", "layout dp=2", "batch 8"})
    CHECK(led(request, now) == "done");
}

TEST_CASE("what is refused, and by which sentence") {
  const world now = world_of({"a", "b"}, "dp=2");
  CHECK(led("join z", now) == "refused: join: z is not registered; spares are: x and y");
  CHECK(led("join x,a", now) == "refused: join: a is in the world already");
  CHECK(led("leave a,z", now) == "refused: leave: z is not in the world, which is a and b");
  CHECK(led("leave a,b", now) == "refused: leave: 0 members would be left, and a world has at least 1");
  CHECK(led("leave a", now, varying({}, 2)) == "refused: leave: 1 member would be left, and a world has at least 2");
  CHECK(led("leave a", now, varying({}, -5)).starts_with("epoch 4"));
  for (const rank_t min : {0, -5})
    CHECK(led("leave a,b", now, varying({}, min)) ==
          "refused: leave: 0 members would be left, and a world has at least 1");
  CHECK(led("replace z x", now) == "refused: replace: z is not in the world, which is a and b");
  CHECK(led("replace a z", now) == "refused: replace: z is not registered; spares are: x and y");
  CHECK(led("replace a b", now) == "refused: replace: b is in the world already");
  CHECK(led("layout dp=3", now) == "refused: layout: dp=3 has 3 ranks, and the world has 2 members");
  CHECK(led("layout tp=1", now) == "refused: layout: tp=1 has 1 ranks, and the world has 2 members");
  CHECK(led("layout tp=3", world_of({"a", "b", "c"}, "dp=3"))
            .starts_with("refused: 4 attention heads do not divide by tp=3"));
  CHECK(led("layout dp=2", world_of({"a", "b"}, "tp=2", 1)) ==
        "refused: batch: 1 samples over 2 ranks; each has at least one, so at most 1 ranks");
  CHECK(led("batch 1", now) == "refused: batch: 1 samples over 2 ranks; each has at least one, so at most 1 ranks");
  CHECK(led("join x", world_of({"a", "b"}, "dp=2", 2), by_dp) ==
        "refused: join: no layout of 3 ranks is legal and leaves each data-parallel rank one of 2 samples");
  CHECK(led("join x", world_of({"a", "b"}, "tp=2"), varying({layout_key::tp})) ==
        "refused: join: no layout of 3 ranks is legal and leaves each data-parallel rank one of 8 samples");
  CHECK(taken("join x", world_of({"a"}, "", 1)).to->layout.dp == 1);  // dp=2 would leave one without
  CHECK(to_text(*take_up({}, now, {}, {}, tiny).answer) == "refused: request: finish has no id; its asker chooses one");
}

TEST_CASE("random requests: by rules written a second time") {
  dice random(3);
  std::map<std::string, int> seen;
  const int rounds = testing::tries(600);
  for (int i = 0; i < rounds; ++i) {
    const rank_t n = random.within(1, 5);
    const std::vector<degrees> all = legal_layouts(tiny, {}, n, default_axes(tiny));
    world now{.epoch = random.within(1, 9), .first_step = 4, .cursor = 40, .batch = random.within(1, 8)};
    now.layout = all[static_cast<std::size_t>(random.below(std::ssize(all)))];
    now.batch = std::max(now.batch, now.layout.dp);
    for (rank_t r = 0; r < n; ++r) now.members.push_back(std::string(1, static_cast<char>('a' + r)));
    const member_list spares = random.below(8) == 0 ? member_list{"x"} : member_list{"x", "y"};
    const elastic_policy p = varying({}, random.within(1, 2));
    job_request q{.id = "q", .kind = static_cast<request_kind>(random.below(6))};
    const auto anybody = [&](bool spare) -> member_name {
      if (random.below(6) == 0) return "z";
      if (spare && random.below(3) != 0) return random.coin() ? "x" : "y";
      return now.members[static_cast<std::size_t>(random.below(n))];
    };
    const bool moves = q.kind == request_kind::join || q.kind == request_kind::leave;
    for (index_t k = moves ? random.within(1, 2) : 0; k > 0; --k)
      add_members(q.members, {anybody(q.kind == request_kind::join)});
    if (q.kind == request_kind::replace) {
      q.members = {anybody(false)};
      while (q.members.size() < 2) add_members(q.members, {anybody(true)});
    }
    if (q.kind == request_kind::layout) {
      const rank_t ranks = random.below(4) == 0 ? random.within(1, 5) : n;
      q.layout = random.below(4) == 0 ? degrees{.tp = ranks} : degrees{.dp = ranks};
    }
    if (q.kind == request_kind::batch) q.batch = random.within(1, 8);

    // who is to be there
    member_list members, in;
    bool known = true;
    for (const member_name& one : q.members) {
      if (now.has(one)) in.push_back(one);
      known = known && (now.has(one) || has_member(spares, one));
    }
    for (const member_name& one : now.members) {
      if (q.kind == request_kind::leave && has_member(q.members, one)) continue;
      members.push_back(q.kind == request_kind::replace && one == q.members[0] ? q.members[1] : one);
    }
    if (q.kind == request_kind::join)
      for (const member_name& one : q.members) members.push_back(one);
    const auto size = static_cast<rank_t>(members.size());

    const taken_request t = take_up(q, now, spares, p, tiny);
    CAPTURE(to_text(now));
    CAPTURE(to_text(q));
    CAPTURE(t.answer ? to_text(*t.answer) : "");
    CHECK(t.finishes == (q.kind == request_kind::finish));
    ++seen[std::string(name(q.kind)) + (t.to                         ? " made"
                                        : t.finishes                 ? ""
                                        : t.answer->sentence.empty() ? " so"
                                                                     : " refused")];
    bool is_so = false, can = false;
    std::vector<degrees> layouts;
    switch (q.kind) {
      case request_kind::join:
      case request_kind::leave:
        is_so = in.size() == (q.kind == request_kind::join ? q.members.size() : 0u);
        can = q.kind == request_kind::join ? in.empty() && known : in.size() == q.members.size() && size >= p.min;
        if (can && size > 0)
          for (const degrees& d : legal_layouts(tiny, now.layout, size, default_axes(tiny)))
            if (d.dp <= now.batch) layouts.push_back(d);
        break;
      case request_kind::replace:
        is_so = in == member_list{q.members[1]};
        can = in == member_list{q.members[0]} && known;
        layouts = {now.layout};
        break;
      case request_kind::layout:
        is_so = *q.layout == now.layout;
        can = q.layout->world() == n && is_legal(tiny, *q.layout) && q.layout->dp <= now.batch;
        layouts = {*q.layout};
        break;
      case request_kind::batch:
        is_so = q.batch == now.batch;
        can = q.batch >= now.layout.dp;
        layouts = {now.layout};
        break;
      case request_kind::finish: continue;
    }
    CHECK(t.answer.has_value() == (is_so || !can || layouts.empty()));
    CHECK((t.answer && t.answer->kind == answer_kind::done) == is_so);
    if (!t.to) continue;
    require_world(*t.to);
    CHECK(t.to->members == members);
    CHECK(std::find(layouts.begin(), layouts.end(), t.to->layout) != layouts.end());
    CHECK(t.to->epoch == now.epoch + 1);
    CHECK(t.to->batch == (q.kind == request_kind::batch ? q.batch : now.batch));
    // no other legal layout moves less
    std::vector<rank_t> devices;
    for (rank_t r = 0, came = n; r < size; ++r) {
      const rank_t was = now.rank_of(members[static_cast<std::size_t>(r)]);
      devices.push_back(was < 0 ? came++ : was);
    }
    const auto moved = [&](const degrees& to) {
      return moved_bytes(layout_switch(space(tiny, now.layout), space(tiny, to), {.to = device_map(devices)}));
    };
    for (const degrees& other : layouts) CHECK(moved(t.to->layout) <= moved(other));
    // the record takes it, and in that world the same request is done
    job_record r{.phase = job_phase::idle, .epoch = now.epoch, .worlds = {now}};
    job_event e = event_about(r, job_event_kind::ask);
    e.to = {*t.to};
    CHECK(why_ignored(r, e).empty());
    const taken_request again = take_up(q, *t.to, {}, p, tiny);
    CHECK(again == taken_request{.answer = request_answer{}});
  }
  std::string counted;
  for (const auto& [what, times] : seen) counted += what + ": " + std::to_string(times) + "; ";
  MESSAGE(rounds << " requests: " << counted);
  CHECK_DRAWN(seen.size() == 16);
}
