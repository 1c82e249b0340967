// SPDX-License-Identifier: Apache-2.0
// Switches between processes over MPI, as the threads tests have them: random ones, every element compared and the
// kernel's pages counted in every slot; messages of many chunks; what differs named on all; a process that fails,
// leaves or is late named by the others, in time, after which MPI goes on. The program starts itself under mpirun.
#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <thread>
#include <vector>

#include <reshard/transport/forwarding.hpp>
#include <reshard/transport/mpi_processes.hpp>

#include "../support/bystander.hpp"
#include "../support/dice.hpp"
#include "../support/given_otherwise.hpp"
#include "../support/mpi_processes.hpp"
#include "../support/small_processes.hpp"
#include "../support/tiny.hpp"
#include "../support/tries.hpp"

using namespace reshard;
using testing::left_behind, testing::on_ranks;

namespace {

/// What somebody throws, as a sentence; "nothing" otherwise.
template <typename Something>
std::string thrown(Something&& something) {
  try {
    something();
    return "nothing";
  } catch (const std::exception& e) {
    return e.what();
  }
}

/// Said in every process before MPI_Init.
const std::string said_before = thrown([] { mpi_communicator(MPI_COMM_WORLD, std::chrono::milliseconds(1)); });
const testing::mpi_program under_mpirun(8);

#ifdef OPEN_MPI
constexpr int random_tries = 40;
#else
constexpr int random_tries = 10;
#endif
constexpr patience ample = std::chrono::seconds(60);

computed_switch change_of(const std::string& from, const std::string& to) { return testing::tiny_switch(8, from, to); }

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

}  // namespace

TEST_CASE("random switches between 2 to 8 processes, in one stage and in many, in every way") {
  testing::random_switches(random_tries,
                           [](const computed_switch& change, const switch_options& options, exchange_as how) {
                             return on_ranks(change.devices(), [&](MPI_Comm world, long, left_behind& left) {
                               mpi_endpoint here(world, {.wait = ample, .how = how});
                               testing::switch_watched(change, here, options, left);
                             });
                           });
}

TEST_CASE("messages longer than a chunk, of chunks that divide nothing") {
  const computed_switch change = change_of("tp=2,pp=2,zero=1", "dp=4,zero=1");
  for (const bytes_t chunk : {bytes_t{1000}, bytes_t{4096}, bytes_t{65536}, bytes_t{2147483647}})
    for (const exchange_as how : {exchange_as::asynchronous, exchange_as::buffered}) {
      CAPTURE(chunk);
      for (const left_behind& left : on_ranks(4, [&](MPI_Comm world, long, left_behind&mine) {
             mpi_endpoint here(world, {.wait = ample, .how = how, .chunk_bytes = chunk});
             testing::switch_watched(change, here, {.budget = 2_MiB}, mine);
           })) {
        CHECK(std::string(left.sentence).empty());
        CHECK(left.wrong == 0);
        CHECK(left.elements > 0);
        CHECK(left.kernel_agrees == 1);
        CHECK(left.stages > 1);
      }
    }
}

namespace {

/// One message for all that device 0 has and device 1 shall have: [rows, columns] in fp32, which 0 keeps nothing of.
void one_message(const mpi_options& options, bool checks, index_t rows, index_t columns) {
  CAPTURE(options.chunk_bytes);
  CAPTURE(checks);
  for (const left_behind& left : on_ranks(2, [&](MPI_Comm world, long d, left_behind&mine) {
         const state_list list = parse_state_list("param:fp32:3");
         const extents whole = {rows, columns}, begin = {0, 0};
         const layout_switch change(shard_list({{0, "matrix", fp32, whole, begin, whole}}, 2),
                                    shard_list({{1, "matrix", fp32, whole, begin, whole}}, 2), {.list = list});
         mpi_endpoint here(world, options);
         rank_storage before(change.from(), d, "before", pages_are::reserved, {}, list),
             after(change.to(), d, "after", pages_are::reserved, {}, list);
         fill(before.tensors(), change.from());
         struct counting : forwarding<mpi_endpoint> {
           left_behind& left;
           moves prepare(const staged_plan& plan, const binding& into, page_stages& pages) {
             moves made = inner.prepare(plan, into, pages);
             left.reached = static_cast<long>(made.out.size() + made.in.size());
             for (const message& m : made.out) left.stages = static_cast<long>(m.bytes);
             for (const message& m : made.in) left.stages = static_cast<long>(m.bytes);
             return made;
           }
         } through{{here}, mine};
         switch_state(change, before.tensors(), after.tensors(), through,
                      {.after_use = sources::keep, .checks = checks});
         const comparison found = compare(after.tensors(), change.to());
         mine.wrong = static_cast<long>(found.wrong), mine.elements = static_cast<long>(found.elements);
       })) {
    CHECK(std::string(left.sentence).empty());
    CHECK(left.wrong == 0);
    CHECK(left.reached == 1);
    CHECK(left.stages >= rows * columns * 4);
  }
}

}  // namespace

