// SPDX-License-Identifier: Apache-2.0
// Jobs of threads over a store in this process: each member trains in integers, so that a sample or an element that is
// missing, doubled or misplaced shows; and what all of them did is judged at the end.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <reshard/base/digest.hpp>
#include <reshard/elastic/elastic_job.hpp>
#include <reshard/elastic/local_store.hpp>
#include <reshard/memory/each_element.hpp>
#include <reshard/memory/rank_storage.hpp>
#include <reshard/model/transformer.hpp>

namespace testing {

using namespace reshard;

inline constexpr index_t steps = 120;

inline model tiny() {
  return make_transformer(
      {.name = "tiny", .layers = 2, .hidden = 8, .heads = 2, .groups = 2, .head_dim = 4, .ffn = 8, .vocabulary = 16});
}

/// What all members did, judged at the end.
struct story {
  std::mutex mutex;
  std::map<index_t, world> worlds;
  std::map<std::pair<index_t, index_t>, std::map<rank_t, interval>> samples;  // of epoch and step, by dp rank
  std::map<std::string, std::string> answers;
  std::map<std::string, job_end> ends;
  std::map<std::string, std::string> last;        // sentences
  std::map<std::string, std::string> interrupts;  // the last sentence of each
  std::set<std::string> told;
  std::vector<std::string> waits;
  index_t two_worlds = 0, two_answers = 0, elements = 0, wrong = 0, scalars = 0, wrong_scalars = 0;

  void interrupted(const std::string& who, const std::string& sentence) {
    const std::lock_guard lock(mutex);
    interrupts[who] = sentence;
  }
  void count_scalar(bool right) {
    const std::lock_guard lock(mutex);
    ++scalars, wrong_scalars += right ? 0 : 1;
  }

  index_t told_count(const std::string& words) {
    const std::lock_guard lock(mutex);
    return std::count_if(told.begin(), told.end(), [&](const std::string& one) { return one.find(words) != one.npos; });
  }
};

struct member : job_watcher {
  member(story& s, any_store store, const std::string& name, index_t found, double step_seconds,
         const std::string& dies = "", int nth = 1, const degrees& layout = {}, index_t snapshot = 0,
         bytes_t budget = no_budget, double own_seconds = 0, index_t least_members = 1,
         const std::function<void(member&)>& differs = {})
      : all(s), me(name), step(step_seconds), own(own_seconds), dies_at(dies), times(nth) {
    settings.job = "story";
    settings.me = name;
    settings.model = tiny();
    settings.found = found;
    settings.layout = layout;
    if (layout == degrees{}) settings.layout.dp = found;
    settings.batch = 6;
    settings.steps = steps;
    settings.snapshot = snapshot;
    settings.budget = budget;
    settings.policy.min = least_members;
    settings.wait = std::chrono::seconds(2);  // nobody is slow on a machine that is busy
    settings.grace = std::chrono::seconds(1);
    if (own > 0) settings.window = std::chrono::milliseconds(30), settings.policy.windows = 2, settings.policy.wait = 0;
    in_group = settings.wait;
    if (differs) differs(*this);
    thread = std::thread([this, store] { train(store); });
  }
  ~member() override { thread.join(); }

  void entered(const world& w, std::string_view, double) override {
    in_epoch = w.epoch;
    const std::lock_guard lock(all.mutex);
    const auto [at, first] = all.worlds.try_emplace(w.epoch, w);
    all.two_worlds += !first && !(at->second == w) ? 1 : 0;
  }
  void failed(const std::string& sentence) override {
    const std::lock_guard lock(all.mutex);
    all.told.insert(sentence);
  }
  void waiting(const std::string& why) override {
    const std::lock_guard lock(all.mutex);
    all.waits.push_back(me + ": " + why);
  }
  void slow(const member_list& who, const std::string& why) override {
    const std::lock_guard lock(all.mutex);
    all.told.insert(members_text(who) + ": " + why);
  }
  void at(std::string_view where) override {
    if (where.starts_with("stage:")) ++stages;
    if (passes) passes(where);
    if (where != dies_at || std::this_thread::get_id() != trains || times-- != 1) return;
    throw std::runtime_error("it dies");
  }
  void answered(const member_name& request, std::string_view text) override {
    const std::lock_guard lock(all.mutex);
    all.two_answers += all.answers.try_emplace(std::string(request.text()), text).second ? 0 : 1;
  }

