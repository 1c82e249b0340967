// SPDX-License-Identifier: Apache-2.0
// Switches over threads: random layouts of tiny models, in one stage and in many, every element compared and every page
// counted; refusals before anything is touched; failures that reach the caller.
#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstdio>
#include <map>
#include <string>
#include <vector>

#include <reshard/transport/forwarding.hpp>
#include <reshard/transport/thread_group.hpp>

#include "../support/dice.hpp"
#include "../support/refused.hpp"
#include "../support/switches.hpp"
#include "../support/tries.hpp"

using namespace reshard;
using testing::filled_by, testing::refused, testing::switch_in_memory;

namespace {
constexpr patience soon = std::chrono::seconds(60);

/// What a device's pages exceed max(before, after) by in S stages, by looking at every page of every piece: one of FROM
/// is there until the last stage that reads a byte of it, one of TO from the first that writes one.
bytes_t excess_in(const switch_in_memory& s, std::size_t d, index_t stages) {
  const staged_plan p = stage_plan(make_plan(s.change, static_cast<rank_t>(d)), s.change, stages);
  const auto each_page = [](const binding& of, const tensor_box& t, auto&& visit) {
    std::uintptr_t last = 0;  // neighbours lie in one page
    const auto visit_once = [&](std::uintptr_t page) {
      if (page != last) visit(last = page);
    };
    of.meet(t, [&](const bound_box& b) {  // strided, so element by element
      for (index_t x = 0; x < b.where.dim[0].size(); ++x)
        for (index_t y = 0; y < b.where.dim[1].size(); ++y)
          for (index_t z = 0; z < b.where.dim[2].size(); ++z) {
            const auto at =
                reinterpret_cast<std::uintptr_t>(b.data) +
                static_cast<std::uintptr_t>((x * b.stride[0] + y * b.stride[1] + z * b.stride[2]) * b.element_bytes);
            visit_once(at / 4096), visit_once((at + static_cast<std::uintptr_t>(b.element_bytes) - 1) / 4096);
          }
    });
  };
  const auto pages_of = [&](const binding& of, index_t stage) {
    std::map<std::uintptr_t, index_t> pages;
    for (const bound_box& b : of.boxes())
      each_page(of, {b.state, b.tensor, b.where}, [&](std::uintptr_t page) { pages[page] = stage; });
    return pages;
  };
  std::map<std::uintptr_t, index_t> last = pages_of(s.before[d].tensors(), -1),
                                    first = pages_of(s.after[d].tensors(), stages);
  for (const std::vector<staged_piece>* list : {&p.sends, &p.receives, &p.retains})
    for (const staged_piece& piece : *list)
      for (const int state : piece.states) {
        const tensor_box t{state, piece.tensor, piece.where};
        if (list != &p.receives)
          each_page(s.before[d].tensors(), t, [&](std::uintptr_t g) { last[g] = std::max(last[g], piece.stage); });
        if (list != &p.sends)
          each_page(s.after[d].tensors(), t, [&](std::uintptr_t g) { first[g] = std::min(first[g], piece.stage); });
      }
  const std::size_t floor = std::max(last.size(), first.size());
  std::size_t most = floor;
  for (index_t k = 0; k < stages; ++k)
    most = std::max(most, static_cast<std::size_t>(
                              std::count_if(last.begin(), last.end(), [&](const auto& g) { return g.second >= k; }) +
                              std::count_if(first.begin(), first.end(), [&](const auto& g) { return g.second <= k; })));
  return static_cast<bytes_t>(most - floor) * 4096;
}

/// The least of 1, 2, 4 .. at which every device keeps the budget.
index_t least_stages(const switch_in_memory& s, bytes_t budget) {
  for (index_t stages = 1; true; stages *= 2) {
    bool keeps = true;
    for (std::size_t d = 0; keeps && d < s.devices(); ++d) keeps = excess_in(s, d, stages) <= budget;
    if (keeps || stages == most_stages) return stages;
  }
}

}  // namespace