// RESHARD_ROWS=524289 makes a message of 2^31 + 4096 bytes; that takes 9 GiB.
TEST_CASE("a message is a piece however long, in place and through arenas, in chunks and whole") {
  const index_t rows = testing::asked_for("RESHARD_ROWS", 1025);
  for (const bytes_t chunk : {bytes_t{1} << 16, mpi_chunk_bytes, most_chunk_bytes})
    for (const bool checks : {false, true})
      for (const exchange_as how : {exchange_as::naive, exchange_as::buffered, exchange_as::asynchronous})
        one_message({.wait = ample, .how = how, .chunk_bytes = chunk, .round_bytes = bytes_t{1} << 33}, checks, rows,
                    1024);
}

TEST_CASE("a wrapper round an end of MPI moves everything right") {
  for (const exchange_as how : {exchange_as::naive, exchange_as::buffered, exchange_as::asynchronous})
    for (const left_behind& left : on_ranks(4, [how](MPI_Comm world, long, left_behind&mine) {
           mpi_endpoint here(
               world, {.wait = ample, .how = how, .chunk_bytes = 3000, .round_bytes = 4608, .fixed_bytes = 100'000});
           mine.wrong = static_cast<long>(testing::wrong_through_bystander(here));
           mine.kernel_agrees = here.facts().fixed_bytes == 100'000;
         })) {
      CHECK(std::string(left.sentence).empty());
      CHECK(left.wrong == 0);
      CHECK(left.kernel_agrees == 1);
    }
}

TEST_CASE("a world has one size of chunks") {
  for (const left_behind& left : on_ranks(4, [](MPI_Comm world, long d, left_behind&) {
         mpi_endpoint here(world, {.wait = ample, .chunk_bytes = d == 1 ? 1000 : 3000});
       }))
    CHECK(std::string(left.sentence) ==
          "reshard: the devices were given chunks from 1000 to 3000 bytes; a world has one size");
  for (const bytes_t chunk : {bytes_t{0}, bytes_t{1} << 31})
    for (const left_behind& left : on_ranks(2, [&](MPI_Comm world, long d, left_behind&) {
           mpi_endpoint here(world, {.wait = ample, .chunk_bytes = d == 1 ? chunk : 1000});
         }))
      CHECK(std::string(left.sentence) ==
            "reshard: device 1: chunks of " + std::to_string(chunk) + " bytes; MPI sends 1 to 2147483647 at a time");
}

TEST_CASE("several switches and other agreements over one world") {
  const computed_switch change = change_of("tp=2,pp=2,zero=1", "dp=4,zero=1");
  const layout_switch back(change.to(), change.from());
  for (const left_behind& left : on_ranks(4, [&](MPI_Comm world, long d, left_behind&mine) {
         mpi_endpoint here(world, {.wait = ample});
         for (int round = 0; round < 5; ++round) {
           rank_storage before(change.from(), d, "before"), after(change.to(), d, "after"),
               again(change.from(), d, "again");
           fill(before.tensors(), change.from());
           switch_state(change, before.tensors(), after.tensors(), here, {.budget = 2_MiB});
           switch_state(back, after.tensors(), again.tensors(), here);
           mine.wrong += static_cast<long>(compare(again.tensors(), change.from()).wrong);
           if (here.all_reduce_max(d == round % 4 ? 100 + round : -d) != 100 + round) ++mine.wrong;
           ++mine.reached;
         }
       })) {
    CHECK(std::string(left.sentence).empty());
    CHECK(left.wrong == 0);
    CHECK(left.reached == 5);
  }
}

TEST_CASE("ends are made over a meeting that goes on, one after the other") {
  const computed_switch change = change_of("tp=2,pp=2,zero=1", "dp=4,zero=1");
  for (const left_behind& left : on_ranks(4, [&](MPI_Comm world, long d, left_behind&mine) {
         mpi_meeting meeting(world, ample);
         for (const bytes_t chunk : {1000, 65536}) {
           if (meeting.agree({d}).largest != 3) ++mine.wrong;
           mpi_endpoint here(meeting, {.chunk_bytes = chunk});
           here.begin_connections({(d + 1) % 4});
           if (!here.unconnected().empty()) ++mine.wrong;
           rank_storage before(change.from(), d, "before"), after(change.to(), d, "after");
           fill(before.tensors(), change.from());
           switch_state(change, before.tensors(), after.tensors(), here, {.budget = 2_MiB});
           mine.wrong += static_cast<long>(compare(after.tensors(), change.to()).wrong);
           ++mine.reached;
         }
       })) {
    CHECK(std::string(left.sentence).empty());
    CHECK(left.wrong == 0);
    CHECK(left.reached == 2);
  }
}

TEST_CASE("a stage is in place once every process has said so, and texts are gathered in order") {
  for (const left_behind& left : on_ranks(3, [&](MPI_Comm world, long d, left_behind&mine) {
         mpi_meeting meeting(world, ample);
         if (d != 1) meeting.confirm(1);
         mine.wrong += meeting.confirmed() == (d != 1 ? 1 : 0) ? 0 : 1;
         const agreement all = meeting.agree({d, std::uint64_t{1} << d, d > 0 ? "no, says " + std::to_string(d) : ""});
         mine.wrong += all.largest == 2 && all.sum == 7 && all.refuser == 1 && all.sentence == "no, says 1" ? 0 : 1;
         mine.wrong += meeting.in_place(1) ? 1 : 0;
         if (d == 0) mine.wrong += meeting.behind(1) == std::vector<rank_t>{1} ? 0 : 1;
         const std::string text = std::string(static_cast<std::size_t>(d) * 100'000, static_cast<char>('a' + d));
         const std::vector<std::string> texts = meeting.gather(text);
         mine.wrong += texts.size() == 3 && texts[0].empty() && texts[1] == std::string(100'000, 'b') &&
                               texts[2] == std::string(200'000, 'c')
                           ? 0
                           : 1;
         if (d == 1) meeting.confirm(1);
         const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
         while (!meeting.in_place(1) && std::chrono::steady_clock::now() < end) meeting.poll();
         mine.reached = meeting.in_place(1) ? 1 : 0;
         mine.wrong += meeting.in_place(2) ? 1 : 0;
         meeting.agree({});
       })) {
    CHECK(std::string(left.sentence).empty());
    CHECK(left.wrong == 0);
    CHECK(left.reached == 1);
  }
}

TEST_CASE(
    "one process with another layout, placement, states, list or budget is named on all, and nothing is touched") {
  for (const testing::otherwise what : testing::all_otherwise)
    for (const rank_t odd : {0, 5}) {
      CAPTURE(static_cast<int>(what));
      CAPTURE(odd);
      testing::check_given(what, odd, on_ranks(8, [&](MPI_Comm world, long d, left_behind& mine) {
                             const double start = now();
                             mpi_endpoint here(world, {.wait = ample});
                             testing::switch_given(what, d == odd, here, start, mine);
                           }));
    }
}

TEST_CASE("what MPI holds by itself, as told, is paid from the budget on every device") {
  const computed_switch change = change_of("tp=2", "dp=2,zero=1");
  for (const bytes_t beyond : {bytes_t{0}, 4_MiB}) {
    CAPTURE(beyond);
    for (const left_behind& left : on_ranks(2, [&](MPI_Comm world, long d, left_behind&mine) {
           mpi_endpoint here(world, {.wait = ample, .fixed_bytes = d == 1 ? 1_MiB : 0});
           rank_storage before(change.from(), d, "before"), after(change.to(), d, "after");
           fill(before.tensors(), change.from());
           mine.say(thrown([&] {
             const switch_report r =
                 switch_state(change, before.tensors(), after.tensors(), here, {.budget = 1_MiB + beyond});
             mine.reached = r.memory.excess() <= beyond;
           }));
         })) {
      const std::string sentence = left.sentence;
      CAPTURE(sentence);
      if (beyond == 0) CHECK(sentence.find("1048576") != sentence.npos);
      else CHECK(left.reached == 1);
      CHECK((sentence == "nothing") == (beyond != 0));
    }
  }
  for (const left_behind& left : on_ranks(2, [&](MPI_Comm world, long d, left_behind&mine) {
         mine.say(thrown([&] { mpi_endpoint here(world, {.wait = ample, .fixed_bytes = d == 1 ? -1 : 0}); }));
       }))
    CHECK(std::string(left.sentence) == "reshard: device 1: buffers of -1 bytes; 0 is the least");
}

TEST_CASE(
    "a process that fails in the midst of a switch is heard by all, in time; sources are whole, and MPI goes on") {
  const computed_switch change = change_of("tp=2,pp=2,zero=1", "dp=4,zero=1");
  for (const exchange_as how : {exchange_as::asynchronous, exchange_as::naive})
    for (const long victim : {0L, 1L, 3L})
      for (const int third : {-1, 0, 1, 2}) {  // when it prepares; in the first, a middle, the last slot
        CAPTURE(victim);
        CAPTURE(third);
        const std::vector<left_behind> all = on_ranks(4, [&](MPI_Comm world, long d, left_behind& mine) {
          rank_storage before(change.from(), d, "before"), after(change.to(), d, "after");
          fill(before.tensors(), change.from());
          mpi_endpoint here(world, {.wait = std::chrono::seconds(20), .how = how, .chunk_bytes = 100'000});
          struct faulty : forwarding<mpi_endpoint> {
            int third;
            bool me;
            left_behind& left;
            moves prepare(const staged_plan& plan, const binding& into, page_stages& pages) {
              if (me && third < 0) left.seconds = now(), throw 7;  // of no standard kind, and not a refusal
              return inner.prepare(plan, into, pages);
            }
            void move(moves& m, index_t slot) {
              left.stages = static_cast<long>(m.slots);
              const bool now_it_fails = me && slot == third * (m.slots - 1) / 2;
              if (now_it_fails) {
                left.seconds = now();
                throw std::runtime_error("a disk is full");
              }
              inner.move(m, slot);
            }
          } through{{here}, third, d == victim, mine};
          mine.say(thrown([&] {
            switch_state(change, before.tensors(), after.tensors(), through,
                         {.after_use = sources::keep, .route = {.stages = 5}});
          }));
          if (d != victim) mine.seconds = now();
          mine.wrong = static_cast<long>(compare(before.tensors(), change.from()).wrong);
        });
        for (long d = 0; d < 4; ++d) {
          const left_behind& left = all[static_cast<std::size_t>(d)];
          const std::string sentence = left.sentence;
          CAPTURE(d);
          CAPTURE(sentence);
          CHECK(left.wrong == 0);
          if (third >= 0) CHECK(left.stages >= 3);
          if (third >= 0) CHECK(sentence == "a disk is full");
          else CHECK(sentence.find("an exception of no standard kind") != sentence.npos);
          if (d != victim) CHECK(left.seconds - all[static_cast<std::size_t>(victim)].seconds < 2);
        }
      }
}

TEST_CASE("who leaves or is late is named, and nobody waits for ever") {
  for (const long odd : {0L, 2L})
    for (const bool leaves : {true, false}) {
      CAPTURE(odd);
      CAPTURE(leaves);
      const std::vector<left_behind> all = on_ranks(3, [&](MPI_Comm world, long d, left_behind& mine) {
        const patience wait = leaves ? ample : std::chrono::milliseconds(500);
        auto here = std::make_unique<mpi_endpoint>(world, mpi_options{.wait = wait});
        here->all_reduce_max(0);
        const double begin = now();
        if (d == odd && leaves) here.reset();
        else if (d == odd) std::this_thread::sleep_for(std::chrono::milliseconds(2500));
        if (here != nullptr) mine.say(thrown([&] { here->all_reduce_max(d); }));
        mine.seconds = now() - begin;
      });
      for (long d = 0; d < 3; ++d) {
        if (d == odd && leaves) continue;
        const std::string sentence = all[static_cast<std::size_t>(d)].sentence;
        CAPTURE(d);
        CAPTURE(sentence);
        CHECK(all[static_cast<std::size_t>(d)].seconds < 8);
        if (leaves)
          CHECK(sentence == (odd == 0 ? "reshard: device 0 has left; a world serves one run"
                                      : "reshard: device 2 has left; a world serves one run"));
        else if (odd == 0) CHECK(sentence.find("in vain for device 0, the hub") != sentence.npos);
        else CHECK(sentence == "reshard: device 0 waited 500 ms in vain for these devices: 2");
      }
    }
}

TEST_CASE("what MPI does not do, and what comes otherwise than this build sends it, is a sentence") {
  CHECK(said_before ==
        "reshard: MPI does not run: MPI_Init comes before the first end of a world, and MPI_Finalize after the last");
  char words[MPI_MAX_ERROR_STRING] = {};
  int length = 0;
  MPI_Error_string(MPI_ERR_COMM, words, &length);
  CHECK(thrown([] { detail::require_mpi(MPI_ERR_COMM, "join a world"); }) ==
        "reshard: MPI could not join a world: " + std::string(words));
  for (const bytes_t expected : {96, 128}) {
    const std::vector<left_behind> all = on_ranks(2, [&](MPI_Comm world, long d, left_behind&) {
      mpi_meeting meeting(world, ample);
      mpi_wire wire(meeting, 1000);
      wire.connect({1 - d});
      std::vector<std::byte> memory(128);
      message one{1 - d, 5, memory.data(), d == 0 ? 100 : expected};
      if (d == 0) wire.send(one);
      else wire.receive(one);
      while (!one.done) wire.poll(std::chrono::milliseconds(1));
    });
    CHECK(std::string(all[0].sentence).empty());
    CHECK(std::string(all[1].sentence) ==
          (expected == 96
               ? "reshard: device 1 expects 96 bytes from device 0 in stage 5, 96 of them at once, and more came"
               : "reshard: device 1 expects 128 bytes from device 0 in stage 5, 128 of them at once, and 100 came"));
  }
  const std::vector<left_behind> all = on_ranks(3, [&](MPI_Comm world, long d, left_behind& mine) {
    mpi_meeting meeting(world, ample);
    meeting.agree({});
    const std::int64_t unknown = 99;
    if (d == 1) MPI_Send(&unknown, sizeof unknown, MPI_BYTE, 0, mpi_meeting::words_tag, meeting.communicator());
    mine.say(thrown([&] { meeting.agree({}); }));
  });
  for (const left_behind& left : all)
    CHECK(std::string(left.sentence) == "reshard: device 1 speaks of another build of the library");
}

TEST_CASE("a process that comes late to a world is waited for as long as the patience") {
  const std::vector<left_behind> all = on_ranks(3, [&](MPI_Comm world, long d, left_behind& mine) {
    if (d == 1) std::this_thread::sleep_for(std::chrono::seconds(2));
    mine.say(thrown([&] { mpi_endpoint here(world, {.wait = std::chrono::seconds(1)}); }));
  });
  for (const long d : {0L, 2L}) {
    const std::string sentence = all[static_cast<std::size_t>(d)].sentence;
    CHECK(sentence == "reshard: device " + std::to_string(d) +
                          " waited 1000 ms in vain for all processes of its communicator to come");
  }
}

TEST_CASE("random worlds of small state between 2 to 8 processes") {
  testing::random_small_worlds(61, random_tries, false, [](const testing::small_world& world, const auto& body) {
    return on_ranks(static_cast<long>(world.devices.size()), [&](MPI_Comm comm, long, left_behind& mine) {
      mpi_endpoint here(comm, {.wait = ample});
      body(here, mine);
    });
  });
}

TEST_CASE("the most that small state may be, from any device to 7 others") {
  for (const std::size_t from : {0u, 5u}) {
    const testing::small_world world = testing::most_small_world(8, from);
    testing::small_features met;
    const testing::small_outcome shall = testing::outcome_of(world, met);
    for (const left_behind& left : on_ranks(8, [&](MPI_Comm comm, long, left_behind&mine) {
           mpi_endpoint here(comm, {.wait = ample});
           testing::exchange_small(world, shall, here, mine);
         })) {
      CHECK(std::string(left.sentence).empty());
      CHECK(left.wrong == 0);
      CHECK(left.elements == 1);
      CHECK(left.reached == 1);
    }
  }
}

TEST_CASE("small state in one process, a switch in the others: a sentence on all, and the world goes on") {
  const computed_switch change = change_of("tp=2,pp=2,zero=1", "dp=4,zero=1");
  for (const rank_t odd : {0, 3})
    testing::check_small_beside_switch(on_ranks(4,
                                                [&](MPI_Comm comm, long, left_behind& mine) {
                                                  mpi_endpoint here(comm, {.wait = ample});
                                                  testing::small_beside_switch(change, odd, here, mine);
                                                }),
                                       static_cast<std::size_t>(odd));
}

TEST_CASE("a process that fails in the midst of small state is heard by all, and MPI goes on") {
  const testing::small_world world = testing::most_small_world(4, 1);
  for (const long victim : {0L, 1L, 3L})
    for (int before = 0; before < 5; ++before) {  // two agreements, two texts, one agreement
      CAPTURE(victim);
      CAPTURE(before);
      struct failing : forwarding<mpi_endpoint> {
        int before, said = 0;

        void perhaps() {
          if (said++ == before) throw std::runtime_error("a disk is full");
        }
        agreement agree(const proposal& mine) { return perhaps(), inner.agree(mine); }
        std::vector<std::string> gather(const std::string& text) { return perhaps(), inner.gather(text); }
      };
      for (const left_behind& left : on_ranks(4, [&](MPI_Comm comm, long d, left_behind&mine) {
             mpi_endpoint here(comm, {.wait = std::chrono::seconds(20)});
             failing end{{here}, d == victim ? before : -1};
             const double begin = now();
             mine.say(thrown(
                 [&] { static_cast<void>(exchange_small_state(world.has(static_cast<std::size_t>(d)), {}, end)); }));
             mine.seconds = now() - begin;
           })) {
        CHECK(std::string(left.sentence) == "a disk is full");
        CHECK(left.seconds < 5);
      }
    }
}

TEST_CASE("where MPI is one thread's, groups are made on it as they are asked for, and it is said why") {
  for (const left_behind& left : on_ranks(4, [](MPI_Comm world, long, left_behind&mine) {
         mpi_processes set(world, {.wait = ample});
         int level = MPI_THREAD_MULTIPLE;
         MPI_Query_thread(&level);
         const std::string given = level == MPI_THREAD_SINGLE     ? "MPI_THREAD_SINGLE"
                                   : level == MPI_THREAD_FUNNELED ? "MPI_THREAD_FUNNELED"
                                                                  : "MPI_THREAD_SERIALIZED";
         mine.wrong += level != MPI_THREAD_MULTIPLE && set.where() == groups_are_made::where_asked ? 0 : 1;
         mine.wrong += set.why_at_boundary() == "groups are made at the boundary and not beside the steps: MPI gave " +
                                                    given +
                                                    ", and another thread needs MPI_THREAD_MULTIPLE; ask "
                                                    "MPI_Init_thread for it"
                           ? 0
                           : 1;
         using members = std::vector<rank_t>;
         const auto trains = std::this_thread::get_id();
         group_cache<mpi_endpoint, members> groups(
             [&](const members& m, const std::stop_token& stop) {
               mine.several += std::this_thread::get_id() == trains ? 0 : 1;
               ++mine.reached;
               return set.make(m, stop);
             },
             4, {}, set.where());
         for (const members& m : {members{0, 1, 2, 3}, members{2, 1}, members{3, 0, 2}, members{2, 1}}) {
           groups.begin(m);
           if (std::find(m.begin(), m.end(), set.process()) == m.end()) continue;
           const agreement all = groups.get(m)->agree({.addend = 1});
           mine.wrong += all.sum == m.size() ? 0 : 1;
         }
         mine.stages = set.process();
       })) {
    CHECK(std::string(left.sentence).empty());
    CHECK(left.wrong == 0);
    CHECK(left.several == 0);
    CHECK(left.reached == (left.stages == 2 ? 3 : 2));
  }
}