  struct arrays {
    arrays(const model& m, const state_list& list, const world& w, rank_t r)
        : of(w), rank(r), layout(space(m, w.layout), list.all()),
          storage(layout, r, "a rank", w.epoch == 1 ? pages_are::committed : pages_are::reserved, std::nullopt, list) {}
    world of;
    rank_t rank;
    computed_holding layout;
    rank_storage storage;
    void each(auto&& visit) {
      for (const bound_box& b : storage.tensors().boxes()) {
        const std::uint64_t key =
            mix64(static_cast<std::uint64_t>(b.state * 1000 + b.tensor.family * 100 + b.tensor.member));
        const auto one = [&](auto& x, index_t i) { visit(x, mix64(key + static_cast<std::uint64_t>(i))); };
        if (b.element_bytes == 2) each_element<std::uint16_t>(b, layout.family_at(b.tensor.family), one);
        else each_element<std::uint32_t>(b, layout.family_at(b.tensor.family), one);
      }
    }
  };
  /// As a gradient norm is one of the gradients.
  static double scalar_after(std::uint64_t gathered) { return static_cast<double>(gathered % 1000003); }
  /// What a collective came to is not heard, an end neither: the job's word alone ends it.
  void wait_for_interrupt() {
    const auto begun = std::chrono::steady_clock::now();
    while (interrupts.load() == 0 && std::chrono::steady_clock::now() - begun < std::chrono::seconds(20))
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    if (interrupts.load() == 0) waits_in_vain = true;
    throw peer_failed("its collective was given up");
  }
  /// x -> 3 x + c S
  static auto after(auto x, std::uint64_t c, std::uint64_t sum) {
    return static_cast<decltype(x)>(3 * std::uint64_t{x} + c * sum);
  }

