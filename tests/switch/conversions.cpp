// SPDX-License-Identifier: Apache-2.0
// Switches between memory of other floating types than the states have, over every transport of one process: what
// travels is the state's type, on whichever way; plans and bytes are those of a switch without; and nothing loses bits
// unless that is allowed by name.
#include <doctest/doctest.h>

#include <bit>
#include <cstdint>
#include <list>
#include <mutex>
#include <string>
#include <vector>

#include <reshard/memory/bind_shard.hpp>
#include <reshard/memory/rank_arrays.hpp>
#include <reshard/model/transformer.hpp>
#include <reshard/parallelism/parse_degrees.hpp>
#include <reshard/switch/switch_state.hpp>
#include <reshard/testing/known_values.hpp>
#include <reshard/transport/mailbox_group.hpp>
#include <reshard/transport/thread_group.hpp>

#include "../support/dice.hpp"
#include "../support/refused.hpp"
#include "../support/tries.hpp"

using namespace reshard;
using testing::dice, testing::refused;

namespace {

constexpr dtype floating[] = {bf16, fp16, fp32};

/// The bits of one element of a tensor in fp32: small whole numbers, which every type has, or anything, NaN included.
enum class values { exact, any };
std::uint32_t fp32_bits(values kind, const bound_box& of, index_t index) {
  const auto random = known_values{}(of).value<std::uint32_t>(index);
  return kind == values::any ? random : std::bit_cast<std::uint32_t>(static_cast<float>(random >> 24));
}
/// The same in another type.
std::uint32_t bits_as(dtype type, values kind, const bound_box& of, index_t index) {
  return conversion{fp32, fp32, type}(fp32_bits(kind, of, index));
}

/// Calls visit(bits of the element, by reference, global index) for all of a box.
template <typename Visit>
void each_bits(const bound_box& b, const computed_holding& h, Visit&& visit) {
  const index_t(&extent)[5] = h.family_at(b.tensor.family).extent;
  detail::each_element_of_width(b.element_bytes, b, {extent[2], extent[3], extent[4]},
                                [&](auto& element, index_t index) {
                                  std::uint32_t bits = static_cast<std::uint32_t>(element);
                                  visit(bits, index);
                                  element = static_cast<std::remove_reference_t<decltype(element)>>(bits);
                                });
}

/// The arrays of a rank in pages of their own, each of the type that is asked for.
struct typed_storage {
  std::list<page_range> ranges;
  binding tensors;

  template <typename TypeOf>
  typed_storage(const computed_holding& h, rank_t rank, const char* side, pages_are at_first, const state_list& list,
                TypeOf&& type_of) {
    tensors = bind_rank(
        h, rank, detail::text_of("rank ", rank, " of ", side),
        [&](const rank_array& a) {
          const dtype type = type_of(a);
          page_range& range = ranges.emplace_back(a.elements * width(type));
          if (at_first == pages_are::committed) range.commit(0, range.bytes());
          return memory(range.data(), a.elements * width(type)).as(type);
        },
        std::nullopt, list);
    for (page_range& range : ranges) tensors.own(range, at_first);
    tensors.seal();
  }
};

struct outcome {
  std::vector<switch_report> reports;
  index_t elements = 0, wrong = 0;
  bytes_t excess = 0;
};

/// Switches; `types(device, side, state)` says of which type arrays are; `travelled(state)` of which the state is.
template <typename World, typename Types>
outcome switched(World&& world, const computed_switch& change, values kind, const switch_options& options,
                 Types&& types) {
  outcome result;
  result.reports.resize(static_cast<std::size_t>(change.devices()));
  std::mutex mine;
  const state_list& list = change.list();
  world.run([&](auto& here) {
    const rank_t d = here.device();
    typed_storage old_state(change.from(), change.from_rank(d), "FROM", pages_are::committed, list,
                            [&](const rank_array& a) { return types(d, 0, a.box.state); });
    typed_storage new_state(change.to(), change.to_rank(d), "TO", pages_are::reserved, list,
                            [&](const rank_array& a) { return types(d, 1, a.box.state); });
    for (const bound_box& b : old_state.tensors.boxes())
      each_bits(b, change.from(),
                [&](std::uint32_t& bits, index_t i) { bits = bits_as(types(d, 0, b.state), kind, b, i); });
    const switch_report report = switch_state(change, old_state.tensors, new_state.tensors, here, options);
    index_t elements = 0, wrong = 0;
    for (const bound_box& b : new_state.tensors.boxes())
      each_bits(b, change.to(), [&](std::uint32_t& bits, index_t i) {
        const dtype from = types(0, 0, b.state), via = list[b.state].type, to = types(d, 1, b.state);
        std::uint32_t wanted = bits_as(to, kind, b, i);
        if (kind == values::any) {  // step by step, as it goes from one device to another
          wanted = bits_as(from, kind, b, i);
          if (from != via) wanted = conversion{from, via, via}(wanted);
          if (via != to) wanted = conversion{via, via, to}(wanted);
        }
        ++elements, wrong += bits != wanted ? 1 : 0;
      });
    const std::lock_guard lock(mine);
    result.reports[static_cast<std::size_t>(d)] = report;
    result.elements += elements, result.wrong += wrong;
    result.excess = greatest(result.excess, report.memory.excess());
  });
  return result;
}

const state_list& own_states() {
  static const state_list list = parse_state_list("param:fp16:3,master:fp32:1,exp_avg:bf16:1,grad:bf16:2");
  return list;
}

computed_switch change_of(const char* from, const char* to, const state_list& list) {
  const model m = make_transformer(
      {.name = "tiny", .layers = 4, .hidden = 32, .heads = 4, .groups = 4, .head_dim = 8, .ffn = 64, .vocabulary = 64});
  return layout_switch(space(m, parse_degrees(from)), space(m, parse_degrees(to)), {.list = list});
}

constexpr const char* layouts[] = {"tp=2,pp=2,zero=1", "dp=4,zero=1",      "tp=4",
                                   "pp=2,dp=2",        "dp=2,tp=2,zero=1", "pp=4,zero=1"};

/// Calls visit(a world of so many devices) for the n-th kind of world: a transport of one process.
constexpr int worlds = 7;
template <typename Visit>
void in_world(int n, rank_t devices, Visit&& visit) {
  if (n % worlds == 0) return visit(thread_group(devices));
  constexpr exchange_as ways[] = {exchange_as::naive, exchange_as::buffered, exchange_as::asynchronous};
  visit(mailbox_group(devices, default_patience, ways[n % 3], n % worlds > 3 ? usual_round_bytes : least_round_bytes));
}

}  // namespace