TEST_CASE("random switches in one stage") {
  oracle::generator cases(testing::seed());
  for (int i = 0; i < testing::tries(120); ++i) {
    const oracle::switch_case c = cases.next_switch();
    INFO(c.describe());
    switch_in_memory s(c);
    thread_group world(s.change.devices(), soon);
    s.run(world);
  }
}

TEST_CASE("random switches in many stages") {
  oracle::generator cases(testing::seed() + 1);
  testing::dice random(92);
  std::map<index_t, int> seen;
  index_t stages = 0;
  for (int i = 0; i < testing::tries(60); ++i) {
    const oracle::switch_case c = cases.next_switch();
    INFO(c.describe());
    switch_in_memory s(c);
    // 1 byte is refused, and the least that does takes many stages
    const bytes_t budget = i % 6 == 0 ? 1 : i % 2 == 0 ? 192_KiB : random.within(1, 64) * 16_KiB;
    const index_t of_this = s.run_in_stages<thread_group>(budget);
    if (of_this <= 64 || !testing::under_sanitizer()) CHECK(of_this == least_stages(s, s.kept_budget));
    stages += of_this, ++seen[of_this];
  }
  for (const auto& [count, times] : seen) std::printf("%d in %d stages\n", times, static_cast<int>(count));
  CHECK_DRAWN(stages > testing::tries(60) * 10);
  CHECK_DRAWN(seen.size() > 1);
}

namespace {
model tiny() {
  return make_transformer({.name = "tiny",
                           .layers = 4,
                           .hidden = 64,
                           .heads = 4,
                           .groups = 4,
                           .head_dim = 16,
                           .ffn = 128,
                           .vocabulary = 256});
}

/// The sentence that a switch is refused with, all devices calling with `options_of(device)`; nothing is touched.
template <typename OptionsOf>
std::string refused_switch(switch_in_memory& s, OptionsOf&& options_of) {
  thread_group world(s.change.devices(), soon);
  const std::string sentence = refused([&] {
    world.run([&](auto& here) {
      const auto d = static_cast<std::size_t>(here.device());
      switch_state(s.change, s.before[d].tensors(), s.after[d].tensors(), here, options_of(here.device()));
    });
  });
  CHECK(s.untouched());
  return sentence;
}

/// A copy of a binding without the boxes that `drop` names.
template <typename Drop>
binding without(const binding& of, Drop&& drop) {
  binding result(of.who());
  for (const bound_box& b : of.boxes())
    if (!drop(b)) result.add(b);
  return result;
}
}  // namespace

TEST_CASE("sources that are kept stay as they were, and the peak is before + after") {
  switch_in_memory s(tiny(), "tp=2,pp=2,zero=1", "dp=4,zero=1");
  thread_group world(4, soon);
  s.run(world, {.after_use = sources::keep});
  for (std::size_t d = 0; d < 4; ++d) {
    CHECK(s.reports[d].memory.peak == s.reports[d].memory.before + s.reports[d].memory.after);
    CHECK(s.found_before(d).wrong == 0);
  }
  switch_in_memory again(tiny(), "tp=2,pp=2,zero=1", "dp=4,zero=1");
  const std::string sentence =
      refused_switch(again, [](rank_t) { return switch_options{.budget = 256_KiB, .after_use = sources::keep}; });
  CHECK(sentence.find("bytes beyond max(before, after), the sources being kept, and of 1, 2, 4 .. 4096 stages none "
                      "keeps it; the least budget that does is ") != sentence.npos);
}

TEST_CASE("targets that are committed beforehand count from the first") {
  const std::string from = "tp=2,pp=2,zero=1", to = "dp=4,zero=1";
  switch_in_memory s(tiny(), from, to, device_map(4), device_map(4), pages_are::committed);
  thread_group world(4, soon);
  s.run(world);
  for (const switch_report& r : s.reports) CHECK(r.memory.peak == r.memory.before + r.memory.after);
}

