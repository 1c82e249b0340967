// SPDX-License-Identifier: Apache-2.0
// How processes part after a switch broke off: each tells the lowest device that lives, which the hub need not be, what
// it knows, and hears what all who are left know. One device may be gone by then; of a second that goes meanwhile
// survivors may hear different things, but none that it has finished where another has not everything.
// Builds on: transport/process_door.hpp, transport/sockets/frames.hpp, transport/parting.hpp,
// transport/transport_stop.hpp.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <reshard/transport/parting.hpp>
#include <reshard/transport/process_door.hpp>
#include <reshard/transport/sockets/frames.hpp>
#include <reshard/transport/transport_stop.hpp>

namespace reshard {

/// One process's part in it, over the door at which it was called before; addresses and door outlive it.
class socket_parting {
  using clock = std::chrono::steady_clock;

 public:
  socket_parting(rank_t device, const std::vector<std::string>& addresses, process_door& door, std::uint64_t world,
                 patience wait, const transport_stop& stop = {})
      : device_(device), addresses_(&addresses), door_(&door), world_(world), wait_(wait), stop_(stop) {}

  /// What all who are left know, given what this one does; is_gone(d) says who is known to be gone. Once it is stopped
  /// this device learns of no survivors.
  template <typename IsGone>
  parting agree(index_t known, bool has_all, IsGone&& is_gone) {
    const word mine{known, has_all ? 1 : 0};
    for (rank_t d = 0; d < device_; ++d) {
      if (address(d).empty() || is_gone(d)) continue;
      if (const std::optional<parting> heard = ask(d, mine)) return *heard;
    }
    parting all = preside(mine, is_gone);
    if (stop_.requested()) all = {known, has_all, {}};
    return all;
  }

 private:
  using word = std::array<std::int64_t, 2>;  // stages known to be in place everywhere; whether this one has everything
  enum kind : std::uint32_t { said = 1, agreed };
  static constexpr patience looks_after{5};
  const std::string& address(rank_t d) const { return (*addresses_)[static_cast<std::size_t>(d)]; }
  rank_t devices() const { return static_cast<rank_t>(addresses_->size()); }
  owned_descriptor fetch(rank_t from) { return door_->fetch(call_for::parting, world_, from, devices()); }

  /// What a lower device says that all know, or nothing where it is gone.
  std::optional<parting> ask(rank_t d, const word& mine) const {
    const socket_hello hello{.what = call_for::parting, .world = world_, .from = device_, .devices = devices()};
    owned_descriptor made = call_door(address(d), hello, wait_ / 4, stop_.number());
    if (!made.open()) return std::nullopt;
    framed_link link(std::move(made));
    link.post(said, {reinterpret_cast<const char*>(mine.data()), sizeof mine});
    for (const auto end = clock::now() + wait_; clock::now() < end;) {
      if (const std::optional<socket_frame> frame = link.next()) return of_body(frame->body);
      if (!link.open() || stop_.sleeps(patience(1))) return std::nullopt;
    }
    return std::nullopt;
  }

  /// Hears the others, at most for half the patience, and tells them. Who is not known to be gone and has not called is
  /// called: where nobody listens any more it is.
  template <typename IsGone>
  parting preside(const word& mine, IsGone&& is_gone) {
    struct guest {
      rank_t device;
      bool gone = false;
      framed_link link = {};
      std::optional<word> says = std::nullopt;
    };
    std::vector<guest> guests;
    for (rank_t d = 0; d < devices(); ++d)
      if (d != device_ && !address(d).empty()) guests.push_back({d});
    if (stop_.requested()) return {};
    const auto end = clock::now() + wait_ / 2;
    auto looks = clock::now() + looks_after;
    for (bool all_said = false; !all_said && clock::now() < end;) {
      const bool look = clock::now() > looks;
      if (look) looks = clock::now() + looks_after;
      all_said = true;
      for (guest& g : guests) {
        if (!g.link.open()) g.link = framed_link(fetch(g.device));
        while (const std::optional<socket_frame> frame = g.link.next()) {
          if (frame->body.size() != sizeof(word)) continue;
          g.says.emplace();
          std::memcpy(g.says->data(), frame->body.data(), sizeof(word));
        }
        if (!g.link.open()) g.says.reset();  // it went, or has waited long enough for this one
        g.gone = g.gone || is_gone(g.device) || (look && !g.link.open() && is_deserted(address(g.device)));
        all_said = all_said && (g.says || g.gone);
      }
      if (!all_said && stop_.sleeps(patience(1))) return {};
    }
    parting all;
    for (rank_t d = 0; d < devices(); ++d) {
      if (d == device_) all.add(d, mine[0], mine[1] != 0);
      for (const guest& g : guests)
        if (g.device == d && g.says) all.add(d, (*g.says)[0], (*g.says)[1] != 0);
    }
    for (guest& g : guests)
      if (g.says) g.link.post(agreed, body_of(all));
    return all;
  }

  static std::string body_of(const parting& all) {
    std::vector<std::int64_t> numbers = {all.in_place, all.all_have_all ? 1 : 0};
    numbers.insert(numbers.end(), all.survivors.begin(), all.survivors.end());
    return {reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(std::int64_t)};
  }
  static std::optional<parting> of_body(const std::string& body) {
    std::vector<std::int64_t> numbers(body.size() / sizeof(std::int64_t));
    if (numbers.size() < 2) return std::nullopt;
    std::memcpy(numbers.data(), body.data(), numbers.size() * sizeof(std::int64_t));
    return parting{numbers[0], numbers[1] != 0, {numbers.begin() + 2, numbers.end()}};
  }

  rank_t device_;
  const std::vector<std::string>* addresses_;
  process_door* door_;
  std::uint64_t world_;
  patience wait_;
  transport_stop stop_;
};

}  // namespace reshard
