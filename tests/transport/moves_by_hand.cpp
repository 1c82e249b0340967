// SPDX-License-Identifier: Apache-2.0
// The moves of one device by hand: its rounds, where each message lies, how many copies it takes, whose it is, and the
// digests of each peer; and which messages lie in tensors as they are.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <reshard/transport/exchange/moves.hpp>

using namespace reshard;

namespace {

/// Memory of a test, at a multiple of 4096.
struct alignas(4096) room {
  std::byte at[32768] = {};
};

constexpr rank_t me = 1;
using piece_list = std::vector<staged_piece>;

box<3> row(interval columns, index_t first = 0) { return {{{0, 1}, {first, first + 1}, columns}}; }
staged_piece sent(index_t stage, rank_t to, state_set states, index_t member, const box<3>& where) {
  return {stage, me, to, states, {0, member, 0}, where};
}
staged_piece received(index_t stage, rank_t from, state_set states, index_t member, const box<3>& where) {
  return {stage, from, me, states, {0, member, 0}, where};
}
staged_plan plan_of(index_t stages, index_t lag, piece_list sends, piece_list receives, piece_list retains = {}) {
  staged_plan p;
  p.device = me, p.stages = stages, p.lag = lag;
  p.sends = std::move(sends), p.receives = std::move(receives), p.retains = std::move(retains);
  return p;
}

/// A binding of tensors that lie where they are said to.
struct tensors : binding {
  using binding::binding;
  tensors& with(int state, index_t member, const box<3>& where, std::byte* at) {
    bound_box b{};
    b.state = state, b.tensor = {0, member, 0}, b.where = where, b.data = at;
    const index_t columns = where.dim[2].size();
    b.stride[0] = columns * where.dim[1].size(), b.stride[1] = columns, b.stride[2] = 1;
    add(b);
    seal();
    return *this;
  }
  /// The same of a box whose rows lie `pitch` elements apart.
  tensors& with_rows(index_t member, const box<3>& where, std::byte* at, index_t pitch) {
    bound_box b{};
    b.state = 1, b.tensor = {0, member, 0}, b.where = where, b.data = at;
    b.stride[0] = pitch * where.dim[1].size(), b.stride[1] = pitch, b.stride[2] = 1;
    add(b);
    seal();
    return *this;
  }
};

exchange_moves moves_of_plan(const staged_plan& plan, const binding& from, const binding& into, exchange_as how,
                             bytes_t trailer = 0, bytes_t round_bytes = 4096, const arena_source& source = {}) {
  page_stages pages(into, binding_side::target);
  return prepare_exchange(plan, from, into, pages, how, trailer, round_bytes, source);
}

arena_source lying(in_tensors may_lie, bytes_t alignment = 1) {
  arena_source source;
  source.may_lie = may_lie, source.alignment = alignment;
  return source;
}

std::string text_of_rounds(const exchange_moves& m) {
  std::string text;
  for (const exchange_round& r : m.rounds)
    text += detail::text_of(r.stage, ": ", r.out_begin, "-", r.out_end, " ", r.in_begin, "-", r.in_end, "; ");
  return text;
}
/// "to 3 in 0, 512; "
std::string text_of_messages(const std::vector<message>& messages) {
  std::string text;
  for (const message& m : messages) text += detail::text_of(m.peer, " in ", m.stage, ", ", m.bytes, "; ");
  return text;
}
std::size_t jobs_of(const job_list& list, index_t entry) { return list.end(entry) - list.begin(entry); }

/// A pair's digest: the pieces and messages in their order, a stage's pieces before its messages.
struct exchanged_with_peer {
  piece_list pieces;
  std::vector<std::pair<index_t, bytes_t>> messages;
};
std::uint64_t digest_of(index_t slots, bytes_t trailer, bytes_t round_bytes, exchange_as how,
                        const exchanged_with_peer& all) {
  pair_digest of(slots, trailer, round_bytes, static_cast<int>(how));
  for (const staged_piece& p : all.pieces) of.add(p);
  for (const auto& [stage, bytes] : all.messages) of.add_message(stage, bytes);
  return of.value();
}
std::uint64_t whose(std::uint64_t pair, rank_t src, rank_t dst, index_t before) {
  digest of;
  of.add(static_cast<std::int64_t>(pair)), of.add(src), of.add(dst), of.add(before);
  return of.value();
}

}  // namespace