TEST_CASE("memory of the caller's: given back by the caller's function, or not at all") {
  const model m = tiny();
  switch_in_memory s(m, "tp=2,zero=1", "dp=2,zero=1");
  // the same state in plain arrays
  std::vector<std::vector<std::byte>> arrays;
  std::vector<binding> plain;
  for (rank_t r = 0; r < 2; ++r) {
    plain.push_back(bind_rank(s.change.from(), r, "rank " + std::to_string(r), [&](const rank_array& a) {
      arrays.emplace_back(static_cast<std::size_t>(a.bytes()));
      return memory{arrays.back().data(), a.bytes()};
    }));
    testing::fill(s.by, plain.back(), s.change.from());
  }
  const auto run = [&](const switch_options& options) {
    thread_group world(2, soon);
    world.run([&](auto& here) {
      const auto d = static_cast<std::size_t>(here.device());
      s.reports[d] = switch_state(s.change, plain[d], s.after[d].tensors(), here, options);
    });
  };
  const std::string sentence = refused([&] { run({.budget = 100_KiB}); });
  INFO(sentence);
  CHECK(sentence.find("memory of the sources that nobody may give back included, and of 1, 2, 4 .. 4096 stages none "
                      "keeps it; the least budget that does is ") != sentence.npos);

  std::mutex mutex;
  bytes_t given = 0;
  bool inside = true;
  std::size_t array = 0;
  for (binding& b : plain)
    for (const std::size_t end = array + arrays.size() / 2; array < end; ++array) {
      const memory whole{arrays[array].data(), static_cast<bytes_t>(arrays[array].size())};
      b.own(whole, pages_are::committed, [&, whole](std::byte* at, bytes_t bytes) {
        const std::lock_guard lock(mutex);
        given += bytes;
        inside = inside && at >= whole.data && at + bytes <= whole.data + whole.bytes;
      });
    }
  run({});
  CHECK(inside);
  bytes_t pages = 0;
  for (const binding& b : plain)
    for (const memory_block& block : b.blocks()) pages += block.granules * block.granule;
  CHECK(given <= pages);
  CHECK(given > pages / 2);  // all but pages of padding
  for (std::size_t d = 0; d < 2; ++d) CHECK(s.found_after(d).wrong == 0);
}

TEST_CASE("refusals come before anything is touched, and say who lacks what") {
  const model m = tiny();
  {
    switch_in_memory s(m, "tp=2,pp=2,zero=1", "dp=4,zero=1");
    CHECK(refused_switch(s, [](rank_t d) { return switch_options{.budget = d == 2 ? 300_KiB : 600_KiB}; })
              .find("device 0 was given a budget of 614400 bytes and device 2 a budget of 307200 bytes") !=
          std::string::npos);
    CHECK(refused_switch(s, [](rank_t) { return switch_options{.budget = 0}; }) ==
          "reshard: a budget of 0 bytes; it must be at least 1");
    const std::string sentence = refused_switch(s, [](rank_t) { return switch_options{.budget = 4_KiB}; });
    CHECK(sentence.starts_with("reshard: a budget of 4096 bytes cannot work: in "));
  }
  switch_in_memory s(m, "tp=2,pp=2,zero=1", "dp=4,zero=1");
  const auto refused_with = [&](bool of_sources, rank_t device, auto&& drop, rank_t devices = 4) {
    thread_group world(devices, soon);
    const std::string sentence = refused([&] {
      world.run([&](auto& here) {
        const auto d = static_cast<std::size_t>(here.device());
        if (here.device() != device) {
          switch_state(s.change, s.before[d].tensors(), s.after[d].tensors(), here);
          return;
        }
        binding lacking = without(of_sources ? s.before[d].tensors() : s.after[d].tensors(), drop);
        switch_state(s.change, of_sources ? lacking : s.before[d].tensors(),
                     of_sources ? s.after[d].tensors() : lacking, here);
      });
    });
    CHECK(s.untouched());
    return sentence;
  };
  const auto norm = [](const bound_box& b) {
    return b.state == 0 && b.where.dim[1].size() == 1 && b.tensor.member == 3 && b.where.dim[2].size() == 64;
  };
  CHECK(refused_with(true, 3, norm) ==
        "reshard: device 3, rank 3 of FROM: 32 of 32 elements that the plan needs of param of "
        "decoder.layers.3.self_attention.linear_qkv.layer_norm_weight are not bound, on the side of FROM");
  CHECK(refused_with(false, 1, [](const bound_box& b) {
          return b.state == 2;
        }).starts_with("reshard: device 1, rank 1 of TO: "));
  CHECK(refused_with(false, 9, norm, 3) == "reshard: the switch names 4 devices, and the transport has 3");
}

