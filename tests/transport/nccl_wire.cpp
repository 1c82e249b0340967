// SPDX-License-Identifier: Apache-2.0
// What goes wrong over NCCL, on its emulation: every call of NCCL and CUDA that fails, in turn; processes that are
// killed or stopped while they pack, exchange, unpack or wait; communicators that are aborted together. Who lives says
// so in time, nothing is left over, and what is said to lie in memory lies there.
#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <sys/mman.h>

#include <reshard/switch/attempt_switch.hpp>
#include <reshard/switch/torn_switch.hpp>
#include <reshard/transport/nccl.hpp>
#include <reshard/transport/socket_meeting.hpp>

#include "../../tools/lib/device_storage.hpp"
#include "../support/dice.hpp"
#include "../support/emulated_copies.hpp"
#include "../support/faults.hpp"
#include "../support/held_elements.hpp"
#include "../support/processes.hpp"
#include "../support/tiny.hpp"
#include "../support/tries.hpp"

using namespace reshard;
using testing::device_storage, testing::dice, testing::element_map, testing::left_behind, testing::never_zero,
    testing::now, testing::processes, testing::words_of;

namespace {

constexpr patience two_seconds = std::chrono::seconds(2);

const bool set_up = [] {
  ::setenv("EMULATION_PEER_KIB", "64", 0);
  return true;
}();

/// Text that processes and their parent share.
class shared_text {
 public:
  shared_text() {
    void* at = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    REQUIRE(at != MAP_FAILED);
    text_ = static_cast<char*>(at);
  }
  shared_text(const shared_text&) = delete;
  ~shared_text() { ::munmap(text_, bytes); }
  void say(const std::string& words) { std::snprintf(text_, bytes, "%s", words.c_str()); }
  std::string said() const { return text_; }

 private:
  static constexpr std::size_t bytes = 1 << 16;
  char* text_;
};

/// What a device finds in memory after a switch that ended so: how many elements are not as it says.
long wrong_after(const computed_switch& change, const switch_ending& ending, rank_t d, device_storage& before,
                 device_storage& after) {
  if (const ended::torn* t = std::get_if<ended::torn>(&ending)) {
    const auto boxes = torn_boxes(change, *t);
    return static_cast<long>(
        device_storage::compare_boxes(binding_after(boxes, d, before.tensors, after.tensors), change.to(), never_zero{})
            .wrong);
  }
  const bool is_new = ending.index() == 0 || ending.index() == 4;
  const binding& whole = is_new ? after.tensors : before.tensors;
  const comparison found = device_storage::compare_boxes(whole, is_new ? change.to() : change.from(), never_zero{});
  return static_cast<long>(found.wrong) + (found.elements > 0 ? 0 : 1);
}

/// Where a process strikes itself: in a stage, in the midst of something.
struct strike {
  int number = 0;  // the signal; 0: not this process
  enum class moment { pack, exchange, unpack, wait } when = moment::pack;
  int third = 0;  // of the stages
  left_behind* left = nullptr;
  index_t stage = 0, slot = -1;

  void begin(index_t stages, index_t at) {
    left->stages = static_cast<long>(stages);
    stage = third == 0 ? 0 : third == 2 ? stages - 1 : stages / 2;
    slot = at;
  }
  void at(moment now_is, index_t of) {
    if (number == 0 || when != now_is || of != stage || left->reached != 0) return;
    left->seconds = now();
    left->reached = 1;
    ::raise(number);
  }
};
strike strikes;  // this process's

/// How long a process does nothing before it posts and after it.
struct idleness {
  std::chrono::milliseconds before{0}, after{0};
};
idleness idles;  // this process's

/// The wire, that strikes after it has begun something.
class struck_wire : public nccl_wire<socket_meeting> {
 public:
  using nccl_wire::nccl_wire;
  void copy(copies_of which, const copy_table& table) {
    nccl_wire::copy(which, table);
    if (which == copies_of::outgoing) strikes.at(strike::moment::pack, strikes.slot);
    else strikes.at(strike::moment::unpack, strikes.slot - 1);
  }
  void post() {
    std::this_thread::sleep_for(idles.before);
    nccl_wire::post();
    std::this_thread::sleep_for(idles.after);
    strikes.at(strike::moment::exchange, strikes.slot);
  }
};
class struck_endpoint : public nccl_endpoint<socket_meeting, struck_wire> {
 public:
  using nccl_endpoint::nccl_endpoint;
  void move(exchange_moves& m, index_t slot) {
    strikes.begin(m.slots, slot);
    nccl_endpoint::move(m, slot);
  }
  void await(index_t k) {
    strikes.at(strike::moment::wait, k);
    nccl_endpoint::await(k);
  }
};
static_assert(Transport<struck_endpoint>);
static_assert(nccl_round_bytes == 268'435'456);  // 256 MiB

/// One fault, from the start of its processes to the judgement of what they left behind.
class faulted {
 public:
  struct cell {
    rank_t victim;
    int third, when, number;
    bool keep;
    arenas_are arenas;
  };
  explicit faulted(const cell& c, long seed) : cell_(c), seed_(seed), all_(change_.devices()) {
    for (rank_t d = 0; d < change_.devices(); ++d) {
      later_.emplace_back("127.0.0.1:0");
      addresses_.push_back("127.0.0.1:" + std::to_string(later_.back()->port()));
    }
    all_.start_all([&](long d, listening_socket l, left_behind& left) { process(d, std::move(l), left); });
    later_.clear();
    judge();
  }
  double slowest = 0;
  long lost = 0, elements = 0;
  std::string ending;