TEST_CASE("two stages by hand: rounds, places, copies, trailers and digests") {
  const auto r = std::make_unique<room>();
  tensors from("from"), into("into");
  const state_set two = only(1) | only(2);
  from.with(1, 0, row({0, 100}), r->at).with(1, 1, row({0, 30}), r->at + 1024);
  from.with(2, 1, row({0, 30}), r->at + 2048).with(1, 3, row({0, 50}), r->at + 3072);
  into.with(1, 2, row({0, 200}), r->at + 4096).with(1, 3, row({10, 50}), r->at + 8192);
  const staged_piece to_0 = sent(0, 0, two, 1, row({0, 30})), to_3 = sent(0, 3, only(1), 0, row({0, 100})),
                     from_2 = received(1, 2, only(1), 2, row({0, 200}));
  staged_piece kept = sent(0, me, only(1), 3, row({10, 50}));
  const staged_plan plan = plan_of(2, 0, {to_0, to_3}, {from_2}, {kept});
  const exchange_moves m = moves_of_plan(plan, from, into, exchange_as::buffered, trailer_bytes);

  CHECK(m.slots == 2);
  CHECK(m.into == &into);
  CHECK(m.trailer == 16);
  CHECK(text_of_messages(m.out) == "0 in 0, 512; 3 in 0, 512; ");
  CHECK(text_of_messages(m.in) == "2 in 1, 1024; ");  // 800 + 16
  CHECK(text_of_rounds(m) == "0: 0-2 0-0; 1: 2-2 0-1; ");
  CHECK(m.first == std::vector<std::size_t>{0, 1, 2});
  CHECK(m.first_round(1) == 1);
  CHECK(m.several == std::vector<char>{0, 0});
  CHECK(m.placed == std::vector<char>{0});
  CHECK(m.unpacked == std::vector<char>{0});
  CHECK(m.sent_bytes() == 1024);
  CHECK(m.peers() == std::vector<rank_t>{0, 2, 3});
  CHECK(m.out[0].data == m.arenas.out[0]);
  CHECK(m.out[1].data == m.arenas.out[0] + 512);
  CHECK(m.in[0].data == m.arenas.in[0]);

  REQUIRE(jobs_of(m.pack, 0) == 2);
  REQUIRE(jobs_of(m.pack, 1) == 1);
  REQUIRE(jobs_of(m.unpack, 0) == 1);
  CHECK(m.pack[0].dst == m.arenas.out[0]);
  CHECK(m.pack[0].src == r->at + 1024);
  CHECK(m.pack[1].dst == m.arenas.out[0] + 128);  // 120 bytes of the first state, to a multiple of 16
  CHECK(m.pack[1].src == r->at + 2048);
  CHECK(m.pack[2].dst == m.arenas.out[0] + 512);
  CHECK(m.pack[2].src == r->at);
  CHECK(m.unpack[0].dst == r->at + 4096);
  CHECK(m.unpack[0].src == m.arenas.in[0]);
  REQUIRE(m.retain.size() == 1);
  CHECK(m.retained_jobs(0) == 1);
  CHECK(m.retained_jobs(1) == 0);
  CHECK(m.retain[0].dst == r->at + 8192);
  CHECK(m.retain[0].src == r->at + 3072 + 40);
  CHECK(m.retain[0].run_bytes == 160);

  const auto of = [](const exchanged_with_peer& all) { return digest_of(2, 16, 4096, exchange_as::buffered, all); };
  const std::uint64_t with_0 = of({{to_0}, {{0, 512}}}), with_2 = of({{from_2}, {{1, 1024}}}),
                      with_3 = of({{to_3}, {{0, 512}}});
  REQUIRE(m.digests.size() == 3);
  CHECK((m.digests[0].out == with_0 && m.digests[0].in == 0));
  CHECK((m.digests[1].out == 0 && m.digests[1].in == with_2));
  CHECK((m.digests[2].out == with_3 && m.digests[2].in == 0));
  CHECK(m.whose_out == std::vector<std::uint64_t>{whose(with_0, me, 0, 0), whose(with_3, me, 3, 0)});
  CHECK(m.whose_in == std::vector<std::uint64_t>{whose(with_2, 2, me, 0)});
}