  void train(any_store store) {
    trains = std::this_thread::get_id();
    std::unique_ptr<arrays> now, next;
    std::vector<std::unique_ptr<arrays>> between;  // under a budget state may lie in several worlds' arrays
    std::unique_ptr<socket_endpoint> group, made;
    std::mutex of_groups;
    std::uint64_t sum = 0, gathered = 0;
    elastic_job* here = nullptr;
    trainer_calls calls;
    calls.make_group = [&](const group_request& r, const std::stop_token& stop) {
      auto one = std::make_unique<socket_endpoint>(r.rank, r.addresses, here->door(), r.number, in_group, stop);
      if (r.next->epoch == 2 && group_seconds > 0) {
        std::this_thread::sleep_for(std::chrono::duration<double>(group_seconds));
        if (stop.stop_requested()) throw peer_failed("its group is not made any more");
      }
      const std::lock_guard lock(of_groups);
      made = std::move(one);
    };
    calls.interrupt = [&](const std::string& sentence) {
      ++interrupts;
      all.interrupted(me, sentence);
      const std::lock_guard lock(of_groups);
      if (group) group->stop(sentence);
    };
    calls.tensors = [&](const world& w, rank_t rank) {
      if (next && settings.budget != no_budget) between.push_back(std::move(next));
      next = std::make_unique<arrays>(settings.model, settings.list, w, rank);
      const index_t kept = (now ? 1 : 0) + 1 + std::ssize(between);
      most_kept = std::max<index_t>(most_kept, kept);
      return next->storage.tensors();
    };
    calls.given_up = [&](index_t epoch) {
      ++given_up;
      const auto is_it = [&](const auto& one) { return one && one->of.epoch == epoch; };
      std::erase_if(between, is_it);
      if (is_it(next)) next.reset();
    };
    calls.initialize = [&](const world&, rank_t) {
      next->each([](auto& x, std::uint64_t c) { x = static_cast<std::remove_reference_t<decltype(x)>>(c); });
    };
    calls.entered = [&](const world& w, rank_t rank) {
      if (w.epoch == 2) std::this_thread::sleep_for(std::chrono::duration<double>(entered_seconds));
      now = rank < 0 ? nullptr : std::move(next);
      if (rank < 0) next.reset();
      emptied += rank < 0 ? 1 : 0;
      between.clear();
      const std::lock_guard lock(of_groups);
      group = rank < 0 ? nullptr : std::move(made);
    };
    const auto update = [&](double scalar) {
      all.count_scalar(scalar == scalar_after(gathered));
      std::this_thread::sleep_for(std::chrono::duration<double>(update_seconds));
      sum = gathered;
      now->each([&](auto& x, std::uint64_t c) { x = after(x, c, sum); });
    };
    calls.update = update;
    std::function<double()> tells_own;
    if (own > 0) tells_own = [this] { return own; };
    calls.small = [&] {
      at("small");
      std::this_thread::sleep_for(std::chrono::duration<double>(std::exchange(stall_seconds, 0)));
      small_state mine;
      mine.add_same("sum", std::as_bytes(std::span(&sum, 1)));
      if (!own_small.empty()) mine.add_per_rank("loader", me, std::as_bytes(std::span(own_small)));
      return mine;
    };
    calls.take_small = [&](const small_state& s) {
      std::memcpy(&sum, s.bytes_of({"sum"}).data(), sizeof sum);
      taken = sum;
      if (const blob_id loader{"loader", me}; s.has(loader)) own_came += s.bytes_of(loader).size() == own_small.size();
    };
    {
      elastic_job job(store, settings, calls, *this);
      here = &job;
      try {
        while (job.runs()) {
          if (walks_out.load()) break;
          job.step({.gradients =
                        [&](const sample_share& s) {
                          std::this_thread::sleep_for(std::chrono::duration<double>(step));
                          std::uint64_t mine = 0;
                          const mesh dense = mesh_of(job.now().layout, mesh_kind::dense);
                          if (dense.coordinate(mesh_axis::tensor, now->rank) +
                                  dense.coordinate(mesh_axis::pipeline, now->rank) ==
                              0)
                            for (index_t k = s.samples.begin; k < s.samples.end; ++k)
                              mine += mix64(static_cast<std::uint64_t>(k));
                          {
                            const std::lock_guard lock(all.mutex);
                            all.samples[{job.now().epoch, s.step}][s.dp] = s.samples;
                          }
                          gathered = group->agree({.addend = mine}).sum;
                        },
                    .scalar =
                        [&] {
                          const bool deaf = in_epoch == 1 && deaf_at == job.version();
                          try {
                            group->agree({.addend = 1});
                          } catch (const peer_failed&) {
                            if (!deaf) throw;
                          }
                          if (deaf) wait_for_interrupt();
                          return scalar_after(gathered);
                        },
                    .update = update,
                    .own = tells_own});
          version.store(job.version());
        }
      } catch (const std::runtime_error& why) {
        if (std::string(why.what()) != "it dies") throw;
      }
      {
        const std::lock_guard lock(of_groups);
        group.reset(), made.reset();  // before the job, at whose door they are called
      }
      const std::lock_guard lock(all.mutex);
      all.ends[me] = job.why();
      all.last[me] = job.sentence();
      ended = job.version();
    }
    over.store(true);
    if (ended == settings.steps && now) judge(*now);
  }
  /// Every element, by all samples from the first on in one go.
  void judge(arrays& a) {
    std::vector<std::uint64_t> sums;
    const std::lock_guard lock(all.mutex);
    for (index_t s = 0; s < ended; ++s) {
      const world* w = nullptr;
      for (const auto& [epoch, one] : all.worlds)
        if (one.first_step <= s) w = &one;
      const index_t begin = w->cursor_at(s);
      std::uint64_t one = 0;
      for (index_t k = begin; k < begin + w->batch; ++k) one += mix64(static_cast<std::uint64_t>(k));
      sums.push_back(one);
    }
    a.each([&](auto& x, std::uint64_t c) {
      auto expected = static_cast<std::remove_reference_t<decltype(x)>>(c);
      for (const std::uint64_t s : sums) expected = after(expected, c, s);
      ++all.elements;
      all.wrong += x == expected ? 0 : 1;
    });
  }