 private:
  void judge() {
    CAPTURE(cell_.victim);
    CAPTURE(cell_.third);
    CAPTURE(cell_.when);
    CAPTURE(cell_.number);
    CAPTURE(cell_.keep);
    CAPTURE(seed_);
    REQUIRE(all_.ended_within(40, cell_.number == SIGSTOP ? cell_.victim : -1));
    const left_behind& struck = all_.of(cell_.victim);
    CHECK(struck.reached == 1);
    CHECK(struck.stages >= 3);
    std::string survivors, first;
    for (rank_t d = 0; d < change_.devices(); ++d)
      if (d != cell_.victim) survivors += (survivors.empty() ? "" : ",") + std::to_string(d);
    for (rank_t d = 0; d < change_.devices(); ++d)
      if (d != cell_.victim) judge_survivor(d, survivors, first);
    if (cell_.number != SIGSTOP) return;
    all_.send_signal(cell_.victim, SIGCONT);  // it wakes, and finds out
    REQUIRE(all_.ended_within(40));
    const std::string said = struck.sentence;
    CAPTURE(said);
    CHECK((said.starts_with(cell_.keep ? "failed|" : "torn ") || (said.starts_with("unknown|") && cell_.third == 2)));
    CHECK(struck.wrong == 0);
    CHECK(struck.several == 1);
    CHECK(said.find("device " + std::to_string(cell_.victim) + " was given up") != said.npos);
  }
  void judge_survivor(rank_t d, const std::string& survivors, std::string& first) {
    const left_behind& left = all_.of(d);
    CAPTURE(d);
    const std::string said = left.sentence, words = said.substr(0, said.find('|'));
    CAPTURE(said);
    if (first.empty()) first = words;
    CHECK(words == first);
    const bool in_doubt = words.starts_with("unknown ");
    CHECK((words.starts_with(cell_.keep ? "failed " : "torn ") ||
           (in_doubt && cell_.victim == 0 && cell_.third == 2 && cell_.when > 0)));
    CHECK(words.ends_with(" " + survivors));
    CHECK(said.find("device " + std::to_string(cell_.victim) +
                    (cell_.number == SIGKILL ? " is gone" : " was given up")) != said.npos);
    const double seconds = left.seconds - all_.of(cell_.victim).seconds;
    CHECK(seconds < (cell_.number == SIGKILL ? 2 : 4));
    CHECK(left.wrong == 0);
    CHECK(left.reached == 2);  // it went on
    CHECK(left.several == 1);  // no rule was broken, no handle left
    slowest = std::max(slowest, seconds), lost += left.kernel_agrees, elements += left.elements;
    ending = words.substr(0, words.find(' '));
  }

  void process(rank_t d, listening_socket listening, left_behind& left) {
    listening_socket later = std::move(*later_[static_cast<std::size_t>(d)]);
    later_.clear();
    emulation::seed(static_cast<std::uint64_t>(seed_ * 100 + d));
    {
      const int gpu = static_cast<int>(d);
      device_granules pool(gpu);
      device_storage before(change_.from(), d, "before", pool, pages_are::committed),
          after(change_.to(), d, "after", pool, pages_are::reserved);
      before.fill(change_.from(), never_zero{});
      std::optional<switch_ending> end;
      {
        strikes = {};
        strikes.left = &left;
        if (d == cell_.victim)
          strikes.number = cell_.number, strikes.third = cell_.third,
          strikes.when = static_cast<strike::moment>(cell_.when);
        socket_meeting meeting(d, all_.addresses, std::move(listening), two_seconds);
        struck_endpoint here(meeting, gpu, {.arenas = cell_.arenas, .fixed_bytes = 0});
        end = attempt_switch(
            change_, before.tensors, after.tensors, here,
            {.budget = cell_.keep ? 12_MiB : 8_MiB, .after_use = cell_.keep ? sources::keep : sources::release});
        if (d != cell_.victim) left.seconds = now();
      }
      left.say(words_of(*end) + "|" + sentence_of(*end));
      left.wrong += wrong_after(change_, *end, d, before, after);
      if (d != cell_.victim) go_on(*end, d, std::move(later), pool, before, after, left);
    }
    emulation::finish();
    left.several = 1;
  }
  /// The survivors' new world: a new communicator, with seats for those who live.
  void go_on(const switch_ending& end, rank_t d, listening_socket listening, device_granules& pool,
             device_storage& before, device_storage& after, left_behind& left) {
    element_map held(change_.to());
    const space then(testing::tiny(layers), parse_degrees("dp=3,zero=1"));
    if (const ended::torn* t = std::get_if<ended::torn>(&end)) {
      for (const rank_t s : t->survivors) held.add_survivor(change_, s, *t, nullptr, nullptr);
      const std::vector<torn_box> boxes = torn_boxes(change_, *t);
      const torn_layout layout = layout_after(change_, boxes, t->survivors);
      binding rest = binding_after(boxes, d, before.tensors, after.tensors);
      const layout_switch next(layout.shards, then, layout.placed(device_map(t->survivors)));
      return move_on(next, t->survivors, rest, held, d, std::move(listening), pool, left);
    }
    const bool is_new = std::holds_alternative<ended::unknown>(end);
    const std::vector<rank_t> survivors =
        is_new ? std::get<ended::unknown>(end).survivors : std::get<ended::failed>(end).survivors;
    const oracle::model m{
        .layers = layers, .hidden = 64, .heads = 4, .groups = 4, .head_dim = 16, .ffn = 128, .vocab = 256, .moe = {}};
    const auto holds = element_map::told_by_oracle(m, is_new ? to_text : from_text);
    for (const rank_t s : survivors) held.add(holds[static_cast<std::size_t>(s)]);
    const layout_switch next(is_new ? change_.to() : change_.from(), then,
                             {.to = device_map(survivors),
                              .devices = change_.devices(),
                              .lost = {cell_.victim},
                              .lost_elements = when_lost::leave_out});
    move_on(next, survivors, is_new ? after.tensors : before.tensors, held, d, std::move(listening), pool, left);
  }
  template <typename Next>
  void move_on(const Next& next, const std::vector<rank_t>& survivors, binding& source, const element_map& held,
               rank_t d, listening_socket listening, device_granules& pool, left_behind& left) {
    std::vector<std::string> addresses = addresses_;
    for (rank_t a = 0; a < change_.devices(); ++a)
      if (std::find(survivors.begin(), survivors.end(), a) == survivors.end())
        addresses[static_cast<std::size_t>(a)].clear();
    socket_meeting meeting(d, addresses, std::move(listening), two_seconds * 4);
    nccl_endpoint again(meeting, static_cast<int>(d));
    device_storage fresh(next.to(), next.to_rank(d), "fresh", pool, pages_are::reserved);
    switch_state(next, source, fresh.tensors, again, {.after_use = sources::keep});
    const comparison found = fresh.compare(next.to(), never_zero{});
    element_map gone(next.to());
    gone.add_lost(make_plan(next, d));
    const auto [wrong, missing] = held.judge(fresh.twin(), gone);
    left.wrong += wrong, left.kernel_agrees = missing;
    left.elements = static_cast<long>(found.elements);
    left.reached = 2;
  }

