// SPDX-License-Identifier: Apache-2.0
// Which document is a token of? Documents lie end to end: t_0 = 0, t_(d+1) = t_d + length d. Token T is of document
// max{ d : t_d <= T }, so empty documents are skipped, at offset T - t_d.
// Builds on: algebra/interval.hpp.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include <reshard/algebra/interval.hpp>

namespace reshard {

/// A document, and where in it.
struct document_place {
  index_t document = 0;
  index_t offset = 0;

  friend constexpr bool operator==(const document_place&, const document_place&) = default;
};

namespace detail {

/// The least d with token < ends(d): ends ascend from 0 <= d < count, equals allowed, and 0 <= token < ends(count - 1).
/// A guess by proportion, then one so far beside it that the two should bracket: w documents become about sqrt(w),
/// where lengths are alike. Where that leaves more than half of them, they are halved: at most 3 log2(count) ends are
/// read, beyond the last.
template <typename Ends>
constexpr index_t first_end_above(index_t count, const Ends& ends, index_t token) {
  interval d{0, count};                      // where the answer is
  index_t begin = 0, end = ends(count - 1);  // ends(d.begin - 1) <= token < ends(d.end - 1)
  const auto probe = [&](index_t at) {       // keeps both
    if (at < d.begin || at >= d.end - 1) return;
    const index_t value = ends(at);
    if (token < value) d.end = at + 1, end = value;
    else d.begin = at + 1, begin = value;
  };
  while (d.size() > 1) {
    const index_t width = d.size();
    if (width > 8) {
      index_t beside = 1;
      while (beside * beside < width) beside *= 2;
      const index_t guess = d.begin + least(floor_of_product(token - begin, width, end - begin), width - 2);
      const index_t last = d.end;
      probe(guess);
      probe(d.end != last ? guess - beside : guess + beside);
      if (d.size() <= width / 2) continue;
    }
    probe(d.begin + (d.size() - 1) / 2);
  }
  return d.begin;
}

}  // namespace detail

/// Finds a token of documents by their ends, t_1 .. t_count: `ends(d)` is t_(d+1). Where the data are gone through
/// again and again, ask for T mod ends(count - 1).
template <typename Ends>
constexpr document_place find_document(index_t count, const Ends& ends, index_t token) {
  const index_t tokens = count > 0 ? ends(count - 1) : 0;
  if (token < 0 || token >= tokens)
    refuse("documents: there is no token ", token, "; ", count, " documents have ", tokens, " tokens");
  const index_t document = detail::first_end_above(count, ends, token);
  return {document, token - (document > 0 ? ends(document - 1) : 0)};
}

/// Documents in memory: 8 bytes of each. Those of a file are an `offset_map` (job/offset_map.hpp).
class document_list {
 public:
  constexpr document_list() = default;
  constexpr explicit document_list(std::span<const index_t> lengths) {
    ends_.reserve(lengths.size());
    for (const index_t length : lengths) add(length);
  }
  constexpr void add(index_t length) {
    if (length < 0) refuse("documents: document ", count(), " has ", length, " tokens; it has at least 0");
    index_t end = 0;
    if (RESHARD_ADD_OVERFLOWS(tokens(), length, &end))
      refuse("documents: with document ", count(), " of ", length, " tokens, ", tokens(),
             " before it, they do not fit 64 bits");
    ends_.push_back(end);
  }

  constexpr index_t count() const { return static_cast<index_t>(ends_.size()); }
  constexpr index_t tokens() const { return ends_.empty() ? 0 : ends_.back(); }
  /// [t_d, t_(d+1))
  constexpr interval tokens_of(index_t d) const {
    if (d < 0 || d >= count()) refuse("documents: there is no document ", d, " of ", count());
    return {d > 0 ? end(d - 1) : 0, end(d)};
  }
  constexpr document_place find(index_t token) const {
    return find_document(
        count(), [this](index_t d) { return end(d); }, token);
  }

 private:
  constexpr index_t end(index_t d) const { return ends_[static_cast<std::size_t>(d)]; }
  std::vector<index_t> ends_;
};

/// The documents that a stretch of tokens meets, in order: calls sink(document, interval of its tokens). The stretch
/// may run across the end of a pass: token T is token T mod tokens() of pass T div tokens().
template <typename Documents, typename Sink>
constexpr void each_document(const Documents& documents, interval stretch, Sink&& sink) {
  const index_t tokens = documents.tokens();
  if (tokens < 1 || stretch.begin < 0)
    refuse("documents: [", stretch.begin, ", ", stretch.end, ") of documents with ", tokens, " tokens in all");
  for (index_t at = stretch.begin; at < stretch.end;) {
    const document_place here = documents.find(at % tokens);
    const index_t length = documents.tokens_of(here.document).size();
    const index_t more = least(length - here.offset, stretch.end - at);
    sink(here.document, interval{here.offset, here.offset + more});
    at += more;
  }
}

}  // namespace reshard
