// SPDX-License-Identifier: Apache-2.0
// Groups of subsets over MPI, made by their members alone, beside what the others and the trainer's own thread do over
// MPI; who does not come is named in time, and the next making goes well. The program starts itself under mpirun.
#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <set>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include <reshard/transport/mpi_processes.hpp>

#include "../support/dice.hpp"
#include "../support/mpi_processes.hpp"
#include "../support/tiny.hpp"
#include "../support/tries.hpp"

using namespace reshard;
using testing::left_behind, testing::on_ranks;
using process_list = std::vector<rank_t>;

namespace {

constexpr int started = 6;
const testing::mpi_program under_mpirun(started, true);
constexpr patience ample = std::chrono::seconds(60);

template <typename Something>
std::string thrown(Something&& something) {
  try {
    something();
    return "nothing";
  } catch (const peer_missing& e) {
    return std::string("missing: ") + e.what();
  } catch (const peer_failed& e) {
    return std::string("failed: ") + e.what();
  } catch (const std::exception& e) {
    return e.what();
  }
}

bool is_in(const process_list& members, rank_t p) {
  return std::find(members.begin(), members.end(), p) != members.end();
}

/// Some of the processes in some order, the same in all of them.
process_list subset(testing::dice& throws) {
  process_list all, some;
  for (rank_t p = 0; p < started; ++p) all.push_back(p);
  for (auto left = throws.below(started) + 1; left > 0; --left) {
    const auto at = all.begin() + static_cast<std::ptrdiff_t>(throws.below(std::ssize(all)));
    some.push_back(*at);
    all.erase(at);
  }
  return some;
}

/// What all of a group say, in rank order, is right.
bool meets(mpi_endpoint& group, const process_list& members, rank_t me) {
  if (group.devices() != static_cast<rank_t>(members.size())) return false;
  if (members[static_cast<std::size_t>(group.device())] != me) return false;
  const std::vector<std::string> said = group.gather(std::to_string(me));
  for (std::size_t i = 0; i < members.size(); ++i)
    if (said[i] != std::to_string(members[i])) return false;
  return true;
}

}  // namespace

TEST_CASE("random subsets are made in the background while all agree over another world") {
  const int tries = testing::tries(30);
  long several = 0;
  for (const left_behind& left : on_ranks(started, [&](MPI_Comm world, long, left_behind&mine) {
         mpi_processes set(world, {.wait = ample});
         mine.kernel_agrees = set.where() == groups_are_made::in_background && set.why_at_boundary().empty();
         mpi_endpoint trains(world, {.wait = ample});
         group_cache<mpi_endpoint, process_list> groups(
             [&](const process_list& members, const std::stop_token& stop) { return set.make(members, stop); });
         testing::dice throws;
         std::set<process_list> kept;
         for (int i = 0; i < tries; ++i) {
           const process_list members = subset(throws);
           if (!kept.insert(members).second) continue;  // a member may have it yet, and another not
           if (is_in(members, set.process())) groups.begin(members);
           for (int step = 0; step < 3; ++step)
             mine.wrong += trains.agree({.addend = 1}).sum == started ? 0 : 1;  // the trainer goes on
           if (!is_in(members, set.process())) continue;
           mine.several += members.size() > 1 ? 1 : 0, ++mine.reached;
           mine.wrong += meets(*groups.get(members), members, set.process()) ? 0 : 1;
           if (i % 3 == 0) groups.drop(members);  // of the others each keeps as many as it has room for
           else mine.wrong += groups.find(members) != nullptr ? 0 : 1;
         }
         mine.elements = static_cast<long>(groups.size());
       })) {
    CHECK(std::string(left.sentence) == "");
    CHECK(left.wrong == 0);
    CHECK(left.kernel_agrees == 1);
    CHECK(left.reached > 0);
    CHECK(left.elements <= 4);
    several += left.several;
  }
  MESSAGE(tries, " subsets; of several processes, counted by each member: ", several);
  CHECK(several > 0);
}

TEST_CASE("state moves over a group of some, and the others know nothing of it") {
  const process_list members = {4, 1, 3, 2};
  const computed_switch change = testing::tiny_switch(4, "tp=2,dp=2", "dp=4,zero=1");
  for (const left_behind& left : on_ranks(started, [&](MPI_Comm world, long, left_behind&mine) {
         mpi_processes set(world, {.wait = ample});
         if (!is_in(members, set.process())) return;
         const std::shared_ptr<mpi_endpoint> group = set.make(members);
         testing::switch_watched(change, *group, {.budget = 2_MiB}, mine);
       })) {
    CHECK(std::string(left.sentence) == "");
    CHECK(left.wrong == 0);
  }
}