  static constexpr index_t layers = 24;
  static constexpr const char *from_text = "tp=2,pp=2,zero=1", *to_text = "dp=4,zero=1";
  const cell cell_;
  const long seed_;
  const computed_switch change_ = testing::tiny_switch(layers, from_text, to_text);
  processes all_;
  std::vector<std::optional<listening_socket>> later_;  // of the survivors' world
  std::vector<std::string> addresses_;
};

/// A failure that one device meets: the n-th call of a function.
struct failure {
  std::string function;
  long nth = 1;
};
struct world_of_failures {
  computed_switch change = testing::tiny_switch(24, "tp=2,pp=2,zero=1", "dp=4,zero=1");
  shared_text counts;
  std::optional<failure> fails = {};
  long victim = 1, seed = 1;

  void take_part(long d, listening_socket listening, processes& all, left_behind& left) {
    const int gpu = static_cast<int>(d);
    emulation::seed(static_cast<std::uint64_t>(seed * 100 + d));
    if (fails && d == victim) emulation::fail(fails->function, fails->nth);
    try {
      socket_meeting meeting(d, all.addresses, std::move(listening), two_seconds);
      device_granules pool(gpu);
      device_storage before(change.from(), d, "before", pool, pages_are::committed),
          after(change.to(), d, "after", pool, pages_are::reserved);
      before.fill(change.from(), never_zero{});
      left.stages = 1;  // from here on it is the library's
      const bytes_t held = before.mapped_bytes();
      nccl_endpoint here(meeting, gpu,
                         {.arenas = seed % 2 == 0 ? arenas_are::registered : arenas_are::plain, .fixed_bytes = 0});
      const switch_ending ending = attempt_switch(change, before.tensors, after.tensors, here, {.budget = 8_MiB});
      left.say(words_of(ending) + "|" + sentence_of(ending));
      left.elements = 1 + static_cast<long>(ending.index());
      if (std::holds_alternative<ended::refused>(ending))
        left.wrong += before.mapped_bytes() == held && after.mapped_bytes() == 0 ? 0 : 1;
      const long met = emulation::failures_met();
      try {
        left.wrong += wrong_after(change, ending, d, before, after);
      } catch (const std::exception& e) {
        if (emulation::failures_met() == met) throw;
        left.say(words_of(ending) + "|not read: " + e.what());  // it failed here, in what this test does afterwards
      }
    } catch (const std::exception& e) {
      left.say(std::string("none|") + e.what());
    }
    if (!fails && d == victim) {
      std::string text;
      for (const emulation::call_count& c : emulation::counts())
        text += c.function + " " + std::to_string(c.calls) + "\n";
      counts.say(text);
    }
    left.several = emulation::failures_met();
    emulation::finish();
    left.reached = 1;
  }
  std::unique_ptr<processes> run() {
    auto all = std::make_unique<processes>(change.devices());
    all->start_all(
        [&](long d, listening_socket listening, left_behind& left) { take_part(d, std::move(listening), *all, left); });
    REQUIRE(all->ended_within(60));
    return all;
  }
};

}  // namespace

