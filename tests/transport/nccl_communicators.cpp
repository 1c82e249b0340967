// SPDX-License-Identifier: Apache-2.0
// Communicators of NCCL that a world does not make for itself alone, on the emulation: one that a trainer lends, which
// stays the trainer's, and worlds that a cache makes beside the steps and keeps.
#include <doctest/doctest.h>

#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <reshard/switch/switch_state.hpp>
#include <reshard/transport/group_cache.hpp>
#include <reshard/transport/nccl.hpp>
#include <reshard/transport/socket_meeting.hpp>

#include "../../tools/lib/device_storage.hpp"
#include "../support/emulated_copies.hpp"
#include "../support/left_behind.hpp"
#include "../support/processes.hpp"
#include "../support/tiny.hpp"

using namespace reshard;
using testing::device_storage, testing::left_behind, testing::processes;
using endpoint = nccl_endpoint<socket_meeting>;

namespace {

constexpr patience ample = std::chrono::seconds(8);  // the emulation's is 10 s

const bool set_up = [] {
  ::setenv("EMULATION_PEER_KIB", "64", 0);
  return true;
}();

template <typename Something>
std::string thrown(Something&& something) {
  try {
    something();
    return "nothing";
  } catch (const std::exception& e) {
    return e.what();
  }
}

void settled(ncclComm_t comm) {
  for (ncclResult_t state = ncclInProgress; state == ncclInProgress;
       std::this_thread::sleep_for(std::chrono::microseconds(50)))
    if (::ncclCommGetAsyncError(comm, &state) != ncclSuccess || (state != ncclInProgress && state != ncclSuccess))
      throw std::runtime_error("the trainer's communicator is not well");
}
/// A trainer's, of all devices of the meeting, of which this one has the rank `rank`.
ncclComm_t trainers(socket_meeting& meeting, int rank) {
  const on_device here(static_cast<int>(meeting.device()));
  ncclUniqueId id = {};
  if (meeting.device() == 0) detail::require_nccl(::ncclGetUniqueId(&id), "make a unique id");
  const std::string told = meeting.gather(std::string(reinterpret_cast<const char*>(&id), sizeof id))[0];
  std::memcpy(&id, told.data(), sizeof id);
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  ncclComm_t made = nullptr;
  const ncclResult_t code = ::ncclCommInitRankConfig(&made, static_cast<int>(meeting.devices()), id, rank, &config);
  detail::require_nccl(code, "make a communicator");
  settled(made);
  return made;
}
void end(socket_meeting& meeting, ncclComm_t comm) {
  const on_device here(static_cast<int>(meeting.device()));
  detail::require_nccl(::ncclCommFinalize(comm), "finalize");
  settled(comm);
  detail::require_nccl(::ncclCommDestroy(comm), "destroy");
}

/// A switch over a transport; how many elements were wrong.
long wrong_after_switch(endpoint& here, const computed_switch& change, left_behind& left) {
  const rank_t d = here.device();
  device_granules pool(static_cast<int>(d));
  device_storage before(change.from(), change.from_rank(d), "before", pool, pages_are::committed),
      after(change.to(), change.to_rank(d), "after", pool, pages_are::reserved);
  before.fill(change.from());
  switch_state(change, before.tensors, after.tensors, here, {});
  const comparison found = after.compare(change.to());
  left.elements += static_cast<long>(found.elements);
  return static_cast<long>(found.wrong);
}

template <typename Body>
std::vector<left_behind> on_gpus(long devices, Body&& body) {
  processes all(devices);
  all.start_all([&](long d, listening_socket listening, left_behind& left) {
    emulation::seed(static_cast<std::uint64_t>(d));
    body(d, all.addresses, std::move(listening), left);
    emulation::finish();  // no handle is left, and no rule broken
    left.reached = 1;
  });
  REQUIRE(all.ended_within(120));
  std::vector<left_behind> left;
  for (long d = 0; d < devices; ++d) left.push_back(all.of(d));
  return left;
}

void check_right(const std::vector<left_behind>& all) {
  for (const left_behind& left : all) {
    CHECK(std::string(left.sentence) == "");
    CHECK(left.reached == 1);
    CHECK(left.wrong == 0);
  }
}

}  // namespace

TEST_CASE("a trainer's communicator is lent to one world after another, and is the trainer's afterwards") {
  const computed_switch change = testing::tiny_switch(4, "tp=2,pp=2", "dp=4,zero=1");
  const std::vector<left_behind> all =
      on_gpus(4, [&](long d, const auto& addresses, listening_socket at, left_behind& left) {
        socket_meeting meeting(d, addresses, std::move(at), ample);
        ncclComm_t mine = trainers(meeting, static_cast<int>(d));
        for (int i = 0; i < 2; ++i) {
          endpoint here(meeting, static_cast<int>(d),
                        {.arenas = i == 0 ? arenas_are::registered : arenas_are::plain, .lent = &mine});
          left.wrong += wrong_after_switch(here, change, left);
        }
        settled(mine);
        meeting.gather("all have switched");
        end(meeting, mine);
      });
  check_right(all);
  for (const left_behind& left : all) CHECK(left.elements > 0);
}