TEST_CASE("what is no subset is refused, in words") {
  for (const left_behind& left : on_ranks(started, [&](MPI_Comm world, long, left_behind&mine) {
         mpi_processes set(world, {.wait = ample});
         const std::string me = std::to_string(set.process());
         const auto refused = [&](const process_list& members) { return thrown([&] { set.make(members); }); };
         mine.wrong += refused({0, 6}) ==
                               "reshard: a group with process 6, and MPI started 6, 0 to 5: a job over MPI "
                               "neither gains a process nor loses one"
                           ? 0
                           : 1;
         mine.wrong += refused({-1, 2}).starts_with("reshard: a group with process -1, and") ? 0 : 1;
         mine.wrong += refused({1, 2, 1}) == "reshard: a group that names process 1 twice" ? 0 : 1;
         mine.wrong += refused({}) == "reshard: process " + me + " makes a group of 0 that it is not in" ? 0 : 1;
         if (set.process() != 5)
           mine.wrong += refused({5}) == "reshard: process " + me + " makes a group of 1 that it is not in" ? 0 : 1;
       })) {
    CHECK(std::string(left.sentence) == "");
    CHECK(left.wrong == 0);
  }
}

TEST_CASE("who does not come is named in time, and afterwards the group is made") {
  for (const left_behind& left : on_ranks(started, [&](MPI_Comm world, long, left_behind&mine) {
         const process_list led = {2, 0, 1}, alone = {3, 4};
         mpi_processes set(world, {.wait = std::chrono::seconds(2)});
         mpi_endpoint all(world, {.wait = ample});
         const rank_t me = set.process();
         std::string said = "nothing", wanted = "nothing";
         const auto begun = std::chrono::steady_clock::now();
         if (me == 2) {  // 0 comes, 1 does not
           said = thrown([&] { set.make(led); });
           wanted = "missing: reshard: process 2 waited in vain for these processes to make a group of 3: 1";
         } else if (me == 0) {
           said = thrown([&] { set.make(led); });
           wanted = "missing: reshard: process 2 gave up making a group";
         } else if (me == 4) {  // who leads does not come
           said = thrown([&] { set.make(alone); });
           wanted = "missing: reshard: process 4 waited in vain for these processes to make a group of 2: 3";
         }
         const double took = std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
         mine.wrong += said == wanted && took < 30 ? 0 : 1;
         if (said != wanted) mine.say(said);
         all.gather("all have heard");
         if (me == 3)  // what 4 said before it went counts no more
           mine.wrong += thrown([&] {
                           set.make(alone);
                         }) == "missing: reshard: process 3 waited in vain for these processes to make a group of 2: 4"
                             ? 0
                             : 1;
         all.gather("3 has heard, too");
         if (is_in(led, me)) mine.wrong += meets(*set.make(led), led, me) ? 0 : 1;
         if (is_in(alone, me)) mine.wrong += meets(*set.make(alone), alone, me) ? 0 : 1;
         all.gather("all have met");
       })) {
    CHECK(std::string(left.sentence) == "");
    CHECK(left.wrong == 0);
  }
}

TEST_CASE("a making that nobody wants any more ends by its token, with who leads and with who follows") {
  for (const left_behind& left : on_ranks(started, [&](MPI_Comm world, long, left_behind&mine) {
         const process_list led = {2, 0, 1}, alone = {3, 4};
         mpi_processes set(world, {.wait = ample});
         mpi_endpoint all(world, {.wait = ample});
         const rank_t me = set.process();
         std::stop_source stop;
         std::string said = "nothing", wanted = "nothing";
         all.gather("all begin");
         const auto ended = [&](const process_list& members) {
           std::jthread later([&stop] {
             std::this_thread::sleep_for(std::chrono::seconds(3));  // 0 has come by then
             stop.request_stop();
           });
           said = thrown([&] { set.make(members, stop.get_token()); });
         };
         if (me == 2) ended(led), wanted = "failed: reshard: process 2 makes a group of 3 no more: nobody wants it";
         else if (me == 4)
           ended(alone), wanted = "failed: reshard: process 4 makes a group of 2 no more: nobody wants it";
         else if (me == 0) {
           said = thrown([&] { set.make(led); });
           wanted = "missing: reshard: process 2 gave up making a group";
         }
         mine.wrong += said == wanted ? 0 : 1;
         if (said != wanted) mine.say(said);
         all.gather("all have heard");
         if (is_in(led, me)) mine.wrong += meets(*set.make(led), led, me) ? 0 : 1;
         if (is_in(alone, me)) mine.wrong += meets(*set.make(alone), alone, me) ? 0 : 1;
         all.gather("all have met");
       })) {
    CHECK(std::string(left.sentence) == "");
    CHECK(left.wrong == 0);
  }
}