namespace {
/// What a space holds, of which nobody can tell which layout it is.
struct nameless_holding {
  computed_holding of;
  rank_t ranks() const { return of.ranks(); }
  state_set states() const { return of.states(); }
  int families() const { return of.families(); }
  const family& family_at(int f) const { return of.family_at(f); }
  template <typename Sink>
  void held(int f, rank_t rank, role r, Sink&& sink) const {
    of.held(f, rank, r, sink);
  }
  template <typename Sink>
  void shared(int f, rank_t rank, role r, Sink&& sink) const {
    of.shared(f, rank, r, sink);
  }
  template <typename Sink>
  void owners(int f, role r, const family_box& within, Sink&& sink) const {
    of.owners(f, r, within, sink);
  }
  storage_order order_of(const tensor_id& t, rank_t rank, role r) const { return of.order_of(t, rank, r); }
};
static_assert(Holding<nameless_holding>);
}  // namespace

TEST_CASE("devices that were given different layouts: they are named; else who expects what another lacks says so") {
  switch_in_memory stages(tiny(), "pp=2", "pp=2"), tensors(tiny(), "tp=2", "dp=2");
  const auto sentence_of = [&](auto&& change_of) {
    thread_group world(2, soon);
    return refused([&] {
      world.run([&](auto& here) {
        switch_in_memory& s = here.device() == 0 ? stages : tensors;
        const auto d = static_cast<std::size_t>(here.device());
        switch_state(change_of(s), s.before[d].tensors(), s.after[d].tensors(), here);
      });
    });
  };
  CHECK(sentence_of([](const switch_in_memory& s) -> const computed_switch& { return s.change; }) ==
        "reshard: device 0 was given FROM as 'pp=2' and TO as 'pp=2' and device 1 FROM as 'tp=2' and TO as 'dp=2'; all "
        "make one switch");
  CHECK(sentence_of([](const switch_in_memory& s) {
          return layout_switch(nameless_holding{s.change.from()}, nameless_holding{s.change.to()});
        }) ==
        "reshard: device 1: device 0 lacks 2048 of 2048 elements that it shall send of param of "
        "decoder.layers.2.self_attention.linear_proj.weight");
  CHECK(stages.untouched());
  CHECK(tensors.untouched());
}

TEST_CASE("a refusal leaves the world usable") {
  switch_in_memory s(tiny(), "tp=2,pp=2,zero=1", "dp=4,zero=1");
  thread_group world(4, soon);
  world.run([&](auto& here) {
    const auto d = static_cast<std::size_t>(here.device());
    binding &from = s.before[d].tensors(), &to = s.after[d].tensors();
    CHECK(refused([&] { switch_state(s.change, from, to, here, {.budget = 4_KiB}); }).find("cannot work") !=
          std::string::npos);
    switch_state(s.change, from, to, here, {.budget = 4_MiB});
  });
  for (std::size_t d = 0; d < 4; ++d) CHECK(s.found_after(d).wrong == 0);
}

TEST_CASE("what one device throws reaches the caller, whenever it does") {
  struct fault : std::runtime_error {
    using std::runtime_error::runtime_error;
  };
  enum class when { before_the_switch, in_prepare, in_a_stage };
  for (const when at : {when::before_the_switch, when::in_prepare, when::in_a_stage}) {
    switch_in_memory s(tiny(), "tp=2,pp=2,zero=1", "dp=4,zero=1");
    struct faulty : forwarding<thread_group::endpoint> {
      when at;
      moves prepare(const staged_plan& plan, const binding& into, page_stages& pages) {
        if (device() == 2 && at == when::in_prepare) throw fault("prepare");
        return inner.prepare(plan, into, pages);
      }
      void move(moves& prepared, index_t k) {
        if (device() == 2 && at == when::in_a_stage && k == 3) throw fault("stage 3");
        inner.move(prepared, k);
      }
    };
    thread_group world(4, soon);
    CHECK_THROWS_AS(world.run([&](auto& here) {
      const auto d = static_cast<std::size_t>(here.device());
      faulty endpoint{{here}, at};
      if (here.device() == 2 && at == when::before_the_switch) throw fault("before");
      switch_state(s.change, s.before[d].tensors(), s.after[d].tensors(), endpoint, {.budget = 300_KiB});
    }),
                    fault);
    if (at != when::in_a_stage) CHECK(s.untouched());
  }
}

