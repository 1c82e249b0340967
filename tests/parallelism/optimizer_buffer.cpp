// SPDX-License-Identifier: Apache-2.0
// The writer of optimizer buffers against the oracle's packing of one parameter after the other, and the rules' edges.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include <reshard/parallelism/optimizer_buffer.hpp>

#include "../oracle/contract.hpp"
#include "../support/dice.hpp"
#include "../support/refused.hpp"

using namespace reshard;
using testing::dice;

namespace {
struct written {
  std::vector<buffer_entry> entries;
  std::vector<interval> buckets;
};

/// One parameter of a written buffer: which, where, and in which bucket.
struct placed {
  int family;
  index_t member, expert;
  interval at;
  index_t bucket;
};

std::vector<placed> expanded(const written& buffer) {
  std::vector<placed> list;
  for (const buffer_entry& e : buffer.entries)
    for (index_t i = 0; i < e.outer.count; ++i)
      for (index_t j = 0; j < e.experts; ++j) {
        const interval at = e.inner(i).item(j);
        CHECK(at.begin == e.outer.item(i).begin + j * e.inner_pitch);
        CHECK(e.outer.item(i).contains(at));
        list.push_back({e.family, e.member_last - i, e.expert_last - j, at, e.bucket});
      }
  return list;
}

std::string name_of(int family, index_t member, index_t expert) {
  return std::to_string(family) + "." + std::to_string(member) + "." + std::to_string(expert);
}

void check_same(const written& ours, std::vector<oracle::packed> in_buffer_order, index_t group, index_t bucket) {
  const oracle::optimizer_buffer theirs =
      oracle::pack({in_buffer_order.rbegin(), in_buffer_order.rend()}, group, bucket > 0 ? bucket : -1);
  std::vector<placed> list = expanded(ours);
  REQUIRE(list.size() == theirs.parameters.size());
  std::sort(list.begin(), list.end(), [](const placed& a, const placed& b) { return a.at.begin < b.at.begin; });
  for (std::size_t i = 0; i < list.size(); ++i) {
    CHECK(name_of(list[i].family, list[i].member, list[i].expert) == theirs.parameters[i].name);
    CHECK(list[i].at == interval{theirs.parameters[i].begin, theirs.parameters[i].end});
    CHECK(list[i].bucket == theirs.parameters[i].bucket);
  }
  REQUIRE(ours.buckets.size() == theirs.buckets.size());
  for (std::size_t b = 0; b < ours.buckets.size(); ++b)
    CHECK(ours.buckets[b] == interval{theirs.buckets[b].first, theirs.buckets[b].second});
}
}  // namespace

TEST_CASE("parameters in a row, experts in stretches, shared ones between them, with and without buckets") {
  dice random;
  for (int n = 0; n < 600; ++n) {
    const index_t group = random.within(1, 6), bucket = random.coin() ? random.within(1, 900) : 0;
    CAPTURE(group);
    CAPTURE(bucket);
    written buffer;
    std::vector<oracle::packed> singles;
    buffer_writer out(group, bucket, buffer.entries, buffer.buckets);
    for (int family = 0; family < 6; ++family) {
      const index_t elements = random.within(1, 300), member = random.below(4);
      if (random.below(5) == 0) {
        out.shared(family, elements);
        singles.push_back({name_of(family, 0, 0), elements, true});
        continue;
      }
      const index_t count = random.coin() ? 1 : random.within(2, 7), last = count - 1 + random.below(3);
      out.parameters(family, member, last, count, elements);
      for (index_t j = 0; j < count; ++j) singles.push_back({name_of(family, member, last - j), elements, false});
    }
    out.finish();
    check_same(buffer, singles, group, bucket);
  }
}