TEST_CASE("every call that fails, at its first use and at a later one: a sentence on every device, no hang, no leak") {
  world_of_failures world;
  const auto clean = world.run();
  for (long d = 0; d < 4; ++d) {
    CHECK(std::string(clean->of(d).sentence) == "finished|");
    CHECK(clean->of(d).reached == 1);
    CHECK(clean->of(d).wrong == 0);
  }
  std::map<std::string, long> calls;
  const std::string text = world.counts.said();
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t gap = text.find(' ', at), end = text.find('\n', at);
    calls[text.substr(at, gap - at)] = std::atol(text.c_str() + gap);
    at = end + 1;
  }
  CHECK(calls.size() > 20);
  dice random(101);
  std::map<std::string, int> endings;
  long met = 0, told = 0, tried = 0, unread = 0, why_told = 0;
  const auto try_one = [&](const failure& f) {
    world.fails = f, world.victim = random.below(4), world.seed = ++tried;
    const std::string what = f.function + " " + std::to_string(f.nth);
    CAPTURE(what);
    CAPTURE(world.victim);
    CAPTURE(world.seed);
    const auto all = world.run();
    const bool is_met = all->of(world.victim).several > 0;
    met += is_met ? 1 : 0;
    int without = 0;
    std::string every;
    for (long d = 0; d < 4; ++d) {
      const left_behind& left = all->of(d);
      const std::string said = left.sentence;
      CAPTURE(d);
      CAPTURE(said);
      every += "\n" + std::to_string(d) + ": " + said;
      CHECK(left.reached == 1);
      CHECK(left.wrong == 0);
      without += said.starts_with("finished|") ? 1 : 0;
      unread += said.find("|not read: ") != said.npos ? 1 : 0;
      ++endings[said.substr(0, said.find_first_of("| "))];
    }
    CAPTURE(every);
    CHECK((without == 0 || without == 4));  // what gives back at the end may fail unheard
    if (is_met && f.nth == 1 && without == 4) {
      const auto gives_back = [&](const char* words) { return f.function.find(words) != f.function.npos; };
      CHECK((gives_back("Free") || gives_back("Release") || gives_back("Unmap") || gives_back("Destroy") ||
             gives_back("Finalize") || gives_back("LastError") || gives_back("PrimaryCtx")));
    }
    if (without == 0) {  // the others hear why; of what fails before there is a world, that who failed is gone
      const std::string whole = all->of(world.victim).sentence, why = whole.substr(whole.find("|reshard: ") + 10);
      for (long d = 0; d < 4; ++d) {
        const std::string said = all->of(d).sentence;
        const bool gone = said.ends_with(" has left; a world serves one run") && !f.function.starts_with("nccl");
        CHECK((d == world.victim || gone || said.find(why) != said.npos));
        why_told += d != world.victim && !gone ? 1 : 0;
      }
    }
    if (!is_met) CHECK(without == 4);
    told += without == 0 ? 1 : 0;
  };
  const long share = testing::asked_for("RESHARD_FAILURES", testing::few() ? 4 : 1);
  long n = 0;
  for (const auto& [function, count] : calls) {
    if (n++ % share != 0) continue;
    try_one({function, 1});
    if (count > 1) try_one({function, random.within(2, count)});
  }
  std::string of;
  for (const auto& [ending, count] : endings) of += " " + ending + " " + std::to_string(count);
  MESSAGE(tried << " failures, met " << met << ", told " << told << ", in reading what came " << unread << ";" << of);
  CHECK_DRAWN(told > tried / 3);
  CHECK_DRAWN(unread < tried / 8);
  CHECK_DRAWN(why_told > tried / 2);
}

TEST_CASE("who is killed or stopped packing, exchanging, unpacking or waiting: told in time, and the others go on") {
  std::vector<faulted::cell> cells;
  for (rank_t victim = 0; victim < 4; ++victim)
    for (int third = 0; third < 3; ++third)
      for (int when = 0; when < 4; ++when)
        for (const int number : {SIGKILL, SIGSTOP}) {
          if (when == 3 && third > 0) continue;  // of few stages it may have everything by then, and has said so
          for (const bool keep : {true, false})
            cells.push_back({victim, third, when, number, keep,
                             (third + when) % 2 == 0 ? arenas_are::registered : arenas_are::plain});
        }
  dice random(102);
  for (std::size_t i = cells.size(); i > 1; --i)
    std::swap(cells[i - 1], cells[static_cast<std::size_t>(random.below(static_cast<std::int64_t>(i)))]);
  const auto count = static_cast<std::size_t>(testing::asked_for("RESHARD_CELLS", testing::tries(testing::thrown(24))));
  cells.resize(std::min(cells.size(), count));
  double slowest[2] = {};
  std::map<std::string, int> endings;
  long lost = 0, elements = 0, seed = 0;
  for (const faulted::cell& c : cells) {
    const faulted f(c, ++seed);
    double& most = slowest[c.number == SIGKILL ? 0 : 1];
    most = std::max(most, f.slowest);
    lost += f.lost, elements += f.elements;
    ++endings[f.ending];
  }
  std::string of;
  for (const auto& [ending, times] : endings) of += " " + ending + " " + std::to_string(times);
  MESSAGE(cells.size() << " faults:" << of << "; told within " << slowest[0] << " s of a death, " << slowest[1]
                       << " s of a stop; " << lost << " elements lost of " << elements);
  CHECK(lost > 0);
}

