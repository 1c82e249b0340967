// SPDX-License-Identifier: Apache-2.0
// Tokens of documents against a walk along their lengths, empty documents and lengths of every kind among them; and how
// many ends are read for an answer.
#include <doctest/doctest.h>

#include <bit>
#include <limits>
#include <span>
#include <vector>

#include <reshard/job/documents.hpp>

#include "../support/dice.hpp"
#include "../support/refused.hpp"
#include "../support/tries.hpp"

using namespace reshard;
using testing::dice;

namespace {

constexpr index_t most = std::numeric_limits<index_t>::max();

/// Lengths of one of seven kinds, one of them hostile to guesses by proportion.
std::vector<index_t> random_lengths(dice& random, index_t kind, index_t count) {
  std::vector<index_t> lengths;
  for (index_t d = 0; d < count; ++d) {
    const index_t any = random.below(100);
    const index_t of_kind[] = {1,
                               any,
                               any < 70 ? 0 : any,
                               index_t{1} << any % 20,
                               d == 0 || d == count - 1 ? 100'000 : 1,
                               index_t{1} << d * 40 / count,
                               d < count / 2 ? 0 : 3};
    lengths.push_back(of_kind[kind]);
  }
  return lengths;
}

}  // namespace

TEST_CASE("a token's document and offset are what a walk finds; empty documents have no tokens") {
  dice random;
  const int rounds = testing::tries(700);
  int empty = 0, tokens = 0;
  for (int i = 0; i < rounds; ++i) {
    const std::vector<index_t> lengths = random_lengths(random, i % 7, random.within(1, 60));
    const document_list documents{std::span(lengths)};
    index_t begin = 0, total = 0;
    for (const index_t length : lengths) total += length, empty += length == 0 ? 1 : 0;
    CHECK(documents.tokens() == total);
    CHECK(documents.count() == static_cast<index_t>(lengths.size()));
    for (std::size_t d = 0; d < lengths.size(); ++d) {
      CHECK(documents.tokens_of(static_cast<index_t>(d)) == interval{begin, begin + lengths[d]});
      for (index_t offset = 0; offset < lengths[d]; offset += 1 + lengths[d] / 8, ++tokens)
        CHECK(documents.find(begin + offset) == document_place{static_cast<index_t>(d), offset});
      if (lengths[d] > 0) CHECK(documents.find(begin + lengths[d] - 1).document == static_cast<index_t>(d));
      begin += lengths[d];
    }
    CHECK_REFUSED(documents.find(total), "documents: there is no token");
    CHECK_REFUSED(documents.find(-1), "documents: there is no token -1");
  }
  MESSAGE(tokens << " tokens looked for, " << empty << " empty documents among theirs");
  CHECK_DRAWN(empty > rounds);
}

TEST_CASE(
    "an answer reads three ends for each time that the documents can be halved, and where lengths are alike a few") {
  dice random(1);
  for (index_t kind = 0; kind < 7; ++kind) {
    constexpr index_t count = 1 << 16;
    std::vector<index_t> ends;
    index_t total = 0;
    for (const index_t length : random_lengths(random, kind, count)) ends.push_back(total += length);
    int worst = 0, sum = 0;
    constexpr int asked = 500;
    for (int i = 0; i < asked; ++i) {
      int reads = 0;
      const auto end = [&](index_t d) { return ++reads, ends[static_cast<std::size_t>(d)]; };
      const index_t token = random.below(total);
      const document_place found = find_document(count, end, token);
      CHECK(token == (found.document > 0 ? ends[static_cast<std::size_t>(found.document - 1)] : 0) + found.offset);
      worst = std::max(worst, reads), sum += reads;
    }
    MESSAGE("kind " << kind << ": " << worst << " ends at most, " << static_cast<double>(sum) / asked << " on average");
    CHECK(worst <= 3 * 16 + 3);
    const int often[] = {60, 100, 113, 123, 205, 180, 105}, at_most[] = {6, 14, 19, 20, 45, 32, 40};
    CHECK_DRAWN(10 * sum <= often[kind] * asked);
    CHECK_DRAWN(worst <= at_most[kind]);
  }
}