TEST_CASE("a plan that moves nothing has a round a stage, and naively none") {
  const tensors from("from"), into("into");
  const staged_plan plan = plan_of(2, 0, {}, {});
  const exchange_moves together = moves_of_plan(plan, from, into, exchange_as::buffered),
                       naive = moves_of_plan(plan, from, into, exchange_as::naive);
  CHECK(text_of_rounds(together) == "0: 0-0 0-0; 1: 0-0 0-0; ");
  CHECK(together.first == std::vector<std::size_t>{0, 1, 2});
  CHECK(text_of_rounds(naive).empty());
  CHECK(naive.first == std::vector<std::size_t>{0, 0, 0});
  for (const exchange_moves* m : {&together, &naive}) {
    CHECK(m->sent_bytes() == 0);
    CHECK(m->retained_jobs(1) == 0);
    CHECK(m->peers().empty());
    CHECK(m->whose_out.empty());
  }
}

TEST_CASE("a stage of several rounds takes the arenas in turn, and a message of just a round's bytes is one") {
  const auto r = std::make_unique<room>();
  tensors from("from"), into("into");
  from.with(1, 0, row({0, 2304}), r->at).with(1, 1, row({0, 1024}), r->at + 12288);  // 9 x 1024 bytes, and 4096
  into.with(1, 2, row({0, 64}), r->at + 16384);
  const staged_piece long_one = sent(0, 3, only(1), 0, row({0, 2304})), whole = sent(1, 2, only(1), 1, row({0, 1024})),
                     came = received(0, 0, only(1), 2, row({0, 64}));
  const staged_plan plan = plan_of(2, 1, {long_one, whole}, {came});
  const auto as = [&](in_tensors may_lie) {
    return moves_of_plan(plan, from, into, exchange_as::asynchronous, 0, 4096, lying(may_lie));
  };
  const exchange_moves m = as(in_tensors::never);
  CHECK(text_of_messages(m.out) == "3 in 0, 4096; 3 in 0, 4096; 3 in 0, 1024; 2 in 1, 4096; ");
  CHECK(text_of_rounds(m) == "0: 0-1 0-1; 0: 1-2 1-1; 0: 2-3 1-1; 1: 3-4 1-1; ");
  CHECK(m.first == std::vector<std::size_t>{0, 3, 4});
  CHECK(m.several == std::vector<char>{1, 0});
  for (std::size_t i = 0; i < 4; ++i) CHECK(m.out[i].data == m.arenas.out[i % 2]);
  CHECK(m.in[0].data == m.arenas.in[0]);
  CHECK(jobs_of(m.pack, 0) == 8);  // an eighth of a message each
  CHECK(jobs_of(m.pack, 2) == 2);
  CHECK(jobs_of(m.pack, 3) == 1);  // it is not cut
  CHECK(m.whose_out.empty());
  CHECK(m.whose_in.empty());
  REQUIRE(m.digests.size() == 3);
  const auto of = [](const exchanged_with_peer& all) { return digest_of(2, 0, 4096, exchange_as::asynchronous, all); };
  CHECK(m.digests[2].out == of({{long_one}, {{0, 4096}, {0, 4096}, {0, 1024}}}));
  CHECK(m.digests[1].out == of({{whole}, {{1, 4096}}}));
  CHECK(m.digests[0].in == of({{came}, {{0, 512}}}));

  const exchange_moves in_place = as(in_tensors::outgoing);
  CHECK(in_place.out[1].data == r->at + 4096);
  CHECK(in_place.out[2].data == r->at + 8192);
  CHECK(in_place.out[3].data == r->at + 12288);
  CHECK(in_place.in[0].data == m.in[0].data - m.arenas.in[0] + in_place.arenas.in[0]);
  for (index_t i = 0; i < 4; ++i) CHECK(jobs_of(in_place.pack, i) == 0);
}