TEST_CASE("communicators that are at something are aborted together, the trainer's as well") {
  ::setenv("EMULATION_SYNC", "never", 1);
  const computed_switch change = testing::tiny_switch(2, "dp=3,zero=1", "pp=2,dp=1");
  processes all(3);
  all.start_all([&](long d, listening_socket listening, left_behind& left) {
    emulation::seed(static_cast<std::uint64_t>(d));
    {
      const int gpu = static_cast<int>(d);
      const auto must = [](ncclResult_t code) { detail::require_nccl(code, "do what a test wants"); };
      socket_meeting meeting(d, all.addresses, std::move(listening), two_seconds);
      detail::require_cuda(cudaSetDevice(gpu), "use a device");
      ncclUniqueId id = {};
      if (d == 0) must(ncclGetUniqueId(&id));
      const std::string told = meeting.gather({id.internal, sizeof id.internal})[0];
      std::copy(told.begin(), told.end(), id.internal);
      nccl_communicator trainer;
      cuda_stream stream;
      nccl_memory memory(gpu, 4096);
      const auto settle = [&](ncclResult_t code) {
        for (must(code); (code = trainer.state()) == ncclInProgress;) meeting.poll();
        must(code);
      };
      settle(trainer.begin(3, id, gpu, NCCL_CONFIG_INITIALIZER));
      for (const bool answered : {true, false}) {  // the second time nobody sends
        must(ncclGroupStart());
        if (d < 2) must(ncclRecv(memory.data(), 512, ncclUint8, 2, trainer.get(), stream.get()));
        for (int peer = 0; answered && d == 2 && peer < 2; ++peer)
          must(ncclSend(memory.data(), 512, ncclUint8, peer, trainer.get(), stream.get()));
        settle(ncclGroupEnd());
        while (answered && !stream.idle()) meeting.poll();
      }
      device_granules pool(gpu);
      const rank_t t = change.to_rank(d);
      device_storage before(change.from(), d, "before", pool, pages_are::committed), none;
      std::optional<device_storage> after;
      if (t >= 0) after.emplace(change.to(), t, "after", pool, pages_are::committed);
      before.fill(change.from(), never_zero{});
      strikes = {};
      strikes.left = &left;
      if (d == 2) strikes.number = SIGKILL;
      std::optional<switch_ending> end;
      {
        struck_endpoint here(meeting, gpu, {.aborted_with = {trainer.get()}});
        end = attempt_switch(change, before.tensors, after ? after->tensors : none.tensors, here,
                             {.after_use = sources::keep});
        trainer.forget();
      }
      left.say(words_of(*end) + "|" + sentence_of(*end));
      left.wrong = wrong_after(change, *end, d, before, after ? *after : none);
    }
    emulation::finish();
    left.reached = 2;
  });
  ::unsetenv("EMULATION_SYNC");
  REQUIRE(all.ended_within(30));
  for (long d = 0; d < 2; ++d) {
    CHECK(std::string(all.of(d).sentence) == "failed 0,1|reshard: device 2 is gone: its connection ended");
    CHECK(all.of(d).wrong == 0);
    CHECK(all.of(d).reached == 2);
  }
}

TEST_CASE("what can't be done over NCCL is refused on all devices, and nothing is touched") {
  const computed_switch change = testing::tiny_switch(2, "tp=2", "dp=2,zero=1");
  enum what { checks, on_host, elsewhere, short_of, budget, of_one_world };
  const auto said = [&](what asked) {
    processes all(2);
    all.start_all([&](long d, listening_socket listening, left_behind& left) {
      emulation::seed(static_cast<std::uint64_t>(d));
      {
        const int gpu = static_cast<int>(d);
        socket_meeting meeting(d, all.addresses, std::move(listening), two_seconds);
        device_granules pool(gpu), other(gpu + 2);
        device_storage before(change.from(), d, "before", pool, pages_are::committed),
            after(change.to(), d, "after", asked == elsewhere && d == 1 ? other : pool, pages_are::reserved);
        rank_storage host(change.to(), d, "after");
        binding* into = &after.tensors;
        if (asked == on_host && d == 1) into = &host.tensors();
        before.fill(change.from());
        std::optional<device_storage> cut;
        if (asked == short_of && d == 0) {
          cut.emplace(change.to(), d, "after", gpu);
          cut->cut_short();
          into = &cut->tensors;
        }
        try {
          nccl_endpoint here(meeting, asked == of_one_world && d == 1 ? 63 : gpu,
                             {.fixed_bytes = asked == budget ? bytes_t{20'000'000} : bytes_t{-1}});
          switch_state(change, before.tensors, *into, here,
                       {.budget = asked == budget ? bytes_t{19'000'000} : no_budget, .checks = asked == checks});
          left.say("accepted");
        } catch (const std::exception& e) {
          left.say(e.what());
        }
        left.wrong = static_cast<long>(before.compare(change.from()).wrong) + (after.mapped_bytes() == 0 ? 0 : 1);
      }
      emulation::finish();
      left.reached = 1;
    });
    REQUIRE(all.ended_within(30));
    std::vector<std::string> sentences;
    for (long d = 0; d < 2; ++d) {
      CHECK(all.of(d).reached == 1);
      CHECK(all.of(d).wrong == 0);
      sentences.emplace_back(all.of(d).sentence);
    }
    return sentences;
  };
  const auto has = [](const std::string& sentence, const char* words) { return sentence.find(words) != sentence.npos; };
  std::vector<std::string> all = said(checks);
  CHECK(
      all[0] ==
      "reshard: device 0 is asked to check messages, and over NCCL they are not: they never are in the host's memory; "
      "switch without checks, or over sockets");
  CHECK(all[1].starts_with("reshard: device 1 is asked to check messages"));
  try {
    detail::require_nccl(ncclInvalidUsage, "join a world");
    FAIL("nothing was thrown");
  } catch (const std::runtime_error& e) {
    CHECK(std::string(e.what()).starts_with(std::string("reshard: NCCL could not join a world: ") +
                                            ::ncclGetErrorString(ncclInvalidUsage)));
  }
  all = said(on_host);
  CHECK(all[1] == "reshard: device 1, after: lies in host memory, which this transport does not reach");
  CHECK(has(all[0], "device 1 refused the switch: device 1, after: lies in host memory"));
  all = said(elsewhere);
  CHECK(all[1] == "reshard: device 1, after: lies in device memory of device 3, which this transport does not reach");
  all = said(short_of);
  CHECK(has(all[0], " bytes from where it begins, and its allocation on device 0 has "));
  CHECK(has(all[1], "device 0 refused the switch: after: "));
  all = said(budget);
  for (const std::string& sentence : all)
    CHECK(has(sentence, "a budget of 19000000 bytes, and the transport holds 20000000 whatever the stages"));
  all = said(of_one_world);
  CHECK(has(all[1], "reshard: CUDA could not use a device: "));
  CHECK(has(all[0], "reshard: no world over NCCL, as device 1 says: reshard: CUDA could not use a device: "));
}