TEST_CASE("memory of any floating type: the elements, and the bytes and stages of a switch without conversions") {
  for (int i = 0; i < testing::tries(140); ++i) {
    CAPTURE(i);
    dice random(static_cast<std::uint64_t>(100 + i));
    const state_list& list = random.coin() ? adam : own_states();
    const computed_switch change = change_of(layouts[random.below(6)], layouts[random.below(6)], list);
    const values kind = random.coin() ? values::any : values::exact;
    std::vector<dtype> drawn;  // of device, side, state; random elements are of one type in all replicas
    for (int n = 0; n < 8 * 2 * max_states; ++n) {
      const dtype of_state = list[n % list.size()].type;
      drawn.push_back(random.below(3) == 0 ? of_state : floating[random.below(3)]);
    }
    const auto types = [&](rank_t device, int side, int state) {
      const rank_t first = kind == values::any ? 0 : device;
      return drawn[static_cast<std::size_t>((first * 2 + side) * list.size() + state)];
    };
    const auto plain = [&](rank_t, int, int state) { return list[state].type; };
    const switch_options options{.after_use = sources::keep, .rounds = rounding::to_nearest};
    in_world(i, change.devices(), [&](auto&& world) {
      const outcome got = switched(world, change, kind, options, types);
      CHECK(got.elements > 0);
      CHECK(got.wrong == 0);
      const outcome without = switched(thread_group(change.devices()), change, kind, options, plain);
      CHECK(without.wrong == 0);
      for (std::size_t d = 0; d < got.reports.size(); ++d) {
        CHECK(got.reports[d].sent == without.reports[d].sent);
        CHECK(got.reports[d].received == without.reports[d].received);
        CHECK(got.reports[d].retained == without.reports[d].retained);
        CHECK(got.reports[d].stages == without.reports[d].stages);
      }
    });
  }
}

TEST_CASE("within a budget, sources given back: wider and narrower memory") {
  for (int i = 0; i < 2 * worlds; ++i) {
    CAPTURE(i);
    const computed_switch change = change_of("tp=2,pp=2,zero=1", "dp=4,zero=1", adam);
    const auto types = [&](rank_t, int, int state) { return (state == 0) == (i < worlds) ? fp32 : bf16; };
    const switch_options options{.budget = 400_KiB, .rounds = rounding::to_nearest};
    in_world(i, 4, [&](auto&& world) {
      const outcome got = switched(world, change, values::any, options, types);
      CHECK(got.wrong == 0);
      CHECK(got.excess <= 400_KiB);
    });
  }
}