TEST_CASE("both directions of a stage have their rounds at once, as many as the longer one") {
  const auto r = std::make_unique<room>();
  tensors from("from"), into("into");
  from.with(1, 0, row({0, 1024}), r->at).with(1, 1, row({0, 64}), r->at + 4096);
  into.with(1, 2, row({0, 2048}), r->at + 8192).with(1, 3, row({0, 64}), r->at + 16384);
  const staged_plan plan =
      plan_of(1, 0, {sent(0, 0, only(1), 0, row({0, 1024})), sent(0, 2, only(1), 1, row({0, 64}))},
              {received(0, 0, only(1), 2, row({0, 2048})), received(0, 3, only(1), 3, row({0, 64}))});
  const exchange_moves m = moves_of_plan(plan, from, into, exchange_as::buffered, trailer_bytes);
  // 4096 + 16 bytes are two messages, of 7 and of 1 eighth; 8192 + 16 are three, of 7, 7 and 2
  CHECK(text_of_messages(m.out) == "0 in 0, 4096; 2 in 0, 512; 0 in 0, 1024; ");
  CHECK(text_of_messages(m.in) == "0 in 0, 4096; 3 in 0, 512; 0 in 0, 4096; 0 in 0, 1536; ");
  CHECK(text_of_rounds(m) == "0: 0-2 0-2; 0: 2-3 2-3; 0: 3-3 3-4; ");
  CHECK(m.out[1].data == m.arenas.out[0] + 4096);
  CHECK(m.out[2].data == m.arenas.out[0]);
  CHECK(m.in[3].data == m.arenas.in[0]);
  REQUIRE(m.whose_in.size() == 4);
  const std::uint64_t from_0 = m.digests[0].in;
  CHECK(m.whose_in[0] == whose(from_0, 0, me, 0));
  CHECK(m.whose_in[2] == whose(from_0, 0, me, 1));
  CHECK(m.whose_in[3] == whose(from_0, 0, me, 2));
  CHECK(m.whose_out[2] == whose(m.digests[0].out, me, 0, 1));
}

TEST_CASE("naively each state of each piece is a message, one peer after the other, and pairs meet one at a time") {
  const auto r = std::make_unique<room>();
  tensors from("from"), into("into");
  const state_set two = only(1) | only(3);
  for (const int state : {1, 3}) {
    from.with(state, 0, row({0, 32}), r->at + state * 512).with(state, 1, row({0, 32}), r->at + 4096 + state * 512);
    into.with(state, 2, row({0, 32}), r->at + 8192 + state * 512);
  }
  const staged_piece to_3 = sent(0, 3, two, 0, row({0, 32})), to_2 = sent(0, 2, two, 1, row({0, 32})),
                     from_3 = received(0, 3, two, 2, row({0, 32}));
  const staged_plan plan = plan_of(1, 0, {to_3, to_2}, {from_3});
  const exchange_moves m = moves_of_plan(plan, from, into, exchange_as::naive, 1, 4096);
  CHECK(text_of_messages(m.out) == "3 in 0, 512; 3 in 0, 512; 2 in 0, 512; 2 in 0, 512; ");
  CHECK(text_of_messages(m.in) == "3 in 0, 512; 3 in 0, 512; ");
  CHECK(text_of_rounds(m) == "0: 0-1 0-1; 0: 1-2 1-2; 0: 2-3 2-2; 0: 3-4 2-2; ");
  for (std::size_t i = 0; i < 4; ++i) CHECK(m.out[i].data == m.arenas.out[0] + 512 * i);
  CHECK(m.in[1].data == m.arenas.in[0] + 512);
  for (std::size_t i = 0; i < 4; ++i) CHECK(m.pack[i].src == r->at + (i < 2 ? 0 : 4096) + (i % 2 == 0 ? 512 : 1536));
  CHECK(m.whose_out.size() == 4);  // whatever a trailer has
  staged_piece first = to_2, second = to_2;
  first.states = only(1), second.states = only(3);
  REQUIRE(m.digests.size() == 2);
  CHECK(m.digests[0].peer == 2);
  CHECK(m.digests[0].out == digest_of(1, 1, 4096, exchange_as::naive, {{first, second}, {{0, 512}, {0, 512}}}));
  first = from_3, second = from_3, first.states = only(1), second.states = only(3);
  CHECK(m.digests[1].in == digest_of(1, 1, 4096, exchange_as::naive, {{first, second}, {{0, 512}, {0, 512}}}));
}