namespace {

/// Takes the device's free memory as a new owner would, and looks whether somebody else still writes to it.
long written_by_others(int gpu) {
  constexpr std::size_t bytes = 2 << 20;
  const std::vector<unsigned char> mine(bytes, 0x5A);
  std::vector<std::unique_ptr<nccl_memory>> taken;
  for (int i = 0; i < 8; ++i) {
    taken.push_back(std::make_unique<nccl_memory>(gpu, static_cast<bytes_t>(bytes)));
    emulation::poke(taken.back()->data(), mine.data(), bytes);
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  long wrong = 0;
  std::vector<unsigned char> found(bytes);
  for (const auto& one : taken) {
    emulation::peek(found.data(), one->data(), bytes);
    wrong += found == mine ? 0 : 1;
  }
  return wrong;
}

}  // namespace

TEST_CASE("arenas stay where they are until every device that lives has aborted") {
  using std::chrono::milliseconds;
  // Both others send to 0 alone. 2 dies when 0 has posted; and 1, which posts later, writes into 0's arena before it
  // hears of that, as it is busy.
  const std::vector<shard> rows = {{1, "wte", bf16, {512, 256}, {0, 0}, {256, 256}},
                                   {2, "wte", bf16, {512, 256}, {256, 0}, {256, 256}}};
  const std::vector<shard> whole = {{0, "wte", bf16, {512, 256}, {0, 0}, {512, 256}}};
  const layout_switch change(rows, whole);
  for (long seed = 0; seed < testing::tries(8); ++seed) {
    CAPTURE(seed);
    processes all(3);
    all.start_all([&](long d, listening_socket listening, left_behind& left) {
      emulation::seed(static_cast<std::uint64_t>(seed * 10 + d));
      {
        const int gpu = static_cast<int>(d);
        device_granules pool(gpu);
        device_storage before(change.from(), change.from_rank(d), "before", pool, pages_are::committed),
            after(change.to(), change.to_rank(d), "after", pool, pages_are::reserved);
        strikes = {};
        strikes.left = &left;
        if (d == 1) idles = {milliseconds(80), milliseconds(60)};
        if (d == 2)
          strikes.number = SIGKILL, strikes.when = strike::moment::exchange,
          idles = {milliseconds(0), milliseconds(40)};
        socket_meeting meeting(d, all.addresses, std::move(listening), two_seconds);
        {
          struck_endpoint here(meeting, gpu);
          try {
            switch_state(change, before.tensors, after.tensors, here);
          } catch (const peer_failed& e) {
            left.say(e.what());
          }
        }
        left.wrong = written_by_others(gpu);
      }
      emulation::finish();
      left.reached = 2;
    });
    REQUIRE(all.ended_within(30));
    for (long d = 0; d < 2; ++d) {
      CHECK(std::string(all.of(d).sentence) == "reshard: device 2 is gone: its connection ended");
      CHECK(all.of(d).wrong == 0);
      CHECK(all.of(d).reached == 2);
    }
  }
}

namespace {

/// A world of one device, in a process of its own; what body(meeting, left) leaves behind.
template <typename Body>
left_behind alone_on_a_device(patience wait, Body&& body) {
  processes all(1);
  all.start_all([&](long, listening_socket listening, left_behind& left) {
    socket_meeting meeting(0, all.addresses, std::move(listening), wait);
    body(meeting, left);
    left.reached = 1;
  });
  REQUIRE(all.ended_within(30));
  return all.of(0);
}
long calls_of(const std::string& function) {
  for (const emulation::call_count& c : emulation::counts())
    if (c.function == function) return c.calls;
  return 0;
}
/// A table of one copy within a wire's arena.
copy_table one_copy(std::byte* at) {
  copy_table table;
  table.add(at, at + 64, {.run_bytes = 64});
  return table;
}

}  // namespace

TEST_CASE("what the device never ends is not waited for by freeing: all that it may use stays, the host's memory too") {
  ::setenv("EMULATION_SYNC", "pinned", 1);
  ::setenv("EMULATION_PATIENCE_MS", "2000", 1);
  enum class never { loads, copies, breaks_off, stops, is_late };
  for (const never what : {never::loads, never::copies, never::breaks_off, never::stops, never::is_late}) {
    CAPTURE(static_cast<int>(what));
    const bool late = what == never::is_late;
    const left_behind left = alone_on_a_device(
        std::chrono::milliseconds(late ? 5000 : 300), [&](socket_meeting& meeting, left_behind& found) {
          static std::atomic<bool> held = what == never::loads, go = false;
          testing::before_copies = [](const table_copy*) {
            while (held && !go) std::this_thread::sleep_for(std::chrono::milliseconds(1));
          };
          std::optional<nccl_wire<socket_meeting>> wire;
          try {
            wire.emplace(meeting, 0, nccl_options{});
          } catch (const peer_missing& e) {
            found.say(e.what());
          }
          if (wire) {
            std::shared_ptr<std::byte> arena = wire->make_arena(device_granule_bytes);
            held = true;
            if (what == never::breaks_off) {
              copy_table parts;  // three, of which two begin
              for (index_t i = 0; i < 30'000; ++i)
                parts.add(arena.get() + 64 * i, arena.get() + 64 * i + 32, {.run_bytes = 32});
              try {
                wire->copy(copies_of::outgoing, parts);
              } catch (const refusal& e) {
                found.say(e.what());
              }
              found.wrong = wire->copied(copies_of::outgoing) ? 1 : 0;
              wire->stop();
            } else {
              wire->copy(copies_of::outgoing, one_copy(arena.get()));
            }
            std::thread later;
            if (late)
              later = std::thread([&] {
                std::this_thread::sleep_for(std::chrono::milliseconds(100));
                go = true;
              });
            if (what == never::stops) wire->stop();
            message_arenas arenas;
            arenas.whole = std::move(arena);
            wire->keep(std::move(arenas));
            wire.reset();
            if (late) later.join();
          }
          found.several = calls_of("cudaFreeHost") + calls_of("ncclMemFree");
          if (late) emulation::finish();
        });
    CHECK(left.reached == 1);
    CHECK(left.several == (late ? 4 : 0));  // two lanes' tables of the host, the device's, the arena
    CHECK(left.wrong == 0);
    const std::string said = left.sentence;
    CHECK(said.ends_with(what == never::loads        ? " ms in vain for the kernels for copies"
                         : what == never::breaks_off ? "reshard: copies on a device did not end for 1600 ms"
                                                     : ""));
    CHECK(said.empty() == (what != never::loads && what != never::breaks_off));
  }
  ::unsetenv("EMULATION_SYNC");
  ::unsetenv("EMULATION_PATIENCE_MS");
}

namespace {

/// A meeting that remembers how often a stream had been looked at when all agreed last.
class remembering_meeting : public socket_meeting {
 public:
  using socket_meeting::socket_meeting;
  agreement agree(const proposal& mine) {
    looks = calls_of("cudaEventQuery") + calls_of("cudaStreamQuery");
    return socket_meeting::agree(mine);
  }
  long looks = 0;
};

}  // namespace

TEST_CASE("who has waited a patience in vain for its kernels does not wait another one to leave") {
  ::setenv("EMULATION_SYNC", "pinned", 1);
  processes all(1);
  all.start_all([&](long, listening_socket listening, left_behind& left) {
    remembering_meeting meeting(0, all.addresses, std::move(listening), std::chrono::milliseconds(50));
    testing::before_copies = [](const table_copy*) {
      while (true) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    };
    try {
      const nccl_wire<remembering_meeting> wire(meeting, 0, {});
    } catch (const peer_missing&) {
      left.reached = 1;
    }
    left.several = calls_of("cudaEventQuery") + calls_of("cudaStreamQuery") - meeting.looks;
    left.stages = meeting.looks;
  });
  ::unsetenv("EMULATION_SYNC");
  REQUIRE(all.ended_within(30));
  CHECK(all.of(0).reached == 1);
  CHECK(all.of(0).stages > 100);
  CHECK(all.of(0).several <= 3);
}

TEST_CASE("communicators are aborted where no group can begin, one by one") {
  const left_behind left = alone_on_a_device(two_seconds, [](socket_meeting& meeting, left_behind& found) {
    {
      nccl_wire<socket_meeting> wire(meeting, 0, {});
      emulation::fail("ncclGroupStart", 1);
      wire.stop();
      found.several = emulation::failures_met();
      found.wrong = calls_of("ncclCommAbort") == 1 ? 0 : 1;
    }
    emulation::finish();
  });
  CHECK(left.several == 1);
  CHECK(left.wrong == 0);
  CHECK(left.reached == 1);
}

TEST_CASE("after stop a wire only hears the others, and refuses what would need its communicator") {
  const left_behind left = alone_on_a_device(two_seconds, [](socket_meeting& meeting, left_behind& found) {
    {
      nccl_wire<socket_meeting> wire(meeting, 0, {.arenas = arenas_are::registered});
      const std::shared_ptr<std::byte> arena = wire.make_arena(device_granule_bytes);
      message out{0, 0, arena.get(), 64}, in{0, 0, arena.get() + 64, 64};
      wire.send(out), wire.receive(in);
      wire.stop();
      wire.poll(std::chrono::microseconds(100));
      found.several = (out.done || in.done ? 1 : 0) + (wire.idle() && wire.copied(copies_of::incoming) ? 0 : 1);
      const auto refused = [](auto&& call) {
        try {
          call();
        } catch (const std::exception& e) {
          return std::string(e.what()) == "reshard: device 0 has stopped its wire; no message goes any more";
        }
        return false;
      };
      wire.post();  // nothing is left to go
      wire.send(out), wire.receive(in);
      found.wrong += refused([&] { wire.post(); }) ? 0 : 1;
      found.wrong += refused([&] { static_cast<void>(wire.make_arena(device_granule_bytes)); }) ? 0 : 1;
      wire.poll(std::chrono::microseconds(100));
      wire.stop();
    }
    emulation::finish();
  });
  CHECK(std::string(left.sentence) == "");
  CHECK(left.reached == 1);
  CHECK(left.several == 0);
  CHECK(left.wrong == 0);
}

namespace {

/// A wire that counts how often it is asked for packing while what came is not yet unpacked.
class asked_wire : public nccl_wire<socket_meeting> {
 public:
  using nccl_wire::nccl_wire;
  bool copied(copies_of which) {
    if (which == copies_of::outgoing && !nccl_wire::copied(copies_of::incoming)) ++asked;
    return nccl_wire::copied(which);
  }
  static inline long asked = 0;
};

}  // namespace

TEST_CASE("what has come is in place without a wait for what is being packed") {
  const left_behind alone = alone_on_a_device(two_seconds, [](socket_meeting& meeting, left_behind& found) {
    {
      nccl_wire<socket_meeting> wire(meeting, 0, {});
      const std::shared_ptr<std::byte> out = wire.make_arena(device_granule_bytes),
                                       in = wire.make_arena(device_granule_bytes);
      static std::atomic<bool> first = true, go = false;
      testing::before_copies = [](const table_copy*) {
        if (!first.exchange(false)) return;
        while (!go) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      };
      wire.copy(copies_of::outgoing, one_copy(out.get()));
      while (first) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      wire.copy(copies_of::incoming, one_copy(in.get()));
      const double began = now();
      while (!wire.copied(copies_of::incoming) && now() < began + 1) wire.poll(std::chrono::milliseconds(2));
      found.wrong = (wire.copied(copies_of::incoming) ? 0 : 1) + (wire.copied(copies_of::outgoing) ? 1 : 0);
      go = true;
      while (!wire.copied(copies_of::outgoing)) wire.poll(std::chrono::milliseconds(2));
    }
    emulation::finish();
  });
  CHECK(alone.reached == 1);
  CHECK(alone.wrong == 0);

  const computed_switch change = testing::tiny_switch(2, "tp=2", "dp=2,zero=1");
  processes all(2);
  all.start_all([&](long d, listening_socket listening, left_behind& left) {
    emulation::seed(static_cast<std::uint64_t>(d));
    {
      socket_meeting meeting(d, all.addresses, std::move(listening), two_seconds);
      nccl_endpoint<socket_meeting, asked_wire> here(meeting, static_cast<int>(d), {.round_bytes = least_round_bytes});
      device_granules pool(static_cast<int>(d));
      device_storage before(change.from(), d, "before", pool, pages_are::committed),
          after(change.to(), d, "after", pool, pages_are::reserved);
      before.fill(change.from());
      switch_state(change, before.tensors, after.tensors, here);
      left.wrong = static_cast<long>(after.compare(change.to()).wrong);
      left.several = asked_wire::asked;
    }
    emulation::finish();
    left.reached = 1;
  });
  REQUIRE(all.ended_within(30));
  for (long d = 0; d < 2; ++d) {
    CHECK(std::string(all.of(d).sentence) == "");
    CHECK(all.of(d).reached == 1);
    CHECK(all.of(d).wrong == 0);
    CHECK(all.of(d).several == 0);
  }
}

#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 28, 0)
TEST_CASE("a peer has 8 channels, or as many as the caller says") {
  for (const int said : {NCCL_CONFIG_UNDEF_INT, 1, 16}) {
    CAPTURE(said);
    const left_behind left = alone_on_a_device(two_seconds, [said](socket_meeting& meeting, left_behind& found) {
      nccl_options options;
      options.config.nChannelsPerNetPeer = said;
      const nccl_wire<socket_meeting> wire(meeting, 0, options);
      found.several = emulation::channels_per_net_peer().value_or(-1);
    });
    CHECK(left.reached == 1);
    CHECK(left.several == (said == NCCL_CONFIG_UNDEF_INT ? 8 : said));
  }
}
#endif

TEST_CASE("what is soon there is looked for again at once, and a wire that waits longer sleeps") {
  const left_behind left = alone_on_a_device(two_seconds, [](socket_meeting& meeting, left_behind& found) {
    {
      nccl_wire<socket_meeting> wire(meeting, 0, {});
      const std::shared_ptr<std::byte> arena = wire.make_arena(device_granule_bytes);
      static std::atomic<bool> go = false;
      testing::before_copies = [](const table_copy*) {
        while (!go) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      };
      const auto looks_within = [&](double seconds) {  // of the wire, at a copy that has not ended
        const long before = calls_of("cudaStreamQuery");
        for (const double end = now() + seconds; now() < end;) wire.poll(std::chrono::microseconds(100));
        return calls_of("cudaStreamQuery") - before;
      };
      std::vector<long> later;
      for (int i = 0; i < 100; ++i) {  // a machine may be away at any time: the most of the one, the other's median
        go = false;
        wire.copy(copies_of::outgoing, one_copy(arena.get()));
        found.stages = std::max(found.stages, looks_within(40e-6));
        std::this_thread::sleep_for(std::chrono::microseconds(200));
        later.push_back(looks_within(1e-3));
        go = true;
        while (!wire.copied(copies_of::outgoing)) wire.poll(std::chrono::microseconds(100));
      }
      std::nth_element(later.begin(), later.begin() + 50, later.end());
      found.several = later[50];
    }
    emulation::finish();
  });
  CHECK(left.reached == 1);
  MESSAGE(left.stages << " looks in the first 40 us, " << left.several << " in a later millisecond");
  CHECK(left.stages > 4);
  CHECK(4 * left.several < 25 * left.stages);  // of what looking at once would be, in as long
}