TEST_CASE("who goes when it is asked whether it is sure ends that gathering alone, and who was sure must come again") {
  using word = detail::gathering_word;
  using kind = word::kind;
  for (const left_behind& left : on_ranks(3, [&](MPI_Comm world, long, left_behind&mine) {
         const process_list members = {0, 1, 2};
         mpi_endpoint all(world, {.wait = ample});
         const mpi_communicator own(world, ample);
         const rank_t me = own.device();
         const auto expect = [&](const std::string& said, const std::string& wanted) {
           mine.wrong += said == wanted ? 0 : 1;
           if (said != wanted) mine.say(said);
         };
         const std::string in_vain =
             "missing: reshard: process 0 waited in vain for these processes to make a group of 3: ";
         if (me > 0) {  // by hand
           mpi_words words(own, 1);
           const auto hears = [&] {
             const auto end = std::chrono::steady_clock::now() + ample;
             for (detail::mpi_pause pause; std::chrono::steady_clock::now() < end; pause.again())
               if (const std::optional<mpi_word> came = words.hear()) return word::of(*came);
             throw std::runtime_error("no word came");
           };
           const auto say = [&](kind what, std::int64_t call) { words.send(word{what, call, 0, members}.body(), {0}); };
           const auto ends = [&] {
             for (words.settle(); !words.all_sent();) words.settle();
             all.gather("all went on");
           };
           say(kind::here, 1);
           mine.wrong += hears().what == kind::sure ? 0 : 1;
           if (me == 2) {
             say(kind::gone, 1);
           } else {
             mine.wrong += hears().what == kind::off ? 0 : 1;
             say(kind::yes, 1);  // too late
           }
           all.gather("2 has gone");
           if (me == 2) {
             say(kind::here, 2);
             mine.wrong += hears().what == kind::off ? 0 : 1;
           }
           all.gather("1 did not come");
           say(kind::here, 3);
           say(kind::gone, 3), say(kind::here, 4);  // another call, before it was asked about the first
           word last = hears();
           if (last.what == kind::sure && last.call == 3) last = hears();
           mine.wrong += last.what == kind::sure && last.call == 4 ? 0 : 1;
           say(kind::yes, 4);
           last = hears();
           mine.wrong += last.what == kind::go && last.call == 4 && last.number == 1 ? 0 : 1;
           return ends();
         }
         mpi_gathering gathering(own, 1, std::chrono::seconds(3));
         const auto meet = [&] {
           return thrown([&] { mine.reached = static_cast<long>(gathering.meet(members, 0, {})); });
         };
         expect(meet(), in_vain + "2");
         all.gather("2 has gone");
         expect(meet(), in_vain + "1");
         all.gather("1 did not come");
         expect(meet(), "nothing");
         mine.wrong += mine.reached == 1 ? 0 : 1;
         all.gather("all went on");
       })) {
    CHECK(std::string(left.sentence) == "");
    CHECK(left.wrong == 0);
  }
}

TEST_CASE("one that is in use is let alone: the same members have another communicator beside it") {
  for (const left_behind& left : on_ranks(started, [&](MPI_Comm world, long, left_behind&mine) {
         const process_list members = {3, 0, 5, 1};
         mpi_processes set(world, {.wait = ample});
         if (!is_in(members, set.process())) return;
         std::shared_ptr<mpi_endpoint> one = set.make(members), kept;
         if (set.process() == 5) kept = one;
         one.reset();
         const std::shared_ptr<mpi_endpoint> other = set.make(members);  // 5 uses the first yet
         mine.wrong += meets(*other, members, set.process()) && set.made() == 2 ? 0 : 1;
         kept.reset();
         const std::shared_ptr<mpi_endpoint> third = set.make(members);  // all use the second yet
         mine.wrong += meets(*third, members, set.process()) && set.made() == 3 ? 0 : 1;
         mine.wrong += meets(*other, members, set.process()) ? 0 : 1;
       })) {
    CHECK(std::string(left.sentence) == "");
    CHECK(left.wrong == 0);
  }
}

TEST_CASE("the same members have the same communicator again, and another one where theirs broke") {
  for (const left_behind& left : on_ranks(started, [&](MPI_Comm world, long, left_behind&mine) {
         const process_list members = {3, 0, 5, 1};
         mpi_processes set(world, {.wait = ample});
         if (!is_in(members, set.process())) return;
         for (int i = 0; i < 6; ++i) {
           const std::shared_ptr<mpi_endpoint> group = set.make(members);
           mine.wrong += meets(*group, members, set.process()) ? 0 : 1;
           mine.wrong += set.made() == (i <= 3 ? 1 : 2) ? 0 : 1;
           if (i != 3) continue;
           if (group->device() == 2) group->fail("it has enough");
           const std::string said = thrown([&] { static_cast<void>(group->agree({.addend = 1})); });
           mine.wrong += said.find("it has enough") != std::string::npos ? 0 : 1;
         }
       })) {
    CHECK(std::string(left.sentence) == "");
    CHECK(left.wrong == 0);
  }
}