TEST_CASE("nobody writes a device's memory of a stage before the device is in it") {
  switch_in_memory s(tiny(), "tp=2,pp=2,zero=1", "dp=4,zero=1");
  struct late : forwarding<thread_group::endpoint> {
    rank_storage& after;
    bytes_t largest_growth = 0;  // while it was on its way to a stage
    void move(moves& prepared, index_t k) {
      if (device() == 1 && k < 2) {  // the others have all the time to take from it
        const bytes_t there = k == 0 ? 0 : after.resident_bytes();
        for (int i = 0; i < 50 && largest_growth == 0; ++i) {
          std::this_thread::sleep_for(std::chrono::milliseconds(10));
          largest_growth = std::max(largest_growth, after.resident_bytes() - there);
        }
      }
      inner.move(prepared, k);
    }
  };
  thread_group world(4, soon);
  bytes_t growth = -1;
  world.run([&](auto& here) {
    const auto d = static_cast<std::size_t>(here.device());
    late endpoint{{here}, s.after[d]};
    s.reports[d] = switch_state(s.change, s.before[d].tensors(), s.after[d].tensors(), endpoint, {.budget = 300_KiB});
    if (d == 1) growth = endpoint.largest_growth;
  });
  CHECK(s.reports[1].stages > 3);
  CHECK(growth == 0);
  for (std::size_t d = 0; d < 4; ++d) CHECK(s.found_after(d).wrong == 0);
}

TEST_CASE("after a stage in which a device receives nothing, its copies of before are not made again") {
  struct without_stage_1 : forwarding<thread_group::endpoint> {
    index_t left_out = 0;  // elements
    moves prepare(staged_plan plan, const binding& into, page_stages& pages) {
      for (std::vector<staged_piece>* list : {&plan.receives, &plan.retains})
        std::erase_if(*list, [this](const staged_piece& p) {
          if (p.stage == 1) left_out += p.where.volume() * std::popcount(p.states.bits());
          return p.stage == 1;
        });
      return inner.prepare(plan, into, pages);
    }
  };
  switch_in_memory s(tiny(), "dp=2,zero=1", "pp=2");
  thread_group world(2, soon);
  index_t left_out[2] = {};
  world.run([&](auto& here) {
    const auto d = static_cast<std::size_t>(here.device());
    without_stage_1 endpoint{{here}};
    s.reports[d] = switch_state(s.change, s.before[d].tensors(), s.after[d].tensors(), endpoint, {.budget = 300_KiB});
    left_out[d] = endpoint.left_out;
  });
  for (std::size_t d = 0; d < 2; ++d) {
    CHECK(s.reports[d].stages > 3);
    CHECK(left_out[d] > 0);
    CHECK(s.found_after(d).wrong <= left_out[d]);  // a source that is read again has given its pages back
    CHECK(s.found_after(d).wrong > left_out[d] / 2);
  }
}

TEST_CASE("a device that never comes is named") {
  switch_in_memory s(tiny(), "dp=3,zero=1", "dp=2,zero=1");
  thread_group world(3, std::chrono::milliseconds(2500));
  std::string sentence;
  try {
    world.run([&](auto& here) {
      const auto d = static_cast<std::size_t>(here.device());
      if (d == 1) std::this_thread::sleep_for(std::chrono::milliseconds(6000));
      switch_state(s.change, s.before[d].tensors(), s.after[d].tensors(), here);
    });
  } catch (const peer_missing& e) {
    sentence = e.what();
  }
  CHECK(sentence.find(" waited 2500 ms in vain for these devices: 1") != sentence.npos);
  CHECK(s.untouched());

  thread_group another(3, soon);  // and one that leaves is not waited for
  CHECK_THROWS_AS(another.run([&](auto& here) {
    const auto d = static_cast<std::size_t>(here.device());
    if (d != 1) switch_state(s.change, s.before[d].tensors(), s.after[d].tensors(), here);
  }),
                  peer_failed);
}