TEST_CASE("naively those who meet first are served first, whether they send or are sent to") {
  const auto r = std::make_unique<room>();
  tensors from("from"), into("into");
  from.with(1, 0, row({0, 32}), r->at).with(1, 1, row({0, 32}), r->at + 512).with(1, 2, row({0, 32}), r->at + 1024);
  into.with(1, 3, row({0, 32}), r->at + 4096).with(1, 4, row({0, 32}), r->at + 8192);
  // by peer XOR 1: 0 is 1, 3 is 2, 2 is 3, 4 is 5
  const staged_plan plan =
      plan_of(1, 0,
              {sent(0, 3, only(1), 0, row({0, 32})), sent(0, 2, only(1), 1, row({0, 32})),
               sent(0, 4, only(1), 2, row({0, 32}))},
              {received(0, 0, only(1), 3, row({0, 32})), received(0, 2, only(1), 4, row({0, 32}))});
  const exchange_moves m = moves_of_plan(plan, from, into, exchange_as::naive);
  CHECK(text_of_messages(m.out) == "3 in 0, 512; 2 in 0, 512; 4 in 0, 512; ");
  CHECK(text_of_rounds(m) == "0: 0-0 0-1; 0: 0-1 1-1; 0: 1-2 1-2; 0: 2-3 2-2; ");
}

namespace {
/// Where the one message of this piece lies in the tensors: the distance from the room's begin, or -1 for an arena.
std::ptrdiff_t sent_from(const tensors& from, const piece_list& pieces, const room& r, bytes_t alignment = 1) {
  const auto other = std::make_unique<room>();
  tensors into("into");  // what is sent is kept too, and nothing of it comes
  into.with(1, 0, {{{0, 1}, {0, 4}, {0, 128}}}, other->at);
  const staged_plan plan = plan_of(1, 0, pieces, {});
  const exchange_moves m =
      moves_of_plan(plan, from, into, exchange_as::buffered, 0, 65536, lying(in_tensors::both_ways, alignment));
  REQUIRE(m.out.size() == 1);
  const bool packed = m.out[0].data == m.arenas.out[0];
  CHECK((jobs_of(m.pack, 0) > 0) == packed);
  CHECK(m.unpack.size() == 0);
  return packed ? -1 : m.out[0].data - r.at;
}
}  // namespace

TEST_CASE("a message lies in tensors where it is one run there, whatever parts the run has") {
  const auto r = std::make_unique<room>();
  const interval all{0, 128};  // 512 bytes
  const auto one = [&](index_t member, const box<3>& where) { return sent(0, 0, only(1), member, where); };
  const box<3> two_rows{{{0, 1}, {0, 2}, all}};
  {
    tensors from("from");
    from.with(1, 0, {{{0, 1}, {0, 4}, all}}, r->at + 512);
    CHECK(sent_from(from, {one(0, row(all))}, *r) == 512);
    CHECK(sent_from(from, {one(0, {{{0, 1}, {1, 3}, all}})}, *r) == 1024);
    CHECK(sent_from(from, {one(0, row({0, 124}))}, *r) == -1);   // 16 bytes of the message are padding
    CHECK(sent_from(from, {one(0, row({32, 160}))}, *r) == -1);  // 32 columns of which nobody has
    CHECK(sent_from(from, {one(0, row(all, 1))}, *r, 1024) == 1024);
    CHECK(sent_from(from, {one(0, row(all, 1))}, *r, 2048) == -1);
  }
  {
    tensors apart("apart");
    apart.with_rows(0, two_rows, r->at, 256);
    CHECK(sent_from(apart, {one(0, two_rows)}, *r) == -1);
    CHECK(sent_from(apart, {one(0, row(all, 1))}, *r) == 1024);
  }
  {
    tensors pair("pair");  // two tensors, one behind the other, and a third that is not
    pair.with(1, 0, row(all), r->at + 1024).with(1, 1, row(all), r->at + 1536).with(1, 2, row(all), r->at + 4096);
    CHECK(sent_from(pair, {one(0, row(all)), one(1, row(all))}, *r) == 1024);
    CHECK(sent_from(pair, {one(1, row(all)), one(0, row(all))}, *r) == -1);
    CHECK(sent_from(pair, {one(1, row(all)), one(2, row(all))}, *r) == -1);
    CHECK(sent_from(pair, {one(0, row(all)), one(1, row(all)), one(2, row(all))}, *r) == -1);
  }
  {
    tensors split("split");  // a matrix of 128 columns, the right half of which begins a row sooner
    split.with_rows(0, {{{0, 1}, {0, 4}, {64, 128}}}, r->at + 256, 128);
    split.with_rows(0, {{{0, 1}, {1, 4}, {0, 64}}}, r->at + 512, 128);
    CHECK(sent_from(split, {one(0, row(all, 1))}, *r) == 512);
    CHECK(sent_from(split, {one(0, row(all, 2))}, *r) == 1024);
  }
  {
    tensors other("other");  // as many bytes, of another type
    bound_box b{};
    b.state = 0, b.where = row({0, 256}), b.data = r->at, b.stride[2] = 1, b.element_bytes = 2;
    b.holds = dtype::fp16, b.travels = dtype::bf16;
    other.add(b);
    other.seal();
    CHECK(sent_from(other, {sent(0, 0, only(0), 0, row({0, 256}))}, *r) == -1);
    tensors same("same");
    same.with(0, 0, row({0, 256}), r->at);
    CHECK(sent_from(same, {sent(0, 0, only(0), 0, row({0, 256}))}, *r) == 0);
  }
}