TEST_CASE("a communicator that is another than the world's is refused on all, and stays") {
  const std::string first =
      "reshard: device 0 lends a communicator of rank 2 of 3 on GPU 0; its world wants rank 0 of 3 on GPU 0";
  const std::string middle = "reshard: no world over NCCL, as device 0 says: " + first;
  const std::string last =
      "reshard: device 2 lends a communicator of rank 0 of 3 on GPU 2; its world wants rank 2 of 3 on GPU 2";
  const std::string some = "reshard: 2 of 3 devices lend a communicator; all do, or none";
  check_right(on_gpus(3, [&](long d, const auto& addresses, listening_socket at, left_behind& left) {
    socket_meeting meeting(d, addresses, std::move(at), ample);
    const int gpu = static_cast<int>(d);
    ncclComm_t turned = trainers(meeting, 2 - gpu);
    // Device 1 has the rank that it should have; of the others the lower one is heard.
    const std::string said = thrown([&] { endpoint(meeting, gpu, {.lent = &turned}); });
    left.wrong += said == (d == 0 ? first : d == 1 ? middle : last) ? 0 : 1;
    if (left.wrong > 0) left.say(said);
    end(meeting, turned);
    ncclComm_t right = trainers(meeting, gpu);
    const std::string told = thrown([&] { endpoint(meeting, gpu, {.lent = d == 1 ? nullptr : &right}); });
    left.wrong += told == some ? 0 : 1;
    if (told != some) left.say(told);
    settled(right);
    end(meeting, right);
  }));
}

TEST_CASE("a world that breaks aborts what it was lent") {
  check_right(on_gpus(3, [&](long d, const auto& addresses, listening_socket at, left_behind& left) {
    socket_meeting meeting(d, addresses, std::move(at), ample);
    const int gpu = static_cast<int>(d);
    ncclComm_t mine = trainers(meeting, gpu);
    endpoint here(meeting, gpu, {.lent = &mine, .aborted_with = {mine}});
    const std::string said = d == 1 ? "it has enough" : thrown([&] { static_cast<void>(here.agree({.addend = 1})); });
    left.wrong += said.find("it has enough") != std::string::npos && mine != nullptr ? 0 : 1;
    here.fail(said);
    left.wrong += mine == nullptr ? 0 : 1;
  }));
}

TEST_CASE("a cache makes worlds over NCCL beside the steps, counts what they took, and keeps them") {
  const computed_switch change = testing::tiny_switch(3, "tp=1,dp=3", "dp=3,zero=1");
  struct world {
    socket_meeting meeting;
    endpoint end;

    world(rank_t d, const std::vector<std::string>& addresses, process_door& door, std::uint64_t number, int gpu,
          const std::stop_token& stop)
        : meeting(d, addresses, door, number, ample, stop), end(meeting, gpu) {}
  };
  const std::vector<left_behind> all =
      on_gpus(3, [&](long d, const auto& addresses, listening_socket at, left_behind& left) {
        process_door door(std::move(at));
        std::map<rank_t, bytes_t> taken;  // by the first member, when it was made
        using members = std::vector<rank_t>;
        group_cache<world, members> worlds(
            [&](const members& m, const std::stop_token& stop) {
              std::uint64_t number = 1;
              std::vector<std::string> called;
              rank_t device = 0;
              for (const rank_t one : m) {
                if (one == d) device = std::ssize(called);
                called.push_back(addresses[static_cast<std::size_t>(one)]);
                number = 10 * number + static_cast<std::uint64_t>(one);
              }
              auto here = std::make_shared<world>(device, called, door, number, static_cast<int>(d), stop);
              taken[m.front()] = here->end.facts().fixed_bytes;
              return here;
            },
            4, [](const world& w) { return w.end.facts().fixed_bytes; });
        const members whole = {0, 1, 2}, turned = {2, 1, 0};
        worlds.begin(whole), worlds.begin(turned);
        const std::shared_ptr<world> one = worlds.get(whole);
        left.wrong += worlds.get(turned)->end.device() == 2 - d ? 0 : 1;
        left.wrong += worlds.get(whole) == one && taken.size() == 2 ? 0 : 1;
        left.wrong += wrong_after_switch(one->end, change, left);
        left.wrong += taken[0] > 0 && taken[2] > 0 && worlds.bytes() == taken[0] + taken[2] ? 0 : 1;
        worlds.drop(turned);
        left.wrong += worlds.size() == 1 && worlds.bytes() == taken[0] ? 0 : 1;
      });
  check_right(all);
}
