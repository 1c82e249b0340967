// SPDX-License-Identifier: Apache-2.0
// The three parts of a step, called apart as an elastic job does: who threw after the others knew the scalar makes the
// update late, from the scalar alone; gradients that end with a peer change no state; and what is refused.
#include <doctest/doctest.h>

#include <atomic>
#include <functional>
#include <thread>

#include <reshard/parallelism/parse_degrees.hpp>
#include <reshard/reshard.hpp>

#include "../../examples/trainer/change.hpp"
#include "../../examples/trainer/threads.hpp"
#include "../support/refused.hpp"

using namespace trainer;

namespace {

const model gpt = make_transformer(
    {.name = "tiny", .layers = 2, .hidden = 24, .heads = 4, .groups = 2, .head_dim = 6, .ffn = 24, .vocabulary = 256});
const sizes z = sizes_of(gpt, 6, 8);
const settings how{.total = 30};
const dataset data(how.seed, z.length);

/// One rank with all that it needs.
struct seat {
  rank_state state;
  groups with;
  rank_trainer trainer;

  seat(world& here, const space& layout, rank_t rank, const std::vector<rank_t>& devices)
      : state(computed_holding(layout), rank, "a rank", pages_are::committed),
        with(groups::make(here, layout, rank, devices)), trainer(z, how, data, state, with) {
    state.initialize(how.seed);
  }
};

/// Runs body(seat, world) on a thread for each rank of a layout.
void on_ranks(const char* text, const std::function<void(seat&, world&)>& body) {
  const space layout(gpt, parse_degrees(text));
  std::vector<rank_t> devices;
  for (rank_t d = 0; d < layout.ranks(); ++d) devices.push_back(d);
  thread_hub hub(layout.ranks());
  std::vector<std::thread> running;
  for (const rank_t d : devices)
    running.emplace_back([&, d] {
      const std::unique_ptr<world> here = hub.at(d);
      seat at(*here, layout, d, devices);
      body(at, *here);
    });
  for (std::thread& t : running) t.join();
}

/// Takes part in a sum, and then throws: the others have it, this rank does not know it.
class throws_after_sum final : public group {
 public:
  explicit throws_after_sum(std::unique_ptr<group> of) : of_(std::move(of)) {}
  int rank() const override { return of_->rank(); }
  int size() const override { return of_->size(); }
  void sum(std::span<double> values) override {
    std::vector<double> unknown(values.begin(), values.end());
    of_->sum(unknown);
    if (armed) throw peer_gone("a peer is gone");
    std::copy(unknown.begin(), unknown.end(), values.begin());
  }
  void max(std::span<float> values) override { of_->max(values); }
  std::vector<bytes> exchange(bytes mine) override { return of_->exchange(mine); }
  void send(int to, bytes mine) override { of_->send(to, mine); }
  void receive(int from, std::span<std::byte> into) override { of_->receive(from, into); }
  bool armed = false;

 private:
  std::unique_ptr<group> of_;
};

/// Digests of every rank after so many steps.
std::vector<digests> trained(const char* layout, index_t steps, index_t late_at) {
  std::vector<digests> found(static_cast<std::size_t>(parse_degrees(layout).world()));
  float norm_of_record = 0;
  on_ranks(layout, [&](seat& at, world&) {
    const bool late = at.state.rank() == 1;
    throws_after_sum* failing = nullptr;
    if (late) {
      auto wrapped = std::make_unique<throws_after_sum>(std::move(at.with.all));
      failing = wrapped.get();
      at.with.all = std::move(wrapped);
    }
    serial_cursor cursor;
    for (index_t step = 0; step < steps; ++step, cursor = cursor.after(z.batch)) {
      at.trainer.gradients(cursor, step);
      if (late) failing->armed = step == late_at;
      if (late && step == late_at) {
        CHECK_THROWS_AS(at.trainer.scalar(), peer_gone);
        failing->armed = false;
        std::vector<double> wait(1);
        at.with.all->sum(wait);  // the others' updates are made by now, and the record has the scalar
        at.trainer.update(step, norm_of_record);
        continue;
      }
      const float norm = at.trainer.scalar().norm;
      at.trainer.update(step, norm);
      if (step == late_at) {
        if (at.state.rank() == 0) norm_of_record = norm;
        std::vector<double> wait(1);
        at.with.all->sum(wait);
      }
    }
    at.trainer.gather();
    found[static_cast<std::size_t>(at.state.rank())] = at.state.digest();
  });
  return found;
}

}  // namespace

TEST_CASE("who threw when the others knew the scalar makes the update late, and nobody can tell") {
  for (const char* const layout : {"dp=3", "dp=2,pp=2,zero=1", "tp=2,dp=2,zero=1"}) {
    const std::vector<digests> never = trained(layout, 3, -1), late = trained(layout, 3, 1);
    CHECK(late == never);
    CHECK_FALSE(trained(layout, 2, -1) == never);
  }
}

