// SPDX-License-Identifier: Apache-2.0
// Before anything is touched both ends of every pair compare what they will exchange. One sum over all devices says
// whether all pairs agree; only where it does not do they tell each other their digests, and name a pair.
// Builds on: transport/meeting.hpp, transport/exchange/moves.hpp.
#pragma once

#include <algorithm>
#include <charconv>
#include <string>
#include <vector>

#include <reshard/transport/exchange/moves.hpp>
#include <reshard/transport/meeting.hpp>

namespace reshard {

namespace detail {

/// A pair's digest as an addend: what the sender adds the receiver takes away.
inline std::uint64_t addend_of(rank_t src, rank_t dst, std::uint64_t value) {
  if (value == 0) return 0;
  digest of;
  of.add(src), of.add(dst), of.add(static_cast<std::int64_t>(value));
  return of.value();
}

/// "peer out in;" for every peer.
inline std::string text_of_digests(const std::vector<peer_digests>& mine) {
  std::string text;
  for (const peer_digests& d : mine) text += text_of(d.peer, " ", d.out, " ", d.in, ";");
  return text;
}
inline std::vector<peer_digests> digests_of_text(const std::string& text) {
  std::vector<peer_digests> all;
  const char* at = text.data();
  const char* const end = at + text.size();
  while (at != end) {
    peer_digests d;
    at = std::from_chars(at, end, d.peer).ptr;
    if (at != end) at = std::from_chars(at + 1, end, d.out).ptr;
    if (at != end) at = std::from_chars(at + 1, end, d.in).ptr;
    if (at != end) ++at;
    all.push_back(d);
  }
  return all;
}

/// The sentence about the digests of all devices, that do not agree.
inline std::string sentence_of_pairs(const std::vector<std::vector<peer_digests>>& of_device) {
  const auto of = [&](rank_t a, rank_t b) {
    for (const peer_digests& d : of_device[static_cast<std::size_t>(a)])
      if (d.peer == b) return d;
    return peer_digests{b};
  };
  const auto devices = static_cast<rank_t>(of_device.size());
  std::vector<index_t> differs(of_device.size(), 0);  // from how many
  rank_t first = -1, second = -1;
  const auto compare = [&](rank_t a, rank_t b) {
    const peer_digests mine = of(a, b), theirs = of(b, a);
    if (mine.out == theirs.in && mine.in == theirs.out) return;
    ++differs[static_cast<std::size_t>(a)], ++differs[static_cast<std::size_t>(b)];
    if (first < 0) first = a, second = b;
  };
  for (rank_t a = 0; a < devices; ++a)
    for (const peer_digests& d : of_device[static_cast<std::size_t>(a)]) {
      if (d.peer < 0 || d.peer >= devices) continue;
      // a pair that both know of is seen from the lower one
      const bool both = std::any_of(of_device[static_cast<std::size_t>(d.peer)].begin(),
                                    of_device[static_cast<std::size_t>(d.peer)].end(),
                                    [a](const peer_digests& other) { return other.peer == a; });
      if (!both || a < d.peer) compare(a, d.peer);
    }
  const auto most = std::max_element(differs.begin(), differs.end());
  const auto odd = static_cast<rank_t>(most - differs.begin());
  if (std::count(differs.begin(), differs.end(), *most) == 1) {  // it differs from more devices than any other does
    for (rank_t peer = 0; peer < devices; ++peer) {
      const peer_digests mine = of(odd, peer), theirs = of(peer, odd);
      if (mine.out == theirs.in && mine.in == theirs.out) continue;
      first = odd, second = peer;
      break;
    }
  }
  return text_of("device ", first, " and device ", second, " differ in what they will exchange; device ", first,
                 " differs from ", differs[static_cast<std::size_t>(first)], " of ", devices - 1,
                 " others. All devices want the same layouts, lists, placements, states, budget, build of the "
                 "library and way to exchange: exchange_as and round_bytes");
}

}  // namespace detail

/// Empty where every two devices will send and receive the same; else a sentence, the same on all devices, that names
/// two that will not. Called by all.
template <Meeting M>
std::string disagreement_of(M& meeting, const std::vector<peer_digests>& mine) {
  std::uint64_t sum = 0;
  for (const peer_digests& d : mine)
    sum += detail::addend_of(meeting.device(), d.peer, d.out) - detail::addend_of(d.peer, meeting.device(), d.in);
  if (meeting.agree({0, sum}).sum == 0) return {};
  std::vector<std::vector<peer_digests>> all;
  for (const std::string& text : meeting.gather(detail::text_of_digests(mine)))
    all.push_back(detail::digests_of_text(text));
  return detail::sentence_of_pairs(all);
}

}  // namespace reshard