TEST_CASE("devices that prepare between the same two meetings share one list, so that who is done helps the others") {
  thread_group world(2, soon);
  moves_of<thread_group::endpoint> made[2][2];  // per round and device
  world.run([&](auto& here) {
    binding nothing("device " + std::to_string(here.device()));
    page_stages pages(nothing, binding_side::target);
    staged_plan plan;
    plan.stages = 1;
    for (auto& round : made) {
      here.offer(nothing);
      here.all_reduce_max(0);
      round[here.device()] = here.prepare(plan, nothing, pages);
      here.all_reduce_max(0);
    }
  });
  CHECK(made[0][0] != nullptr);
  CHECK(made[0][0] == made[0][1]);
  CHECK(made[1][0] == made[1][1]);
  CHECK(made[0][0] != made[1][0]);
}

TEST_CASE("a switch of some states leaves the others where they are") {
  const model m = tiny();
  const space from(m, parse_degrees("tp=2,pp=2")), to(m, parse_degrees("dp=4"));
  for (const auto& [states, by] :
       {std::pair(parameter_states, filled_by::library), std::pair(parameter_states, filled_by::judge),
        std::pair(only(2), filled_by::judge), std::pair(only(1) | only(3), filled_by::judge)}) {
    const layout_switch change(from, to, {.states = states});
    std::vector<rank_storage> before, after;
    for (rank_t r = 0; r < 4; ++r) {
      testing::fill(by, before.emplace_back(from, r, "before").tensors(), from);
      after.emplace_back(to, r, "after", pages_are::reserved, states);
    }
    thread_group world(4, soon);
    world.run([&](auto& here) {
      const auto d = static_cast<std::size_t>(here.device());
      switch_state(change, before[d].tensors(), after[d].tensors(), here, {.budget = 1_MiB});
    });
    for (rank_t r = 0; r < 4; ++r) {
      const auto d = static_cast<std::size_t>(r);
      CHECK(testing::compare(by, after[d].tensors(), to).wrong == 0);
      binding others("others");
      for (const bound_box& box : before[d].tensors().boxes())
        if (!states.contains(box.state)) others.add(box);
      others.seal();
      CHECK(testing::compare(by, others, from).elements > 0);
      CHECK(testing::compare(by, others, from).wrong == 0);
    }
  }
}

TEST_CASE("a target in the memory of a source is refused") {
  switch_in_memory s(tiny(), "tp=2", "dp=2");
  thread_group world(2, soon);
  CHECK(refused([&] {
          world.run([&](auto& here) {
            const auto d = static_cast<std::size_t>(here.device());
            switch_state(s.change, s.before[d].tensors(),
                         here.device() == 1 ? s.before[d].tensors() : s.after[d].tensors(), here);
          });
        }).find("are not bound, on the side of TO") != std::string::npos);
  switch_in_memory same(tiny(), "tp=2", "tp=2");
  thread_group another(2, soon);
  CHECK(refused([&] {
          another.run([&](auto& here) {
            const auto d = static_cast<std::size_t>(here.device());
            switch_state(same.change, same.before[d].tensors(), same.before[d].tensors(), here);
          });
        }).find("; a switch wants memory of its own for what it makes") != std::string::npos);
  CHECK(same.untouched());
}

TEST_CASE("who has left, or never came to be, is waited for by nobody") {
  constexpr patience long_enough = std::chrono::seconds(60);
  thread_group world(2, long_enough);
  auto here = world.at(0);
  { auto gone = world.at(1); }
  CHECK_THROWS_WITH_AS(here.all_reduce_max(1), "reshard: device 1 has left; a world serves one run", peer_failed);
  thread_group other(2, long_enough);
  auto alone = other.at(0);
  other.leave(1, "reshard: there is no thread for device 1");
  CHECK_THROWS_WITH_AS(alone.all_reduce_max(1), "reshard: there is no thread for device 1", peer_failed);
}