TEST_CASE("gradients that end with a peer write no state, and the step can be made again") {
  const space layout(gpt, parse_degrees("tp=2,pp=2,zero=1"));
  const std::vector<rank_t> devices = {0, 1, 2, 3};
  std::vector<std::unique_ptr<rank_state>> states;
  for (const rank_t d : devices) {
    states.push_back(std::make_unique<rank_state>(computed_holding(layout), d, "a rank", pages_are::committed));
    states.back()->initialize(how.seed);
  }
  const auto digests_now = [&] {
    std::vector<digests> all;
    for (const auto& s : states) all.push_back(s->digest());
    return all;
  };
  const auto attempt = [&](bool one_dies) {
    thread_hub hub(4);
    std::vector<int> ended(4);
    std::vector<std::thread> running;
    for (const rank_t d : devices)
      running.emplace_back([&, d] {
        const std::unique_ptr<world> here = hub.at(d);
        groups with = groups::make(*here, layout, d, devices);
        rank_trainer rank(z, how, data, *states[static_cast<std::size_t>(d)], with);
        if (one_dies && d == 3) return here->close();
        try {
          rank.gradients({}, 0);
          rank.update(0, rank.scalar().norm);
          ended[static_cast<std::size_t>(d)] = 1;
        } catch (const peer_gone&) {
          ended[static_cast<std::size_t>(d)] = 2;
        }
      });
    for (std::thread& t : running) t.join();
    return ended;
  };
  const std::vector<digests> before = digests_now();
  CHECK(attempt(true) == std::vector<int>{2, 2, 2, 0});
  CHECK(digests_now() == before);
  CHECK(attempt(false) == std::vector<int>{1, 1, 1, 1});
  CHECK_FALSE(digests_now() == before);
}

TEST_CASE(
    "with ZeRO a death in the gather undoes nothing: with other groups it is made again, from the updated parts") {
  const space layout(gpt, parse_degrees("dp=3,zero=1"));
  const std::vector<rank_t> devices = {0, 1, 2};
  std::vector<std::unique_ptr<rank_state>> states;
  for (const rank_t d : devices) {
    states.push_back(std::make_unique<rank_state>(computed_holding(layout), d, "a rank", pages_are::committed));
    states.back()->initialize(how.seed);
  }
  int ended = 0;
  const auto on_threads = [&](const std::function<void(rank_trainer&, world&)>& body) {
    thread_hub hub(3);
    std::vector<std::thread> running;
    std::atomic<int> gone = 0;
    for (const rank_t d : devices)
      running.emplace_back([&, d] {
        const std::unique_ptr<world> here = hub.at(d);
        groups with = groups::make(*here, layout, d, devices);
        rank_trainer rank(z, how, data, *states[static_cast<std::size_t>(d)], with);
        try {
          body(rank, *here);
        } catch (const peer_gone&) {
          ++gone;
        }
      });
    for (std::thread& t : running) t.join();
    ended = gone;
  };
  on_threads([](rank_trainer& rank, world& here) {
    rank.gradients({}, 0);
    rank.update(0, rank.scalar().norm);
    if (here.device() == 1) return here.close();
    rank.gather();
  });
  CHECK(ended == 2);
  on_threads([](rank_trainer& rank, world&) {
    rank.forget_gathered();
    rank.gradients(serial_cursor{z.batch}, 1);
    rank.update(1, rank.scalar().norm);
    rank.gather();
  });
  CHECK(ended == 0);
  std::vector<digests> found;
  for (const auto& s : states) found.push_back(s->digest());
  CHECK(found == trained("dp=3,zero=1", 2, -1));
}

TEST_CASE("an update is a function of state, gradients, norm and step: made twice from the same, it is the same") {
  on_ranks("", [](seat& at, world& here) {
    seat other(here, at.state.layout().space(), 0, {0});
    for (seat* s : {&at, &other}) s->trainer.gradients({}, 0);
    at.trainer.update(0, 2.5f), other.trainer.update(0, 2.5f);
    CHECK(at.state.digest() == other.state.digest());
    at.trainer.update(1, 2.5f), other.trainer.update(1, 2.25f);
    CHECK_FALSE(at.state.digest() == other.state.digest());
  });
}

TEST_CASE("layouts and models that the trainer does not train are refused in a sentence") {
  const auto refused = [](const char* text) {
    return testing::refused([&] { require_trainable(space(gpt, parse_degrees(text)), z); });
  };
  CHECK(refused("tp=2,pp=2,dp=2,zero=1") == "accepted");
  CHECK(refused("cp=2") == "reshard: the trainer has no cp=2; it trains with cp=1");
  CHECK(refused("pp=1,vpp=1,dp=7").find("a batch of 6 samples for dp=7") != std::string::npos);
  CHECK(refused("dp=2,zero=2") == "reshard: the trainer has no zero=2; it trains with zero=0 and zero=1");
  CHECK(refused("dp=2,shard=rows").find("shard=rows") != std::string::npos);
  CHECK(refused("tp=4").find("tp=4 divides the 2 runs") != std::string::npos);
  transformer mixed{.name = "moe",
                    .layers = 2,
                    .hidden = 24,
                    .heads = 4,
                    .groups = 2,
                    .head_dim = 6,
                    .ffn = 24,
                    .vocabulary = 256,
                    .experts = 4,
                    .expert_ffn = 8};
  const model moe = make_transformer(mixed);
  CHECK(testing::refused([&] { require_trainable(space(moe, parse_degrees("tp=2")), sizes_of(moe, 6, 8)); }) ==
        "reshard: experts are whole on a rank here, and etp=2 (tp's, since it is not named) cuts them; name etp=1");
  mixed.tied = true;
  CHECK(testing::refused([&] { sizes_of(make_transformer(mixed), 6, 8); }) ==
        "reshard: model moe: its embeddings are tied; this trainer's are not");
}