TEST_CASE("bits are lost only where that is allowed by name") {
  const computed_switch change = change_of("tp=2", "dp=2", adam);
  const auto with = [&](dtype from, dtype to, int of, rounding rounds) {
    std::string told[2];
    thread_group world(2);
    world.run([&](auto& here) {
      const rank_t d = here.device();
      typed_storage old_state(change.from(), d, "FROM", pages_are::committed, adam, [&](const rank_array& a) {
        return a.box.state == of && d == 1 ? from : adam[a.box.state].type;
      });
      typed_storage new_state(change.to(), d, "TO", pages_are::reserved, adam, [&](const rank_array& a) {
        return a.box.state == of && d == 1 ? to : adam[a.box.state].type;
      });
      told[d] = "accepted";
      try {
        switch_state(change, old_state.tensors, new_state.tensors, here, {.rounds = rounds});
      } catch (const std::exception& e) {
        told[d] = e.what();
      }
    });
    CHECK((told[0] == "accepted") == (told[1] == "accepted"));  // all or none
    return told[1];
  };
  CHECK(with(fp32, bf16, 0, rounding::refused) ==
        "reshard: device 1, rank 1 of FROM: param of embedding.word_embeddings.weight is held as fp32 and travels as "
        "bf16, "
        "which loses bits; rounding::to_nearest in the switch's options allows it");
  CHECK(with(fp32, bf16, 1, rounding::refused) ==
        "reshard: device 1, rank 1 of TO: master of embedding.word_embeddings.weight travels as fp32 and is to be held "
        "as "
        "bf16, which loses bits; rounding::to_nearest in the switch's options allows it");
  CHECK(with(fp16, bf16, 0, rounding::refused).find("held as fp16 and travels as bf16") != std::string::npos);
  CHECK(with(bf16, fp32, 1, rounding::refused) == "accepted");  // master of FROM is bf16 and becomes fp32
  CHECK(with(bf16, fp32, 0, rounding::refused) == "accepted");  // param of TO is fp32
  CHECK(with(fp32, fp16, 0, rounding::to_nearest) == "accepted");
}

TEST_CASE("what memory is said to hold") {
  const tensor_box what{0, {0, 0, 0}, {{{0, 1}, {0, 2}, {0, 4}}}};
  std::vector<float> floats(8);
  std::vector<std::byte> bytes(16);
  binding b("rank 0");
  CHECK(
      refused([&] { b.add(what, floats); }) ==
      "reshard: rank 0: param of family 0, member 0, expert 0 is bf16, 2 bytes an element, and its memory has elements "
      "of 4; bind memory of the state's type, say as() of another floating type, or leave the state out "
      "of "
      "what moves");
  CHECK(
      refused([&] { b.add(what, memory(floats).as(fp16)); }) ==
      "reshard: rank 0: param of family 0, member 0, expert 0 is said to hold fp16, 2 bytes an element, and its memory "
      "has elements of 4; bind memory of the state's type, say as() of another floating type, or leave "
      "the "
      "state out of what moves");
  CHECK(refused([&] { b.add(what, memory(bytes).as(dtype::int32)); }) ==
        "reshard: rank 0: param of family 0, member 0, expert 0 is bf16, and its memory is said to hold int32; bf16, "
        "fp16 "
        "and fp32 are converted into one another, nothing else is");
  CHECK(refused([&] { b.add(what, memory(bytes).as(fp32)); }) ==
        "reshard: rank 0: param of family 0, member 0, expert 0 has 16 bytes of memory, and needs 32");
  b.add(what, memory(floats).as(fp32));
  b.seal();
  const bound_box held = b.boxes()[0];
  CHECK(held.converts());
  CHECK(held.element_bytes == 4);
  binding other("rank 1");
  other.add(held);
  CHECK(other.boxes()[0].converts());
  bound_box of_master = held;
  of_master.state = 1;
  CHECK(refused([&] { other.add(of_master); }) ==
        "reshard: rank 1: master of family 0, member 0, expert 0 is fp32, and was bound as of a state of bf16");
  bound_box unmeasured = held;
  unmeasured.element_bytes = 0;
  unmeasured.tensor.member = 1;
  other.add(unmeasured);
  CHECK(other.boxes()[1].element_bytes == 4);
  binding same("rank 2");
  same.add(what, memory(bytes).as(bf16));
  CHECK(!same.boxes()[0].converts());
}

TEST_CASE("what is relayed is kept as it travels, since it is sent on as it is kept") {
  const model tiny = make_transformer(
      {.name = "tiny", .layers = 4, .hidden = 32, .heads = 4, .groups = 4, .head_dim = 8, .ffn = 64, .vocabulary = 64});
  const layout_switch change(space(tiny, parse_degrees("tp=2,pp=2")), space(tiny, parse_degrees("dp=4")),
                             {.on = nodes_of(2)});
  const auto types = [](dtype of_target) {
    return [of_target](rank_t, int side, int state) { return side == 1 && state == 0 ? of_target : adam[state].type; };
  };
  const auto moved = [&](relay how, dtype of_target) {
    return refused([&] { switched(thread_group(4), change, values::exact, {.route = {how}}, types(of_target)); });
  };
  CHECK(moved(relay::never, fp32) == "accepted");
  CHECK(moved(relay::always, bf16) == "accepted");
  const std::string sentence = moved(relay::always, fp32);
  CAPTURE(sentence);
  CHECK(sentence.starts_with("reshard: device "));
  CHECK(sentence.find(" is bf16 and is kept as fp32; what is relayed is sent on as it is kept, so keep it as it is, or "
                      "route it directly") != sentence.npos);
}