TEST_CASE("repeated layers are written once, and only as many as leave the bucket open") {
  dice random(1);
  for (int n = 0; n < 600; ++n) {
    const index_t group = random.within(1, 3), bucket = random.coin() ? random.within(100, 3000) : 0,
                  layers = random.within(1, 12);
    const index_t sizes[] = {random.within(1, 200), random.within(1, 200)};
    const index_t length = round_up(sizes[0], parameter_alignment) + sizes[1];
    CAPTURE(group);
    CAPTURE(bucket);
    written buffer;
    std::vector<oracle::packed> singles;
    buffer_writer out(group, bucket, buffer.entries, buffer.buckets);
    const index_t before = random.below(200);
    if (before > 0) {
      out.parameters(9, 0, 0, 1, before);
      singles.push_back({name_of(9, 0, 0), before, false});
    }
    for (index_t past = layers; past > 0;) {
      const index_t whole = out.layers_without_closing(length, past);
      const std::size_t first = out.written(), closed = buffer.buckets.size();
      const index_t begin = out.next_begin();
      for (int f = 0; f < 2; ++f) out.parameters(f, past - 1, 0, 1, sizes[f]);
      CHECK((buffer.buckets.size() == closed) == (whole > 0));
      if (whole > 1) out.repeat(first, begin, whole);
      past -= greatest(whole, 1);
    }
    for (index_t member = layers - 1; member >= 0; --member)
      for (int f = 0; f < 2; ++f) singles.push_back({name_of(f, member, 0), sizes[f], false});
    out.finish();
    check_same(buffer, singles, group, bucket);
    if (bucket == 0) CHECK(buffer.entries.size() == 2u + (before > 0 ? 1 : 0));
  }
}

TEST_CASE("as many layers leave a bucket open as keep it one element short of full") {
  const auto fit = [](index_t bucket, index_t before, index_t layers) {
    written buffer;
    buffer_writer out(1, bucket, buffer.entries, buffer.buckets);
    if (before > 0) out.parameters(0, 0, 0, 1, before);
    return out.layers_without_closing(100, layers);  // which begin 128 after each other
  };
  CHECK(fit(0, 0, 7) == 7);
  CHECK(fit(100, 0, 7) == 0);
  CHECK(fit(101, 0, 7) == 1);
  CHECK(fit(228, 0, 7) == 1);
  CHECK(fit(229, 0, 7) == 2);
  CHECK(fit(229, 0, 1) == 1);
  CHECK(fit(164, 3, 7) == 0);  // the first begins at 64
  CHECK(fit(165, 3, 7) == 1);
  CHECK(fit(165, 64, 7) == 1);
  CHECK(fit(165, 65, 7) == 0);
}

TEST_CASE("a buffer of more buckets than are kept is refused, and not by running out of memory") {
  written buffer;
  buffer_writer out(1, 1, buffer.entries, buffer.buckets);
  out.parameters(0, 0, most_buckets - 1, most_buckets, 1);
  CHECK(static_cast<index_t>(buffer.buckets.size()) == most_buckets);
  CHECK(testing::refused([&] { out.parameters(1, 0, 0, 1, 1); }) ==
        "reshard: bucket=1 cuts an optimizer buffer into more than 1048576 buckets; give a larger one");
  written second;
  buffer_writer too_many(1, 1, second.entries, second.buckets);
  CHECK(testing::refused([&] {
          too_many.parameters(0, 0, 0, index_t{1} << 60, 1);
        }).starts_with("reshard: bucket=1 cuts"));
  CHECK(static_cast<index_t>(second.buckets.size()) == most_buckets);
}

TEST_CASE("a second buffer counts its own buckets, and an empty one has none") {
  written many;  // of another buffer
  many.buckets.resize(static_cast<std::size_t>(most_buckets) / 2);
  buffer_writer after(1, 1, many.entries, many.buckets);
  CHECK(testing::refused([&] { after.parameters(0, 0, 1, 2, 1); }) == "accepted");
  CHECK(static_cast<index_t>(many.buckets.size()) == most_buckets / 2 + 2);
  CHECK(many.entries.back().bucket == 1);
  written buffer;
  for (int n = 0; n < 2; ++n) {
    buffer_writer out(1, 0, buffer.entries, buffer.buckets);
    out.parameters(n, 0, 0, 1, 10);
    out.finish();
  }
  buffer_writer(1, 0, buffer.entries, buffer.buckets).finish();
  CHECK(buffer.buckets == std::vector<interval>{{0, 128}, {0, 128}});
  CHECK(buffer.entries[0].bucket == 0);
  CHECK(buffer.entries[1].bucket == 0);
}