TEST_CASE("what comes lies where it belongs, which takes the pages of its parts, where its stage's pages are there") {
  page_range memory(4 * page_bytes);
  tensors from("from"), into("into");
  into.with(1, 0, row({0, 64}), memory.data() + 256).with(1, 0, row({64, 128}), memory.data() + 512);
  into.with(1, 1, row({0, 2048}), memory.data() + page_bytes);
  into.own(memory);
  into.seal();
  const auto came = [&](exchange_as how, index_t columns, in_tensors may_lie) {
    const staged_plan plan =
        plan_of(1, lag_of_exchange(how), {},
                {received(0, 0, only(1), 0, row({0, 128})), received(0, 2, only(1), 1, row({0, columns}))});
    return moves_of_plan(plan, from, into, how, 0, 4096, lying(may_lie));
  };
  const exchange_moves here = came(exchange_as::buffered, 1024, in_tensors::both_ways);
  CHECK(here.placed == std::vector<char>{1, 1});
  CHECK(here.in[0].data == memory.data() + 256);
  CHECK(here.in[1].data == memory.data() + page_bytes);
  REQUIRE(jobs_of(here.unpack, 0) == 2);  // two parts: their pages, and no copy
  REQUIRE(jobs_of(here.unpack, 1) == 1);
  for (std::size_t i = 0; i < 3; ++i) {
    CHECK(here.unpack[i].dst == nullptr);
    CHECK(here.unpack[i].spans == 1);
  }
  // a lag later the pages of a stage of one round are; those of several are there
  CHECK(came(exchange_as::asynchronous, 1024, in_tensors::both_ways).placed == std::vector<char>{0, 0});
  const exchange_moves several = came(exchange_as::asynchronous, 2048, in_tensors::both_ways);
  CHECK(text_of_rounds(several) == "0: 0-0 0-2; 0: 0-0 2-3; ");
  CHECK(several.placed == std::vector<char>{1, 1, 1});
  CHECK(several.in[2].data == memory.data() + 2 * page_bytes);
  CHECK(came(exchange_as::buffered, 2048, in_tensors::both_ways).placed == std::vector<char>{1, 1, 1});
  for (const in_tensors may_lie : {in_tensors::never, in_tensors::outgoing}) {
    const exchange_moves elsewhere = came(exchange_as::buffered, 1024, may_lie);
    CHECK(elsewhere.placed == std::vector<char>{0, 0});
    REQUIRE(jobs_of(elsewhere.unpack, 0) == 2);
    CHECK(elsewhere.unpack[0].dst == memory.data() + 256);
    CHECK(elsewhere.unpack[1].src == elsewhere.arenas.in[0] + 256);
  }
}

TEST_CASE("what comes for nobody is copied nowhere") {
  const tensors from("from"), into("into");
  const staged_plan plan = plan_of(1, 0, {}, {received(0, 0, only(1), 0, row({0, 64}))});
  const exchange_moves m = moves_of_plan(plan, from, into, exchange_as::buffered);
  REQUIRE(m.in.size() == 1);
  CHECK(m.in[0].data == m.arenas.in[0]);
  CHECK(jobs_of(m.unpack, 0) == 0);
}

TEST_CASE("pages that are kept stay with the moves") {
  exchange_moves m;
  CHECK(m.slots == 1);
  page_range pages(page_bytes);
  const std::byte* const at = pages.data();
  m.keep(std::move(pages));
  REQUIRE(m.arenas.ranges.size() == 1);
  CHECK(m.arenas.ranges[0].data() == at);
}