TEST_CASE("few documents: each token of all lengths that there are; up to eight are halved, nine are guessed at") {
  int reads = 0;
  const auto asked = [&](const std::vector<index_t>& ends, index_t token) {
    reads = 0;
    return find_document(
        static_cast<index_t>(ends.size()), [&](index_t d) { return ++reads, ends[static_cast<std::size_t>(d)]; },
        token);
  };
  for (index_t count = 1, kinds = 3; count <= 8; ++count, kinds *= 3)
    for (index_t which = 0; which < kinds; ++which) {
      std::vector<index_t> ends;
      std::vector<document_place> walked;
      for (index_t d = 0, rest = which; d < count; ++d, rest /= 3) {
        const index_t lengths[] = {0, 1, 3};
        for (index_t offset = 0; offset < lengths[rest % 3]; ++offset) walked.push_back({d, offset});
        ends.push_back(static_cast<index_t>(walked.size()));
      }
      int wrong = 0, many = 0;
      for (std::size_t token = 0; token < walked.size(); ++token) {
        wrong += asked(ends, static_cast<index_t>(token)) == walked[token] ? 0 : 1;
        // all tokens' end twice, one for each halving, and where the document begins
        many += reads > 3 + static_cast<int>(std::bit_width(static_cast<std::uint64_t>(count - 1))) ? 1 : 0;
      }
      CHECK(wrong == 0);
      CHECK(many == 0);
    }
  std::vector<index_t> ends;
  int sum = 0;
  for (index_t end = 1; end <= 9; ++end) ends.push_back(end);
  for (index_t token = 0; token < 9; ++token) {
    CHECK(asked(ends, token) == document_place{token, 0});
    sum += reads;
  }
  CHECK(sum < 55);  // by halving: seven of three reads and two of four, and those three, of the first document two
}

TEST_CASE("the documents that a stretch meets, across the end of a pass too") {
  const index_t lengths[] = {3, 0, 4, 2};
  const document_list documents{std::span(lengths)};
  for (index_t begin = 0; begin < 20; ++begin)
    for (index_t end = begin; end <= begin + 25; ++end) {
      index_t at = begin, last = -1;
      each_document(documents, {begin, end}, [&](index_t document, interval part) {
        CHECK_FALSE(part.empty());
        CHECK(document != last);
        for (index_t x = part.begin; x < part.end; ++x, ++at)
          CHECK(documents.find(at % 9) == document_place{document, x});
        last = document;
      });
      CHECK(at == end);
    }
  const index_t single[] = {1};
  std::vector<interval> met;
  each_document(document_list{std::span(single)}, {0, 2}, [&](index_t, interval part) { met.push_back(part); });
  CHECK(met == std::vector<interval>{{0, 1}, {0, 1}});
  const document_list nothing;
  CHECK_REFUSED(each_document(nothing, {0, 1}, [](index_t, interval) {}),
                "documents: [0, 1) of documents with 0 tokens in all");
  CHECK_REFUSED(each_document(documents, {-1, 1}, [](index_t, interval) {}),
                "documents: [-1, 1) of documents with 9 tokens");
}

TEST_CASE("up to the end of 64 bits; and what is refused") {
  const index_t lengths[] = {most / 2, 0, most - most / 2};
  const document_list documents{std::span(lengths)};
  CHECK(documents.find(most - 1) == document_place{2, most - most / 2 - 1});
  CHECK(documents.find(most / 2) == document_place{2, 0});
  CHECK(documents.find(most / 2 - 1) == document_place{0, most / 2 - 1});
  document_list more = documents;
  CHECK_REFUSED(more.add(1),
                "documents: with document 3 of 1 tokens, 9223372036854775807 before it, they do not fit 64 bits");
  CHECK_REFUSED(more.add(-1), "documents: document 3 has -1 tokens; it has at least 0");
  CHECK(more.count() == 3);
  CHECK_REFUSED(more.tokens_of(3), "documents: there is no document 3 of 3");
  CHECK_REFUSED(more.tokens_of(-1), "documents: there is no document -1 of 3");
  CHECK(more.tokens_of(2) == interval{most / 2, most});
  CHECK(document_place{} == document_place{0, 0});
  CHECK(document_list().tokens() == 0);
  CHECK_REFUSED(document_list().find(0), "documents: there is no token 0; 0 documents have 0 tokens");
}