  story& all;
  std::string me;
  double step, own;                              // seconds of a step, and what it tells of them as its own; 0: nothing
  double update_seconds = 0, group_seconds = 0;  // the latter in the second world
  double entered_seconds = 0;                    // freeing what it held, in the second world
  index_t deaf_at = -1;                          // in the first world: the version whose scalar it does not hear
  std::function<void(std::string_view)> passes;  // called at each point
  double stall_seconds = 0;                      // in its first switch
  patience in_group{};                           // of its trainer's group
  std::string own_small = {};                    // small state that it alone has
  std::thread::id trains;
  std::string dies_at;  // at its n-th time at that point, on the trainer's thread, it is no more
  int times;
  job_settings settings;
  std::atomic<index_t> version = 0;
  std::atomic<bool> walks_out = false, over = false, waits_in_vain = false;  // the last for an interrupt
  index_t ended = 0, in_epoch = 0;
  std::atomic<index_t> stages = 0, emptied = 0;
  std::atomic<index_t> most_kept = 0, given_up = 0;  // arrays of that many worlds at once
  std::atomic<index_t> own_came = 0, interrupts = 0;
  std::uint64_t taken = 0;  // of small state, the last time that it came with a world
  std::thread thread;
};

inline std::string ask(any_store store, const std::string& id, const std::vector<std::string>& words) {
  const job_keys keys("story");
  store.swap(keys.requests() + id, stored_text(parse_request(id, words)), no_revision);
  for (const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
       std::chrono::steady_clock::now() < end;) {
    if (const auto there = store.read(keys.answers() + id)) return there->value;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return "no answer in 60 s";
}

/// The samples of the history tile [0, c), in order; of each step by all its dp ranks.
inline void check_tiles(story& s, index_t until) {
  index_t at = 0, ranks = 0;
  for (index_t step = 0; step < until; ++step) {
    const world* w = nullptr;
    for (const auto& [epoch, one] : s.worlds)
      if (one.first_step <= step) w = &one;
    REQUIRE(w != nullptr);
    REQUIRE(w->cursor_at(step) == at);
    for (const auto& [dp, share] : s.samples[{w->epoch, step}]) {
      CHECK(share.begin == at);
      at = share.end;
      ++ranks;
    }
    CHECK(at == w->cursor_at(step) + w->batch);
  }
  MESSAGE(ranks, " shares of ", until, " steps in ", s.worlds.size(), " worlds; ", s.elements, " elements");
}

/// All steps were made, by samples that tile them, and every element is what they make of it.
inline void check_history(story& s, index_t until = steps) {
  CHECK(s.elements > 0);
  CHECK(s.wrong == 0);
  CHECK(s.scalars > 0);
  CHECK(s.wrong_scalars == 0);
  check_tiles(s, until);
}

/// Words of members are said once, stay while the record is of the epoch that they are about, and are gone after that;
/// who leaves may leave some.
inline void check_words(local_store& kept, const world& last) {
  const job_keys keys("story");
  std::set<std::string> there, ever;
  index_t epoch = 0, removed = 0;
  const auto epoch_of = [&](const std::string& key) { return std::stoll(key.substr(keys.said().size())); };
  for (const store_change& c : kept.changes(keys.prefix(), 0, patience(0)).changes) {
    if (c.now.key == keys.record()) epoch = record_of(c.now.value).epoch;
    if (!c.now.key.starts_with(keys.said())) continue;
    CAPTURE(c.now.key);
    if (c.removed) {
      ++removed;
      CHECK(there.erase(c.now.key) == 1);
      CHECK(epoch_of(c.now.key) < epoch);
    } else {
      there.insert(c.now.key);
      CHECK(ever.insert(c.now.key).second);
      CHECK(epoch_of(c.now.key) <= epoch);
    }
  }
  for (const std::string& key : there)
    if (last.has(member_name(key.substr(key.rfind('/') + 1)))) CHECK_MESSAGE(epoch_of(key) == epoch, key);
  CHECK(removed > 0);
}

/// A store that does not answer one member for a while.
struct gated_store {
  local_store& store;
  std::atomic<bool> shut = false;
  std::string shuts_after = {};  // a key with these words is written for the first time
  std::atomic<bool> has_shut = false;

  void pass() const {
    if (shut.load()) throw store_unreachable("it does not answer");
  }
  std::optional<stored> read(const std::string& key) { return pass(), store.read(key); }
  stored_list list(const std::string& prefix) { return pass(), store.list(prefix); }
  std::uint64_t swap(const std::string& key, const std::string& value, std::uint64_t expected,
                     lease_id lease = no_lease) {
    pass();
    const std::uint64_t made = store.swap(key, value, expected, lease);
    if (!shuts_after.empty() && key.find(shuts_after) != key.npos && !has_shut.exchange(true)) shut = true;
    return made;
  }
  bool remove(const std::string& key, std::uint64_t expected) { return pass(), store.remove(key, expected); }
  lease_id lease(patience time) { return pass(), store.lease(time); }
  bool renew(lease_id lease) { return pass(), store.renew(lease); }
  void revoke(lease_id lease) { pass(), store.revoke(lease); }
  store_news changes(const std::string& prefix, std::uint64_t after, patience wait) {
    pass();
    store_news news = store.changes(prefix, after, wait);
    return pass(), news;
  }
};

/// Two or three members whose updates take longer than the grace, and what it is held against.
struct slow_updates {
  local_store kept;
  any_store store{kept};
  gated_store gate{kept};
  story s;
  std::vector<std::unique_ptr<member>> all;
  index_t steps = 5, least_members = 1;
  patience lease = std::chrono::seconds(20), ready = std::chrono::seconds(60);  // none ends
  std::optional<patience> wait = {};
  double group_seconds = 0, stall_seconds = 0;  // of who has an update to make, in the second world
  any_store next_store{kept};                   // of the member that is added next, and what else is its own
  std::function<void(member&)> next_differs = {};

  ~slow_updates() { gate.shut = false; }  // before members are waited for

  member& add(const char* who, const degrees& layout, double update, const std::string& dies = "", int nth = 1) {
    const auto own = std::exchange(next_differs, {});
    const auto differs = [&own, update, this](member& m) {
      m.settings.steps = steps;
      if (wait) m.settings.wait = *wait;
      m.settings.grace = std::chrono::milliseconds(100);
      m.settings.lease = lease;
      m.settings.ready = ready;
      m.update_seconds = update;
      m.in_group = std::chrono::seconds(20);
      m.group_seconds = update > 0 ? group_seconds : 0;
      m.stall_seconds = update > 0 ? stall_seconds : 0;
      if (own) own(m);
    };
    all.push_back(std::make_unique<member>(s, std::exchange(next_store, store), who, layout.world(), 0.02, dies, nth,
                                           layout, 0, no_budget, 0.0, least_members, differs));
    return *all.back();
  }
  /// a, b and c, of which c dies after an update; b makes the slow ones.
  void one_of_three_dies(double update = 0.001) {
    const degrees three{.dp = 3};
    add("a", three, 0), add("b", three, update), add("c", three, 0, "updated", 3);
  }
  /// Its rank is the number of those before it.
  member& add_next(const char* who, const degrees& layout, double update, const std::string& dies = "", int nth = 1) {
    member& one = add(who, layout, update, dies, nth);
    while (!store.read(job_keys("story").members() + who)) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return one;
  }
  /// A member whose store does not answer it from a step's beginning on, and that does not hear that step's scalar: it
  /// hears what happens then once the gate is open. Its lease goes, so nobody waits for it.
  member& add_cut_off(const char* who, const degrees& layout, index_t step) {
    next_store = any_store(gate);
    next_differs = [step, this](member& m) {
      m.deaf_at = step;
      m.passes = [step, &m, this](std::string_view at) {
        if (at == "samples" && m.version.load() == step && m.in_epoch == 1) gate.shut = true;
      };
    };
    return add_next(who, layout, 0);
  }
  static void reach(member& m, index_t version) {
    while (m.version.load() < version && !m.over.load()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  void put(const std::vector<std::string>& words) {
    store.swap(job_keys("story").requests() + "r1", stored_text(parse_request("r1", words)), no_revision);
  }
  job_record record() {
    const std::optional<stored> there = store.read(job_keys("story").record());
    return there ? record_of(there->value) : job_record{};
  }
  /// Waits until it is so, for 20 s; whether it is.
  template <typename Is>
  static bool until(Is&& is) {
    for (const auto begun = std::chrono::steady_clock::now(); !is();) {
      if (std::chrono::steady_clock::now() - begun > std::chrono::seconds(20)) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return true;
  }
  /// Says in the record that somebody is gone who lives, in that phase and while others make their updates, which take
  /// longer than the rest of a step.
  void say_gone(const char* who, job_phase in, int after_ms = 200) {
    const job_keys keys("story");
    CHECK(until([&] { return record().phase == in; }));
    std::this_thread::sleep_for(std::chrono::milliseconds(after_ms));
    for (int i = 0;; ++i) {
      const std::optional<stored> there = store.read(keys.record());
      const job_record r = record_of(there->value);
      REQUIRE((r.phase == in && i < 100));
      job_event e = event_about(r, job_event_kind::broke);
      e.members = {who};
      if (store.swap(keys.record(), stored_text(next(r, e)), there->revision) != 0) return;
    }
  }
  void join() {
    for (const auto& one : all) one->thread.join(), one->thread = std::thread([] {});
  }
  void check_done(const std::vector<const char*>& who) {
    join();
    for (const char* one : who) CHECK_MESSAGE(s.ends[one] == job_end::done, one);
    const member_list& left = s.worlds.rbegin()->second.members;
    CHECK(left.size() == who.size());
    check_history(s, steps);
  }
};

}  // namespace testing
