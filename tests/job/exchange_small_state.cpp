// SPDX-License-Identifier: Apache-2.0
// Small state between the threads of one process, over copies and over mailboxes: random worlds, every byte compared on
// all devices; what is refused in one sentence on all; devices that do something else, fail, or do not come.
#include <doctest/doctest.h>

#include <atomic>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <reshard/job/exchange_small_state.hpp>
#include <reshard/memory/rank_storage.hpp>
#include <reshard/switch/prepared_switch.hpp>
#include <reshard/switch/switch_state.hpp>
#include <reshard/testing/known_values.hpp>
#include <reshard/transport/forwarding.hpp>
#include <reshard/transport/mailbox_group.hpp>
#include <reshard/transport/thread_group.hpp>

#include "../support/dice.hpp"
#include "../support/small_worlds.hpp"
#include "../support/tiny.hpp"
#include "../support/tries.hpp"

using namespace reshard;

namespace {

#ifndef RESHARD_PATIENCE_SECONDS
#define RESHARD_PATIENCE_SECONDS 60
#endif
constexpr patience soon = std::chrono::seconds(RESHARD_PATIENCE_SECONDS);

/// What body(device's end) throws on each device, as a sentence with the exception's kind; empty where it throws
/// nothing.
template <typename World, typename Body>
std::vector<std::string> thrown(World& world, Body&& body) {
  std::vector<std::string> all(static_cast<std::size_t>(world.devices()));
  world.run([&](auto& here) {
    std::string& mine = all[static_cast<std::size_t>(here.device())];
    try {
      body(here);
    } catch (const refusal& e) {
      mine = std::string("refusal ") + e.what();
    } catch (const peer_failed& e) {
      mine = std::string("peer_failed ") + e.what();
    } catch (const peer_missing& e) {
      mine = std::string("peer_missing ") + e.what();
    }
  });
  return all;
}

/// Random worlds over one kind of group; after a refusal the same devices exchange something legal.
template <typename World>
void random_worlds(std::uint64_t stream, int count) {
  testing::small_features met;
  testing::dice random(stream);
  for (int i = 0; i < testing::tries(count); ++i) {
    const testing::small_world world =
        testing::next_small_world(random, random.within(1, 8), false, i % 10 == 0 ? 300'000 : 1000);
    const testing::small_outcome shall = testing::outcome_of(world, met);
    const auto devices = static_cast<rank_t>(world.devices.size());
    CAPTURE(i);
    World group(devices, soon);
    std::vector<small_state> after(world.devices.size());
    std::atomic<int> went_on = 0;
    const std::vector<std::string> sentences = thrown(group, [&](auto& here) {
      const auto d = static_cast<std::size_t>(here.device());
      try {
        after[d] = exchange_small_state(world.has(d), world.wants(d), here);
      } catch (const refusal&) {
        small_state own;
        if (d == 0) own.add_same("still", std::as_bytes(std::span("here")));
        if (exchange_small_state(own, {}, here).has({"still"})) ++went_on;
        throw;
      }
      ++went_on;
    });
    CHECK(went_on == devices);
    for (std::size_t d = 0; d < world.devices.size(); ++d) {
      CAPTURE(sentences[d]);
      CHECK(sentences[d] == sentences[0]);
      CHECK(sentences[d].empty() != shall.refused());
      for (const std::string& words : shall.refusal_words) CHECK(sentences[d].find(words) != std::string::npos);
      if (shall.refused()) continue;
      CHECK(after[d].blobs().size() == shall.after[d].size());
      for (const auto& [id, bytes] : shall.after[d]) CHECK(after[d].bytes_of({id.first, id.second}) == bytes);
    }
  }
  MESSAGE("worlds " << met.worlds << ", moved " << met.moved << ", kept " << met.kept << ", per rank " << met.per_rank
                    << ", empty " << met.empty << ", above 16 KiB " << met.large << "; differ " << met.differs
                    << ", two rules " << met.rules << ", missing " << met.missing << ", asked though the same "
                    << met.of_same << ", too much " << met.too_much);
  if (testing::few()) return;
  for (const long seen : {met.moved, met.kept, met.per_rank, met.empty, met.large, met.differs, met.missing})
    CHECK_DRAWN(seen > 0);
}

small_state one_blob(const blob_id& id, std::size_t bytes, int value = 1) {
  small_state result;
  result.add({id, std::vector<std::byte>(bytes, static_cast<std::byte>(value))});
  return result;
}

/// An end that counts what is gathered, and may change what is heard.
template <typename Endpoint>
struct overheard : forwarding<Endpoint> {
  using forwarding<Endpoint>::inner;
  std::function<void(int, std::vector<std::string>&)> change = {};
  std::function<void(int, agreement&)> change_agreement = {};
  int gathered = 0, agreed = 0, kept_alive = 0;
  std::size_t most = 0;

  agreement agree(const proposal& mine) {
    agreement all = inner.agree(mine);
    if (change_agreement) change_agreement(agreed, all);
    ++agreed;
    return all;
  }
  std::vector<std::string> gather(const std::string& text) {
    std::vector<std::string> all = inner.gather(text);
    std::size_t bytes = 0;
    for (const std::string& t : all) bytes += t.size();
    if (gathered > 0) most = std::max(most, bytes);
    if (change) change(gathered, all);
    ++gathered;
    return all;
  }
  void keep_alive() { ++kept_alive; }
};

}  // namespace

TEST_CASE("random worlds over threads") { random_worlds<thread_group>(41, 200); }
TEST_CASE("random worlds over mailboxes") { random_worlds<mailbox_group>(42, 200); }

TEST_CASE("bytes go in rounds of 1 MiB, and nothing goes where nobody lacks anything") {
  thread_group world(6, soon);
  const std::vector<std::string> sentences = thrown(world, [&](auto& here) {
    using end = overheard<thread_group::endpoint>;
    const int me = static_cast<int>(here.device()), beside = (me + 1) % 6;
    const blob_id own{"rng", "rank " + std::to_string(me)}, next{"rng", "rank " + std::to_string(beside)};
    for (const auto& [bytes, rounds] : {std::pair{524'289, 6}, std::pair{524'288, 3}, std::pair{262'145, 2}}) {
      const auto size = static_cast<std::size_t>(bytes);
      end first{{here}}, again{{here}};
      const small_state after = exchange_small_state(one_blob(own, size, me), {next}, first);
      CHECK(after == one_blob(next, size, beside));
      CHECK(first.gathered == 1 + rounds);
      CHECK(first.most == size * static_cast<std::size_t>(6 / rounds));
      CHECK(exchange_small_state(after, {next}, again) == after);
      CHECK(again.gathered == 1);
    }
    end third{{here}};
    CHECK(exchange_small_state(one_blob({"half of " + own.key}, 40'000), {}, third).blobs().size() == 6);
    CHECK(third.gathered == 2);
    CHECK(third.most == 240'000);
  });
  for (const std::string& sentence : sentences) CHECK(sentence.empty());
}

TEST_CASE("who has much to read says meanwhile that it lives") {
  constexpr int devices = 3, blobs = 5000;
  thread_group world(devices, soon);
  std::atomic<int> wrong = 0;
  const std::vector<std::string> sentences = thrown(world, [&](auto& here) {
    small_state mine;
    std::vector<blob_id> wanted;
    const std::string key = std::to_string(here.device());
    for (int i = 0; i < blobs; ++i) {
      mine.add({{"b" + std::to_string(i), key}, {}});
      wanted.push_back({"b" + std::to_string(i), key});
    }
    overheard<thread_group::endpoint> end{{here}};
    wrong += exchange_small_state(mine, wanted, end) == mine ? 0 : 1;
    // each text twice, and in every 1024 of: blobs taken up, compared, asked for, dealt
    wrong += end.kept_alive == 2 * devices + 4 * devices * blobs / 1024 ? 0 : 1;
  });
  for (const std::string& sentence : sentences) CHECK(sentence.empty());
  CHECK(wrong == 0);
}

TEST_CASE("what nobody asks for is told on all devices, or refused by all where one wants that") {
  const auto cursor = [](rank_t loader) { return blob_id{"cursor", "loader=" + std::to_string(loader)}; };
  for (const bool strict : {false, true}) {
    mailbox_group world(4, soon);
    std::vector<blob_id> left[4];
    std::size_t has[4] = {};
    const std::vector<std::string> sentences = thrown(world, [&](auto& here) {
      const rank_t d = here.device();
      std::vector<blob_id> wanted;  // of four loaders two go on
      if (d < 2) wanted.push_back(cursor(d));
      const carried_small_state carried =
          carry_small_state(one_blob(cursor(d), 8), wanted, here,
                            {.unasked = strict && d == 3 ? when_unasked::refuse : when_unasked::tell});
      left[d] = carried.unasked;
      has[d] = carried.state.blobs().size();
    });
    for (std::size_t d = 0; d < 4; ++d) {
      CAPTURE(sentences[d]);
      if (strict)
        CHECK(sentences[d] ==
              "refusal reshard: no device asks for small state cursor[loader=2], which with 1 more would be on no "
              "device; ask for what shall stay, or let it be told (when_unasked::tell)");
      else CHECK(left[d] == std::vector<blob_id>{cursor(2), cursor(3)});
      CHECK(has[d] == (!strict && d < 2 ? 1u : 0u));
    }
  }
  for (const rank_t go_on : {0, 1, 2, 3}) {  // of three loaders
    thread_group loaders(3, soon);
    const std::vector<std::string> sentences = thrown(loaders, [&](auto& here) {
      std::vector<blob_id> wanted;
      if (here.device() < go_on) wanted.push_back(cursor(here.device()));
      static_cast<void>(
          carry_small_state(one_blob(cursor(here.device()), 8), wanted, here, {.unasked = when_unasked::refuse}));
    });
    const std::string which[] = {"cursor[loader=0], which with 2 more", "cursor[loader=1], which with 1 more",
                                 "cursor[loader=2], which"};
    for (const std::string& sentence : sentences)
      CHECK(sentence == (go_on == 3 ? ""
                                    : "refusal reshard: no device asks for small state " + which[go_on] +
                                          " would be on no device; ask for what shall stay, or let it be told "
                                          "(when_unasked::tell)"));
  }
  thread_group world(2, soon);
  std::size_t told = 0;
  world.run([&](auto& here) {  // what is asked for, and what is the same on all, is nowhere on the list
    small_state mine = one_blob(cursor(here.device()), 8);
    mine.add_same("step", std::as_bytes(std::span("7")));
    const carried_small_state carried =
        carry_small_state(mine, {cursor(1 - here.device())}, here, {.unasked = when_unasked::refuse});
    if (here.device() == 0) told = carried.unasked.size() + 10 * carried.state.blobs().size();
  });
  CHECK(told == 20);
}

TEST_CASE("what a device may not ask for is refused by all, and named") {
  for (const blob_id& odd : {blob_id{"step"}, blob_id{"", "tp=0"}, blob_id{std::string(256, 'n'), "tp=0"}}) {
    mailbox_group world(3, soon);
    const std::vector<std::string> sentences = thrown(world, [&](auto& here) {
      std::vector<blob_id> wanted;
      if (here.device() == 1) wanted.push_back(odd);
      static_cast<void>(exchange_small_state(one_blob({"step"}, 8), wanted, here));
    });
    const std::string why = odd.name.empty()  ? "a blob of small state has no name, and the key tp=0"
                            : odd.key.empty() ? "small state step is asked for without a key; what is the same "
                                                "needs no asking"
                                              : "a blob of small state has a name or a key of 256 bytes";
    CHECK(sentences[1].starts_with("refusal reshard: " + why));
    for (const int d : {0, 2}) {
      const std::string& sentence = sentences[static_cast<std::size_t>(d)];
      CAPTURE(sentence);
      CHECK(sentence.starts_with("peer_failed reshard: device " + std::to_string(d) +
                                 ": device 1 refused the small state: " + why));
    }
  }
  for (const std::size_t more : {0u, 1u}) {
    thread_group world(2, soon);
    const std::vector<std::string> sentences = thrown(world, [&](auto& here) {
      std::vector<blob_id> wanted;
      for (int i = 0; here.device() == 0 && i < 4096; ++i)
        wanted.push_back({std::to_string(100'000 + i) + std::string(122, 'n'), std::string(128, 'k')});
      if (here.device() == 0) wanted.back().key.resize(128 + more, 'k');
      static_cast<void>(exchange_small_state({}, wanted, here));
    });
    const std::string nobody = "refusal reshard: device 0 asks for small state 100000n";
    CHECK(sentences[0].starts_with(more == 0 ? nobody
                                             : "refusal reshard: small state is asked for by 1048577 bytes of names "
                                               "and keys; at most 1048576 are legal"));
    CHECK((more == 0 ? sentences[1].starts_with(nobody)
                     : sentences[1].find("device 0 refused the small state: small state is asked for by 1048577") !=
                           std::string::npos));
  }
}

TEST_CASE("bytes that are not those that were to come are refused by all, the blob and both devices named") {
  for (const bool cut : {false, true}) {
    thread_group world(3, soon);
    std::atomic<int> went_on = 0;
    const std::vector<std::string> sentences = thrown(world, [&](auto& here) {
      overheard<thread_group::endpoint> end{{here}, [&](int time, std::vector<std::string>& all) {
                                              if (time != 1 || here.device() != 2) return;
                                              if (cut) all[0].resize(99);
                                              else all[0][50] ^= 1;
                                            }};
      try {
        static_cast<void>(exchange_small_state(here.device() == 0 ? one_blob({"lr"}, 100) : small_state(), {}, end));
      } catch (const std::exception&) {
        if (here.all_reduce_max(here.device()) == 2) ++went_on;
        throw;
      }
    });
    const std::string why =
        "device 2 refuses small state lr as it came from device 0: its bytes are not those that were to come";
    CHECK(went_on == 3);
    CHECK(sentences[2] == "refusal reshard: " + why);
    CHECK(sentences[0] == "peer_failed reshard: device 0: device 2 refused the small state: " + why);
    CHECK(sentences[1] == "peer_failed reshard: device 1: device 2 refused the small state: " + why);
  }
}

TEST_CASE("all devices together say 64 MiB at most of what they have and ask for") {
  for (const std::uint64_t more : {0u, 1u}) {
    thread_group world(2, soon);
    std::atomic<int> went_on = 0;
    const std::vector<std::string> sentences = thrown(world, [&](auto& here) {
      overheard<thread_group::endpoint> end{{here}, {}, [&](int time, agreement& all) {
                                              if (time == 1) all.sum = (std::uint64_t{64} << 20) + more;
                                            }};
      try {
        static_cast<void>(exchange_small_state({}, {}, end));
      } catch (const refusal&) {
        if (here.all_reduce_max(here.device()) == 1) ++went_on;
        throw;
      }
    });
    CHECK(went_on == (more == 0 ? 0 : 2));
    for (const std::string& sentence : sentences)
      CHECK(sentence == (more == 0 ? ""
                                   : "refusal reshard: all devices say 67108865 bytes of their small state; at most "
                                     "67108864 are legal"));
  }
}

TEST_CASE("what one device alone hears otherwise is refused by all, before a byte moves; the world goes on") {
  for (const std::size_t at : {std::size_t{8 + 8}, std::size_t{8 + 8 + 2 + 8 + 8 + 1}}) {  // of a name, of a hash
    thread_group world(3, soon);
    std::atomic<int> gathered = 0, went_on = 0;
    const std::vector<std::string> sentences = thrown(world, [&](auto& here) {
      overheard<thread_group::endpoint> end{{here}, [&](int, std::vector<std::string>& all) {
                                              ++gathered;
                                              if (here.device() == 2) all[0].at(at) ^= 1;
                                            }};
      try {
        static_cast<void>(exchange_small_state(here.device() == 0 ? one_blob({"lr"}, 8) : small_state{}, {}, end));
      } catch (const refusal&) {
        if (here.all_reduce_max(here.device()) == 2) ++went_on;
        throw;
      }
    });
    CHECK(gathered == 3);  // the directories
    CHECK(went_on == 3);
    for (std::size_t d = 0; d < 3; ++d)
      CHECK(sentences[d] ==
            "refusal reshard: what devices say of their small state does not come to all of them alike, "
            "as device " +
                std::to_string(d) + " sees it");
  }
}

TEST_CASE("what a device's transport throws is heard by all, of whatever kind it is") {
  for (const bool standard : {true, false}) {
    thread_group world(3, soon);
    const std::vector<std::string> sentences = thrown(world, [&](auto& here) {
      overheard<thread_group::endpoint> end{{here}, [&](int, std::vector<std::string>&) {
                                              if (here.device() != 1) return;
                                              if (standard) throw std::runtime_error("a disk is full");
                                              throw 7;
                                            }};
      try {
        static_cast<void>(exchange_small_state(one_blob({"lr" + std::to_string(here.device())}, 8), {}, end));
      } catch (const peer_failed&) {
        throw;
      } catch (const std::runtime_error&) {  // nobody but the exchange tells of it
      } catch (const int) {
      }
    });
    CHECK(sentences[1].empty());
    for (const std::size_t d : {0u, 2u})
      CHECK(sentences[d] ==
            (standard ? "peer_failed a disk is full" : "peer_failed reshard: an exception of no standard kind"));
  }
}

TEST_CASE("what no device of this build says is refused by all") {
  const auto refused_where = [](const std::function<void(std::string&)>& change) {
    thread_group world(2, soon);
    return thrown(world, [&](auto& here) {
      overheard<thread_group::endpoint> end{{here}, [&](int time, std::vector<std::string>& all) {
                                              if (time == 0) change(all[1]);
                                            }};
      static_cast<void>(exchange_small_state(one_blob({"lr"}, 100), {}, end));
    });
  };
  for (const std::size_t length : {1u, 7u, 8u, 15u, 16u, 18u, 26u, 33u, 34u, 42u, 49u, 51u, 58u})
    for (const std::string& sentence : refused_where([&](std::string& text) { text.resize(length); }))
      CHECK(sentence ==
            "refusal reshard: device 1 says of small state what no device of this build of the library says");
  for (const auto& [at, byte] : {std::pair{7u, '\x7f'}, std::pair{15u, '\x7f'}, std::pair{25u, '\x7f'},
                                 std::pair{33u, '\x7f'}, std::pair{33u, '\xff'}, std::pair{28u, '\x11'}})
    for (const std::string& sentence :
         refused_where([&, where = at, what = byte](std::string& text) { text[where] = what; }))
      CHECK(sentence ==
            "refusal reshard: device 1 says of small state what no device of this build of the library says");
}

TEST_CASE("who exchanges small state while others switch: a sentence on all, and the world goes on") {
  const computed_switch change = testing::tiny_switch(8, "tp=2,pp=2,zero=1", "dp=4,zero=1");
  for (const rank_t odd : {0, 3})
    for (const bool ready : {false, true}) {
      CAPTURE(odd);
      CAPTURE(ready);
      thread_group world(4, soon);
      std::atomic<int> whole = 0;
      const std::vector<std::string> sentences = thrown(world, [&](auto& here) {
        const rank_t d = here.device();
        rank_storage before(change.from(), d, "before"), after(change.to(), d, "after");
        fill(before.tensors(), change.from());
        const small_state mine = one_blob({"step"}, 8);
        std::optional<decltype(prepared_switch(change, before.tensors(), after.tensors(), here))> prepared;
        if (ready) prepared.emplace(change, before.tensors(), after.tensors(), here);
        try {
          if (d == odd) static_cast<void>(exchange_small_state(mine, {}, here));
          else if (ready) prepared->run();
          else switch_state(change, before.tensors(), after.tensors(), here);
        } catch (const std::exception&) {
          CHECK(after.resident_bytes() == 0);
          CHECK(exchange_small_state(mine, {}, here) == mine);
          switch_state(change, before.tensors(), after.tensors(), here);
          if (compare(after.tensors(), change.to()).wrong == 0) ++whole;
          throw;
        }
      });
      CHECK(whole == 4);
      for (rank_t d = 0; d < 4; ++d) {
        const std::string& sentence = sentences[static_cast<std::size_t>(d)];
        CAPTURE(sentence);
        if (d == odd)
          CHECK(sentence == "refusal reshard: device " + std::to_string(odd) +
                                " exchanges small state, and another device does something else; all do it or none");
        else
          CHECK(sentence ==
                "peer_failed reshard: device " + std::to_string(d) + ": device " + std::to_string(odd) +
                    " refused the switch: it exchanges small state; all devices do one thing at a time; nothing was "
                    "touched");
      }
    }
}

TEST_CASE_TEMPLATE("who exchanges small state while others ask for a number: a sentence on all, the world goes on",
                   World, thread_group, mailbox_group) {
  for (const rank_t odd : {0, 2}) {
    World world(3, soon);
    std::atomic<int> went_on = 0;
    const std::vector<std::string> sentences = thrown(world, [&](auto& here) {
      try {
        if (here.device() == odd) static_cast<void>(exchange_small_state(one_blob({"step"}, 8), {}, here));
        else here.all_reduce_max(7);
      } catch (const std::exception&) {
        if (here.all_reduce_max(here.device()) == 2) ++went_on;
        throw;
      }
    });
    CHECK(went_on == 3);
    for (rank_t d = 0; d < 3; ++d)
      CHECK(sentences[static_cast<std::size_t>(d)] ==
            (d == odd ? "refusal reshard: device " + std::to_string(odd) +
                            " exchanges small state, and another device does something else; all do it or none"
                      : "peer_failed reshard: device " + std::to_string(d) + ": device " + std::to_string(odd) +
                            " does something else: it exchanges small state; all devices do one thing at a time"));
  }
}

TEST_CASE("who fails, leaves or does not come ends the others' wait in a sentence") {
  enum class way { fails, leaves, sleeps };
  for (const way w : {way::fails, way::leaves, way::sleeps}) {
    mailbox_group world(3, w == way::sleeps ? patience(300) : soon);
    std::vector<std::string> sentences(3);
    const auto run = [&] {
      world.run([&](auto& here) {
        const rank_t d = here.device();
        if (d == 1 && w == way::fails) throw std::runtime_error("device 1 has no memory");
        if (d == 1 && w == way::leaves) return;
        try {
          if (d == 1) std::this_thread::sleep_for(std::chrono::seconds(2));
          static_cast<void>(exchange_small_state({}, {}, here));
        } catch (const std::exception& e) {
          sentences[static_cast<std::size_t>(d)] = e.what();
          throw;
        }
      });
    };
    CHECK_THROWS_AS(run(), std::runtime_error);
    for (const std::size_t d : {0u, 2u}) {
      CAPTURE(sentences[d]);
      CHECK(sentences[d].find(w == way::fails    ? "device 1 has no memory"
                              : w == way::leaves ? "device 1 has left"
                                                 : " waited 300 ms in vain for these devices: 1") != std::string::npos);
    }
    if (w == way::sleeps) CHECK(sentences[1].find(" waited 300 ms in vain") != std::string::npos);
  }
}
