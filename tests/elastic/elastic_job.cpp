// SPDX-License-Identifier: Apache-2.0
// Jobs of threads over a store in this process: each member trains in integers, so that a sample or an element that is
// missing, doubled or misplaced shows. Real processes, killed and stopped, are in tests/tools/elastic.py.
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

using namespace reshard;

namespace {

constexpr index_t steps = 120;

model tiny() {
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
  std::map<std::string, std::string> last;  // sentences
  std::set<std::string> told;
  std::vector<std::string> waits;
  index_t two_worlds = 0, two_answers = 0, elements = 0, wrong = 0;

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
      if (r.next->epoch == 2) std::this_thread::sleep_for(std::chrono::duration<double>(group_seconds));
      const std::lock_guard lock(of_groups);
      made = std::move(one);
    };
    calls.interrupt = [&](const std::string& sentence) {
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
    calls.entered = [&](const world&, rank_t rank) {
      now = rank < 0 ? nullptr : std::move(next);
      if (rank < 0) next.reset();
      emptied += rank < 0 ? 1 : 0;
      between.clear();
      const std::lock_guard lock(of_groups);
      group = rank < 0 ? nullptr : std::move(made);
    };
    const auto update = [&](double) {
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
                    .scalar = [&] { return static_cast<double>(group->agree({.addend = 1}).sum); },
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
  double stall_seconds = 0;                      // in its first switch
  patience in_group{};                           // of its trainer's group
  std::string own_small = {};                    // small state that it alone has
  std::thread::id trains;
  std::string dies_at;  // at its n-th time at that point, on the trainer's thread, it is no more
  int times;
  job_settings settings;
  std::atomic<index_t> version = 0;
  std::atomic<bool> walks_out = false, over = false;
  index_t ended = 0;
  std::atomic<index_t> stages = 0, emptied = 0;
  std::atomic<index_t> most_kept = 0, given_up = 0;  // arrays of that many worlds at once
  std::atomic<index_t> own_came = 0;
  std::uint64_t taken = 0;  // of small state, the last time that it came with a world
  std::thread thread;
};

std::string ask(any_store store, const std::string& id, const std::vector<std::string>& words) {
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
void check_tiles(story& s, index_t until) {
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
void check_history(story& s, index_t until = steps) {
  CHECK(s.elements > 0);
  CHECK(s.wrong == 0);
  check_tiles(s, until);
}

/// Words of members are said once, stay while the record is of the epoch that they are about, and are gone after that;
/// who leaves may leave some.
void check_words(local_store& kept, const world& last) {
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

}  // namespace

TEST_CASE("members join, go over to other layouts, leave and are replaced while steps go on") {
  local_store kept;
  const any_store store(kept);
  story s;
  {
    std::vector<std::unique_ptr<member>> all;
    for (const char* who : {"a", "b"}) all.push_back(std::make_unique<member>(s, store, who, 2, 0.02));
    CHECK(ask(store, "r1", {"batch", "9"}) == "done");
    CHECK(ask(store, "r1", {"batch", "9"}) == "done");
    all.push_back(std::make_unique<member>(s, store, "c", 2, 0.02));
    CHECK(ask(store, "r2", {"join", "c"}) == "done");
    CHECK(ask(store, "r3", {"layout", "dp=3"}) == "done");
    CHECK(ask(store, "r4", {"layout", "tp=3"}).starts_with("refused: "));
    all.push_back(std::make_unique<member>(s, store, "d", 2, 0.02));
    CHECK(ask(store, "r5", {"replace", "a", "d"}) == "done");
    CHECK(ask(store, "r6", {"leave", "b"}) == "done");
    CHECK(ask(store, "r7", {"leave", "b"}) == "done");  // it is so
  }
  check_words(kept, s.worlds.rbegin()->second);
  CHECK(s.two_worlds == 0);
  CHECK(s.two_answers == 0);
  CHECK(s.worlds.size() == 6);
  CHECK((s.ends["a"] == job_end::left && s.ends["b"] == job_end::left));
  CHECK((s.ends["c"] == job_end::done && s.ends["d"] == job_end::done));
  check_history(s);
}

TEST_CASE("who walks out without a word is gone; the others go on, and so does a spare in its place") {
  local_store kept;
  const any_store store(kept);
  story s;
  {
    std::vector<std::unique_ptr<member>> all;
    for (const char* who : {"a", "b", "c"}) all.push_back(std::make_unique<member>(s, store, who, 3, 0.005));
    while (all[0]->version.load() < 20) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    all[0]->walks_out.store(true);
    while (all[1]->version.load() < 60) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  CHECK(s.two_worlds == 0);
  CHECK(s.worlds.size() >= 2);
  const member_list left = s.worlds.rbegin()->second.members;
  CHECK((left.size() == 2 && has_members(left, {"b", "c"})));
  CHECK(s.ends["a"] == job_end::runs);
  CHECK((s.ends["b"] == job_end::done && s.ends["c"] == job_end::done));
  CHECK(s.wrong == 0);
  CHECK(s.elements > 0);
  check_tiles(s, steps);
}

TEST_CASE("a job that is told to finish ends before one step, on all") {
  local_store kept;
  const any_store store(kept);
  story s;
  index_t ended[2] = {};
  {
    member a(s, store, "a", 2, 0.005), b(s, store, "b", 2, 0.005);
    while (a.version.load() < 10) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    CHECK(ask(store, "end", {"finish"}) == "done");
    a.thread.join(), b.thread.join();
    ended[0] = a.ended, ended[1] = b.ended;
    a.thread = std::thread([] {}), b.thread = std::thread([] {});
  }
  CHECK(ended[0] == ended[1]);
  CHECK((ended[0] >= 10 && ended[0] < steps));
  CHECK((s.ends["a"] == job_end::done && s.ends["b"] == job_end::done));
  check_tiles(s, ended[0]);
}

TEST_CASE("a name is never used twice") {
  local_store kept;
  const any_store store(kept);
  story s;
  {
    member first(s, store, "a", 1, 0.005);
    while (first.version.load() < 5) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    story other;
    { member again(other, store, "a", 1, 0.005); }
    CHECK(other.ends["a"] == job_end::refused);
    CHECK(other.last["a"] == "reshard: job: a member is called a already; a name is never used twice");
  }
  CHECK(s.ends["a"] == job_end::done);
}

TEST_CASE(
    "deaths at any point of a change, and of a recovery: the others go on, and are told why they waited in vain") {
  const std::vector<std::string> known = {"the change is called off",
                                          "the change is over",
                                          "a member of the change is gone",
                                          "the world of epoch",
                                          "is gone: its connection ended",
                                          "has left; a world serves one run",
                                          "has left a switch that broke off",
                                          "stopped by this process",
                                          "waited 2000 ms in vain",
                                          "there is no group",
                                          "was given up"};
  std::set<std::string> told;
  index_t deaths = 0;
  for (const std::string point : {"decided", "group_made", "boundary", "scalar"}) {
    CAPTURE(point);
    local_store kept;
    const any_store store(kept);
    story s;
    {
      std::vector<std::unique_ptr<member>> all;
      // c dies in the change to another batch, or, where it is to be in a recovery, once b has died in a step.
      const bool in_recovery = point == "group_made";
      all.push_back(std::make_unique<member>(s, store, "a", 4, 0.01));
      all.push_back(std::make_unique<member>(s, store, "b", 4, 0.01, in_recovery ? "scalar" : "", 20));
      all.push_back(std::make_unique<member>(s, store, "c", 4, 0.01, point, point == "group_made" ? 2 : 1));
      all.push_back(std::make_unique<member>(s, store, "d", 4, 0.01));
      while (all[0]->version.load() < 10) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      if (!in_recovery) ask(store, "r1", {"batch", "9"});
    }
    CHECK(s.two_worlds == 0);
    CHECK(s.two_answers == 0);
    CHECK((s.ends["a"] == job_end::done && s.ends["d"] == job_end::done));
    CHECK(s.ends["c"] == job_end::runs);
    CHECK(!has_member(s.worlds.rbegin()->second.members, "c"));
    check_history(s);
    deaths += s.ends["b"] == job_end::runs ? 2 : 1;
    for (const std::string& sentence : s.told) {
      bool is_known = false;
      for (const std::string& one : known)
        if (sentence.find(one) != std::string::npos) is_known = true, told.insert(one);
      CHECK_MESSAGE(is_known, sentence);
    }
  }
  std::string all;
  for (const std::string& one : told) all += (all.empty() ? "" : "; ") + one;
  MESSAGE(deaths, " deaths; told were: ", all);
  CHECK_FALSE(told.empty());
}

TEST_CASE("a job that has not begun is in no world") {
  local_store kept;
  job_settings settings;
  settings.me = "a";
  const elastic_job job(any_store(kept), settings, {});
  CHECK_THROWS_WITH_AS(static_cast<void>(job.now()), "reshard: job: a is in no world yet", refusal);
}

TEST_CASE("who comes and dies before all have entered takes nothing along, of states with one holder neither") {
  for (const std::string point : {"entered"}) {
    CAPTURE(point);
    local_store kept;
    const any_store store(kept);
    story s;
    {
      degrees cut;  // two pipeline stages: every element has one holder
      cut.pp = 2;
      std::vector<std::unique_ptr<member>> all;
      for (const char* who : {"a", "b"}) all.push_back(std::make_unique<member>(s, store, who, 2, 0.01, "", 1, cut));
      while (all[0]->version.load() < 10) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      all.push_back(std::make_unique<member>(s, store, "c", 2, 0.01, point, 1, cut));
      ask(store, "r1", {"replace", "b", "c"});
    }
    CHECK(s.ends["c"] == job_end::runs);
    CHECK((s.ends["a"] == job_end::done && s.ends["b"] == job_end::done));
    check_history(s);
  }
}

TEST_CASE("whom a world was to leave goes on alone where the one that was to stay dies before it has entered") {
  for (const std::string at : {"decided", "entered"}) {
    CAPTURE(at);
    local_store kept;
    const any_store store(kept);
    story s;
    {
      member a(s, store, "a", 2, 0.004, at), b(s, store, "b", 2, 0.004);
      while (b.version.load() < 10) std::this_thread::sleep_for(std::chrono::milliseconds(2));
      CHECK(ask(store, "1", {"leave", "b"}).starts_with("refused: "));  // taken up again, and nobody would be left
    }
    CHECK(s.ends == std::map<std::string, job_end>{{"a", job_end::runs}, {"b", job_end::done}});
    CHECK(s.worlds.rbegin()->second.members == member_list{"b"});
    CHECK(s.worlds.rbegin()->first == 3);
    check_history(s);
  }
}

TEST_CASE("what one holder alone had comes from its neighbour's copy: back by less than two turns, small state too") {
  struct {
    rank_t tp, pp, dp;
    int zero;
    const char* point;
    bool spare;
  } const cases[] = {{1, 2, 1, 0, "scalar", false}, {1, 1, 3, 1, "samples", true}, {2, 1, 1, 0, "updating", true}};
  for (const auto& c : cases) {
    CAPTURE(std::string(c.point));
    local_store kept;
    const any_store store(kept);
    story s;
    std::uint64_t taken = 0;
    {
      degrees cut;
      cut.tp = c.tp, cut.pp = c.pp, cut.dp = c.dp, cut.zero = c.zero;
      const index_t n = cut.world();
      std::vector<std::unique_ptr<member>> all;
      for (const char* who : {"a", "b", "c"})
        if (std::ssize(all) < n)
          all.push_back(std::make_unique<member>(s, store, who, n, 0.005, *who == 'b' ? c.point : "", 58, cut, 10));
      if (c.spare) {
        while (all[0]->version.load() < 10) std::this_thread::sleep_for(std::chrono::milliseconds(1));
        all.push_back(std::make_unique<member>(s, store, "x", n, 0.005, "", 1, cut, 10));
      }
      while (!all[0]->over.load()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      taken = all[0]->taken;
    }
    CHECK(s.ends["a"] == job_end::done);
    CHECK(s.wrong == 0);
    REQUIRE(s.worlds.size() == 2);
    const world& after = s.worlds[2];
    CHECK(after.layout.world() == (c.spare ? c.tp * c.pp * c.dp : 1));
    CHECK(after.first_step % 10 == 0);
    CHECK((after.first_step >= 40 && after.first_step <= 58));
    check_tiles(s, steps);
    std::uint64_t then = 0;  // what small state was at that version
    for (index_t k = after.cursor - after.batch; k < after.cursor; ++k) then += mix64(static_cast<std::uint64_t>(k));
    CHECK(taken == then);
  }
}

TEST_CASE("a job that waits says for what, once, and goes on with who comes") {
  local_store kept;
  const any_store store(kept);
  story s;
  {
    const auto add = [&](const char* who, const std::string& dies) {
      const auto short_wait = [](member& m) { m.settings.wait = std::chrono::milliseconds(400); };
      return std::make_unique<member>(s, store, who, 2, 0.004, dies, 12, degrees{.dp = 2}, 0, no_budget, 0.0, 2,
                                      short_wait);
    };
    const std::unique_ptr<member> a = add("a", ""), b = add("b", "updated");
    const auto waits = [&] {
      const std::lock_guard lock(s.mutex);
      return std::ssize(s.waits);
    };
    while (waits() == 0) std::this_thread::sleep_for(std::chrono::milliseconds(2));
    std::this_thread::sleep_for(std::chrono::milliseconds(2000));  // patience is over, and no new attempt is made
    CHECK(waits() == 1);
    add("c", "");
  }
  REQUIRE(s.waits.size() == 1);
  CHECK(s.waits[0].starts_with("a: "));
  CHECK(s.waits[0].find("not replace: 0 spares are registered for 1 dead member") != std::string::npos);
  CHECK(s.waits[0].find("not shrink: ") != std::string::npos);
  CHECK(s.ends == std::map<std::string, job_end>{{"a", job_end::done}, {"b", job_end::runs}, {"c", job_end::done}});
  check_history(s);
}

TEST_CASE("a job that waits for so long as its policy says takes the next rung then") {
  local_store kept;
  const any_store store(kept);
  story s;
  const auto waits_first = [](member& m) {
    m.settings.policy.rungs = {rung::replace, rung::wait, rung::shrink};
    m.settings.policy.wait = 1.5;
    m.settings.wait = std::chrono::milliseconds(400);
  };
  std::chrono::steady_clock::time_point dies = {};
  double took = 0;
  {
    const auto add = [&](const char* who, const std::string& at) {
      return std::make_unique<member>(s, store, who, 2, 0.004, at, 12, degrees{.dp = 2}, 0, no_budget, 0.0, 1,
                                      waits_first);
    };
    const auto a = add("a", ""), b = add("b", "updated");
    while (!b->over.load()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    dies = std::chrono::steady_clock::now();
    const index_t there = a->version.load();
    while (a->version.load() < there + 5) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    took = std::chrono::duration<double>(std::chrono::steady_clock::now() - dies).count();
  }
  CHECK(took > 1.4);
  REQUIRE(s.waits.size() == 1);
  CHECK(s.waits[0].starts_with("a: wait; not replace: 0 spares are registered for 1 dead member"));
  CHECK(s.ends["a"] == job_end::done);
  CHECK(s.worlds.rbegin()->second.members == member_list{"a"});
  check_history(s);
}

TEST_CASE("a job whose state had one holder that is gone is lost, and says what is missing") {
  local_store kept;
  const any_store store(kept);
  story s;
  {
    degrees cut;
    cut.pp = 2;
    member a(s, store, "a", 2, 0.005, "", 1, cut), b(s, store, "b", 2, 0.005, "scalar", 20, cut);
  }
  CHECK(s.ends["a"] == job_end::lost);
  const std::string said = s.last["a"];
  CHECK(said.find(" nobody holds ") != std::string::npos);
  CHECK(said.find(" bytes any more; the first are param of ") != std::string::npos);
  CHECK(said.ends_with("; b held them"));
}

TEST_CASE("a job of other states than Adam's misses none of those") {
  local_store kept;
  const any_store store(kept);
  story s;
  const auto parameters = [](member& m) { m.settings.list = {{"param", dtype::fp32, 3}}; };
  {
    degrees cut{.dp = 3};
    cut.zero = 1;  // each has all parameters; of Adam's others a third
    const auto add = [&](const char* who, const char* dies) {
      return std::make_unique<member>(s, store, who, 3, 0.005, dies, 20, cut, 0, no_budget, 0.0, 1, parameters);
    };
    const auto a = add("a", ""), b = add("b", ""), c = add("c", "scalar");
    while (!b->over.load() && b->version.load() < 60) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    CHECK(ask(store, "r1", {"leave", "b"}) == "done");
  }
  CHECK((s.ends["a"] == job_end::done && s.ends["b"] == job_end::left));
  CHECK(to_text(s.worlds.rbegin()->second.layout) == "zero=1");
  check_history(s);
}

TEST_CASE("under a budget a switch that breaks off leaves state between two worlds, and all go on from there") {
  index_t stages = 0;
  for (const std::string point : {"stage:0", "stage:1", "stage:2"}) {
    CAPTURE(point);
    local_store kept;
    const any_store store(kept);
    story s;
    std::string answer;
    {
      degrees stage_each, half_each;  // every element has one holder, and most of them move
      stage_each.pp = 2, half_each.tp = 2;
      member a(s, store, "a", 2, 0.005, "", 1, stage_each, 0, 36_KiB),
          b(s, store, "b", 2, 0.005, point, 1, stage_each, 0, 36_KiB);
      while (a.version.load() < 10) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      answer = ask(store, "r1", {"layout", to_text(half_each)});
      stages = std::max(stages, a.stages.load());
    }
    CHECK(answer == "done");  // it was asked for again
    CHECK((s.ends["a"] == job_end::done && s.ends["b"] == job_end::done));
    CHECK(s.told.contains("it dies"));  // what a call throws between stages ends the switch, and nobody
    CHECK(s.worlds.size() > 2);
    check_history(s);
  }
  CHECK(stages > 3);  // of several: what was in place stood in new arrays
}

TEST_CASE("a recovery from state between two worlds that breaks off too is made once more from there") {
  for (const std::string breaks : {"a", "b"}) {
    CAPTURE(breaks);
    local_store kept;
    const any_store store(kept);
    story s;
    index_t most_kept = 0;
    {
      degrees stage_each, half_each;
      stage_each.pp = 2, half_each.tp = 2;
      // who breaks the change off at stage 2 does no more; the recovery is stage 0 for the second time
      member a(s, store, "a", 2, 0.02, breaks == "a" ? "stage:0" : "stage:2", breaks == "a" ? 2 : 1, stage_each, 0,
               36_KiB);
      member b(s, store, "b", 2, 0.02, breaks == "b" ? "stage:0" : "stage:2", breaks == "b" ? 2 : 1, stage_each, 0,
               36_KiB);
      while (a.version.load() < 10) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      CHECK(ask(store, "r1", {"layout", to_text(half_each)}) == "done");
      most_kept = std::max(a.most_kept.load(), b.most_kept.load());
    }
    CHECK((s.ends["a"] == job_end::done && s.ends["b"] == job_end::done));
    CHECK((!s.worlds.contains(2) && !s.worlds.contains(3)));  // the change, and the first recovery
    CHECK(most_kept == 3);  // of the two worlds that state lies between, and of one attempt to leave them
    check_history(s);
  }
}

TEST_CASE("who was to come with a switch that broke off gives what it got, and is a spare that holds nothing") {
  local_store kept;
  const any_store store(kept);
  story s;
  index_t emptied = 0;
  {
    degrees cut;
    cut.pp = 2;
    member a(s, store, "a", 2, 0.005, "", 1, cut, 0, 36_KiB), b(s, store, "b", 2, 0.005, "stage:1", 1, cut, 0, 36_KiB);
    while (a.version.load() < 10) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    member c(s, store, "c", 2, 0.005, "", 1, cut, 0, 36_KiB);
    CHECK(ask(store, "r1", {"replace", "b", "c"}) == "done");  // asked for again after that
    emptied = c.emptied.load();
  }
  CHECK(emptied == 1);
  CHECK(s.told.contains("it dies"));
  CHECK((s.ends["a"] == job_end::done && s.ends["b"] == job_end::left && s.ends["c"] == job_end::done));
  check_history(s);
}

TEST_CASE("what was given to a member that dies before all have entered is lost, and how is said") {
  local_store kept;
  const any_store store(kept);
  story s;
  {
    degrees cut;
    cut.pp = 2;
    member a(s, store, "a", 2, 0.01, "", 1, cut, 0, 36_KiB), b(s, store, "b", 2, 0.01, "", 1, cut, 0, 36_KiB);
    while (a.version.load() < 10) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    member c(s, store, "c", 2, 0.01, "entered", 1, cut, 0, 36_KiB);
    ask(store, "r1", {"replace", "b", "c"});
  }
  CHECK((s.ends["a"] == job_end::lost && s.ends["b"] == job_end::lost));
  const std::string said = s.last["a"];
  CHECK(said.find(" bytes any more, since the change to epoch 2 was torn: lost are 0 elements that only the dead held, "
                  "and ") != std::string::npos);
  CHECK(said.ends_with(" that a survivor had given back before their new copies stood"));
}

TEST_CASE("what a torn switch lost comes from copies, and what lies between its worlds is left alone") {
  local_store kept;
  const any_store store(kept);
  story s;
  {
    degrees cut;
    cut.pp = 2;
    const auto add = [&](const char* who, const std::string& dies) {
      return std::make_unique<member>(s, store, who, 2, 0.01, dies, 1, cut, 4, 36_KiB);
    };
    const auto a = add("a", ""), b = add("b", "");
    while (a->version.load() < 10) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    const auto c = add("c", "entered");
    ask(store, "r1", {"replace", "b", "c"});  // c has it in part, and dies
  }
  CHECK((s.ends["a"] == job_end::done && s.ends["c"] == job_end::runs));
  CHECK(s.ends["b"] == job_end::done);
  CHECK(s.worlds.rbegin()->second.first_step % 4 == 0);  // a copy's version
  check_history(s);
}

TEST_CASE("a budget that no number of stages keeps is the answer to who asked, and steps go on") {
  local_store kept;
  const any_store store(kept);
  story s;
  std::string answer;
  {
    member a(s, store, "a", 2, 0.005, "", 1, {}, 0, 1_KiB), b(s, store, "b", 2, 0.005, "", 1, {}, 0, 1_KiB);
    while (a.version.load() < 10) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    degrees halves;
    halves.tp = 2;
    answer = ask(store, "r1", {"layout", to_text(halves)});
    while (!a.over.load()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    CHECK(a.most_kept.load() == 2);  // those of the change that was refused are given up before others are made
    CHECK(a.given_up.load() >= 1);
  }
  CHECK(answer.starts_with("failed: a budget of 1024 bytes cannot work: "));
  CHECK((s.ends["a"] == job_end::done && s.ends["b"] == job_end::done));
  CHECK(s.worlds.size() <= 3);  // the old one, that was made again
  check_history(s);
}

TEST_CASE("small state of one rank alone is refused before it is gone: who asked is told, and steps go on") {
  for (const bytes_t budget : {no_budget, 64_KiB}) {
    CAPTURE(budget);
    local_store kept;
    const any_store store(kept);
    story s;
    {
      const auto has_own = [](member& m) { m.own_small = m.me == "a" ? "at 17" : ""; };
      const auto add = [&](const char* who) {
        return std::make_unique<member>(s, store, who, 2, 0.005, "", 1, degrees{.dp = 2}, 0, budget, 0.0, 1, has_own);
      };
      const auto a = add("a"), b = add("b");
      while (a->version.load() < 10) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      const auto c = add("c");
      CHECK(ask(store, "r1", {"join", "c"}).starts_with("failed: no device asks for small state loader[a], which "));
      while (!a->over.load()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      CHECK(a->own_came == 1);  // with the world that was made again
      CHECK(b->own_came == 0);
    }
    CHECK((s.ends["a"] == job_end::done && s.ends["b"] == job_end::done));
    CHECK(s.worlds.size() == 2);
    check_history(s);
  }
}

TEST_CASE("what was refused is refused when it is asked for once more, and the spare that it names is as good as new") {
  local_store kept;
  const any_store store(kept);
  story s;
  {
    degrees cut;
    cut.pp = 2;
    member a(s, store, "a", 2, 0.02, "", 1, cut, 0, 1_KiB), b(s, store, "b", 2, 0.02, "", 1, cut, 0, 1_KiB);
    while (a.version.load() < 2) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    member c(s, store, "c", 2, 0.02, "", 1, cut, 0, 1_KiB);
    for (const std::string id : {"r1", "r2"}) {
      CAPTURE(id);
      CHECK(ask(store, id, {"replace", "b", "c"}).starts_with("failed: a budget of 1024 bytes cannot work: "));
      const index_t so_far = a.version.load();
      while (a.version.load() < so_far + 2 && !a.over.load()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  CHECK((s.ends["a"] == job_end::done && s.ends["b"] == job_end::done));
  CHECK(s.worlds.size() < 10);  // made again as often as it was refused
  check_history(s);
}

TEST_CASE("under a budget what is no tensor goes over before a source goes: who dies of it takes nothing along") {
  local_store kept;
  const any_store store(kept);
  story s;
  {
    member a(s, store, "a", 2, 0.005, "small", 1, {}, 0, 64_KiB), b(s, store, "b", 2, 0.005, "", 1, {}, 0, 64_KiB);
    while (a.version.load() < 10) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    member c(s, store, "c", 2, 0.005, "", 1, {}, 0, 64_KiB);
    ask(store, "r1", {"replace", "b", "c"});
    CHECK(a.stages.load() == 0);  // of that switch, which it died in
  }
  CHECK(s.ends["a"] == job_end::runs);
  CHECK((s.ends["b"] == job_end::done || s.ends["c"] == job_end::done));
  check_history(s);
}

TEST_CASE("a spare whose coming is refused is not asked in again: who is slow stays, and why is told") {
  local_store kept;
  const any_store store(kept);
  story s;
  {
    degrees cut;
    cut.pp = 2;
    member a(s, store, "a", 2, 0.03, "", 1, cut, 0, 1_KiB, 0.1), b(s, store, "b", 2, 0.03, "", 1, cut, 0, 1_KiB, 0.01);
    while (a.version.load() < 1) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    member c(s, store, "c", 2, 0.03, "", 1, cut, 0, 1_KiB, 0.01);
    while (!a.over.load()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    CHECK(c.emptied.load() >= 1);  // it was to come: what was made for that is its trainer's no more
  }
  CHECK((s.ends["a"] == job_end::done && s.ends["b"] == job_end::done));
  CHECK(s.worlds.size() < 10);  // the second is the first once more
  CHECK(std::count_if(s.told.begin(), s.told.end(), [](const std::string& one) {
          return one.starts_with("a: ignored: a budget of 1024 bytes cannot work: ");
        }) == 1);
  check_history(s);
}

TEST_CASE("steps that are longer than the patience: who comes waits until the others are out of theirs") {
  local_store kept;
  const any_store store(kept);
  story s;
  const auto impatient = [](member& m) {
    m.settings.steps = 5;
    m.settings.wait = std::chrono::seconds(1), m.settings.grace = std::chrono::milliseconds(100);
  };
  {
    std::vector<std::unique_ptr<member>> all;
    const auto add = [&](const char* who) {
      all.push_back(
          std::make_unique<member>(s, store, who, 2, 1.6, "", 1, degrees{.dp = 2}, 0, no_budget, 0.0, 1, impatient));
    };
    for (const char* who : {"a", "b"}) add(who);
    while (all[0]->version.load() < 1) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    add("c");
    CHECK(ask(store, "r1", {"join", "c"}) == "done");
  }
  CHECK(s.worlds.size() == 2);
  CHECK(s.told.empty());
  for (const char* who : {"a", "b", "c"}) CHECK(s.ends[who] == job_end::done);
  check_history(s, 5);
}

namespace {

/// Two or three members whose updates take longer than the grace, and what it is held against.
struct slow_updates {
  local_store kept;
  any_store store{kept};
  story s;
  std::vector<std::unique_ptr<member>> all;
  index_t steps = 5, least_members = 1;
  patience lease = std::chrono::seconds(20), ready = std::chrono::seconds(60);  // none ends
  std::optional<patience> wait = {};
  double group_seconds = 0, stall_seconds = 0;  // of who has an update to make, in the second world

  member& add(const char* who, const degrees& layout, double update, const std::string& dies = "", int nth = 1) {
    const auto differs = [update, this](member& m) {
      m.settings.steps = steps;
      if (wait) m.settings.wait = *wait;
      m.settings.grace = std::chrono::milliseconds(100);
      m.settings.lease = lease;
      m.settings.ready = ready;
      m.update_seconds = update;
      m.in_group = std::chrono::seconds(20);
      m.group_seconds = update > 0 ? group_seconds : 0;
      m.stall_seconds = update > 0 ? stall_seconds : 0;
    };
    all.push_back(std::make_unique<member>(s, store, who, layout.world(), 0.02, dies, nth, layout, 0, no_budget, 0.0,
                                           least_members, differs));
    return *all.back();
  }
  /// a, b and c, of which c dies after an update; b makes the slow ones.
  void one_of_three_dies(double update = 0.001) {
    const degrees three{.dp = 3};
    add("a", three, 0), add("b", three, update), add("c", three, 0, "updated", 3);
  }
  /// Its rank is the number of those before it.
  member& add_next(const char* who, const degrees& layout, double update, const std::string& dies = "") {
    member& one = add(who, layout, update, dies);
    while (!store.read(job_keys("story").members() + who)) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return one;
  }
  static void reach(member& m, index_t version) {
    while (m.version.load() < version && !m.over.load()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  void put(const std::vector<std::string>& words) {
    store.swap(job_keys("story").requests() + "r1", stored_text(parse_request("r1", words)), no_revision);
  }
  /// Says in the record that somebody is gone who lives, in that phase and while others make their updates, which take
  /// longer than the rest of a step.
  void say_gone(const char* who, job_phase in) {
    const job_keys keys("story");
    const auto phase = [&] { return record_of(store.read(keys.record())->value).phase; };
    const auto begun = std::chrono::steady_clock::now();
    while (phase() != in && std::chrono::steady_clock::now() - begun < std::chrono::seconds(20))
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
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

}  // namespace

TEST_CASE("who makes an update when somebody dies keeps its place, though the update takes longer than the grace") {
  slow_updates job;
  job.one_of_three_dies(0.6);
  job.check_done({"a", "b"});
  CHECK(job.s.ends["c"] == job_end::runs);
}

TEST_CASE("nothing is lost while who holds it makes a long update") {
  slow_updates job;
  degrees cut;  // every element has one holder
  cut.pp = 2;
  job.add("a", cut, 0.6), job.add("b", cut, 0.6);
  slow_updates::reach(*job.all[0], 1);
  job.add("c", cut, 0), job.add("d", cut, 0);
  job.put({"join", "c,d"});
  job.say_gone("c", job_phase::entering);  // c and d, who have nothing yet, promise at once
  job.check_done({"a", "b", "c", "d"});
}

TEST_CASE("a recovery waits for who makes its group longer than the patience") {
  slow_updates job;
  job.wait = std::chrono::seconds(1), job.group_seconds = 2.5;
  job.one_of_three_dies();
  job.check_done({"a", "b"});
  CHECK(job.s.worlds.rbegin()->first == 2);
}

TEST_CASE("a recovery that breaks off though nobody else is gone is made again") {
  slow_updates job;
  job.wait = std::chrono::seconds(1), job.stall_seconds = 3;
  job.one_of_three_dies();
  job.check_done({"a", "b"});
  CHECK(job.s.worlds.rbegin()->first > 2);
}

TEST_CASE("who does not come to move state is not waited for without end") {
  slow_updates job;
  job.ready = std::chrono::milliseconds(1500), job.group_seconds = 5;
  job.one_of_three_dies();
  const auto begun = std::chrono::steady_clock::now();
  while (job.s.told_count("not all moved state within 1500 ms") == 0 &&
         std::chrono::steady_clock::now() - begun < std::chrono::seconds(20))
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  CHECK(job.s.told_count("not all moved state within 1500 ms") > 0);
  job.join();
  CHECK(job.s.ends["a"] == job_end::done);
}

TEST_CASE("a job whose sole holder dies while the other leaves is lost, and does not wait") {
  slow_updates job;
  job.lease = std::chrono::seconds(1), job.steps = 1000;  // it does not come so far
  degrees cut;
  cut.pp = 2;
  job.add("a", cut, 0, "boundary"), job.add("b", cut, 0);
  job.put({"leave", "b"});
  job.join();
  CHECK(job.s.ends["a"] == job_end::runs);
  CHECK(job.s.ends["b"] == job_end::lost);
}

TEST_CASE("wrong evidence against who holds state alone costs nothing while its lease holds") {
  slow_updates job;
  job.wait = std::chrono::milliseconds(500), job.lease = std::chrono::seconds(1), job.steps = 3;
  degrees cut;
  cut.pp = 2;
  job.add("a", cut, 0), job.add("b", cut, 3);
  slow_updates::reach(*job.all[0], 1);
  job.say_gone("b", job_phase::idle);
  job.check_done({"a", "b"});
  CHECK(job.s.worlds.size() >= 2);
  CHECK(job.s.waits ==
        std::vector<std::string>{"a: b has its lease, did not promise, and may hold what nobody else has"});
}

TEST_CASE("a job that waits goes on with a member that promises late") {
  slow_updates job;
  job.wait = std::chrono::milliseconds(500), job.ready = std::chrono::milliseconds(1000);
  job.steps = 3, job.least_members = 2;
  const degrees three{.dp = 3};
  job.add("a", three, 0), job.add("b", three, 3), job.add("c", three, 0, "updated");
  job.check_done({"a", "b"});
  CHECK(std::count_if(job.s.waits.begin(), job.s.waits.end(), [](const std::string& one) {
          return one.find("1 member is there, and a world has at least 2") != one.npos;
        }) == 1);
}

TEST_CASE("a job that waited for whom it heard nothing of, and then for somebody to come, told both") {
  slow_updates job;
  job.lease = std::chrono::milliseconds(700), job.ready = std::chrono::milliseconds(1500), job.steps = 2;
  job.least_members = 4;
  degrees cut{.dp = 2};
  cut.pp = 2;  // a and b have the first layer, c and d the second
  job.add_next("a", cut, 0), job.add_next("b", cut, 0), job.add_next("c", cut, 4), job.add_next("d", cut, 0, "updated");
  const auto told = [&](const char* words) {
    const std::lock_guard lock(job.s.mutex);
    return std::count_if(job.s.waits.begin(), job.s.waits.end(),
                         [&](const std::string& one) { return one.find(words) != one.npos; });
  };
  const auto begun = std::chrono::steady_clock::now();
  while (told("a: wait; ") == 0 && std::chrono::steady_clock::now() - begun < std::chrono::seconds(20))
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  CHECK(told("a: c has its lease, did not promise") == 1);
  CHECK(told("a: wait; ") == 1);
  job.ready = std::chrono::seconds(60);
  job.add("e", cut, 0);
  job.check_done({"a", "b", "c", "e"});
}
