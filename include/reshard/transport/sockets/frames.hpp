// SPDX-License-Identifier: Apache-2.0
// What processes say to each other over TCP beside messages: a hello that tells who calls and what for, and frames, a
// kind and some bytes, that are read whole.
// Builds on: transport/sockets/socket.hpp.
#pragma once

#include <cstdint>
#include <cstring>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <reshard/transport/sockets/socket.hpp>

namespace reshard {

/// The first bytes of a connection: who calls whom, of how many, and for what.
struct socket_hello {
  enum class purpose : std::uint32_t { meeting = 1, messages = 2, parting = 3 };
  std::uint32_t magic = 0x52534831;  // "RSH1"
  purpose what = purpose::meeting;
  std::int64_t from = 0;
  std::int64_t devices = 0;
};

/// A process's door: who has called and said who it is, and is not fetched yet.
class socket_door {
 public:
  socket_door(listening_socket listening, rank_t devices) : listening_(std::move(listening)), devices_(devices) {}

  int number() const { return listening_.number(); }
  /// Lets in who calls. Who says something else than a hello of this world is turned away.
  void poll() {
    for (owned_descriptor caller = listening_.accept(); caller.open(); caller = listening_.accept())
      calling_.push_back({std::move(caller), {}, 0});
    for (std::size_t i = 0; i < calling_.size();) {
      visitor& v = calling_[i];
      const socket_progress p =
          receive_some(v.link.number(), reinterpret_cast<std::byte*>(&v.said) + v.bytes, sizeof v.said - v.bytes);
      v.bytes += p.bytes;
      const bool whole = v.bytes == sizeof v.said;
      if (whole && v.said.magic == socket_hello{}.magic && v.said.devices == devices_ && v.said.from >= 0 &&
          v.said.from < devices_)
        known_.push_back(std::move(v));
      else if (!whole && !p.ended) {
        ++i;
        continue;
      }
      calling_.erase(calling_.begin() + static_cast<std::ptrdiff_t>(i));
    }
  }
  /// The connection of a device for a purpose, or nothing (yet).
  owned_descriptor fetch(rank_t from, socket_hello::purpose what) {
    for (auto at = known_.begin(); at != known_.end(); ++at)
      if (at->said.from == from && at->said.what == what) {
        owned_descriptor link = std::move(at->link);
        known_.erase(at);
        return link;
      }
    return owned_descriptor();
  }

 private:
  struct visitor {
    owned_descriptor link;
    socket_hello said;
    std::size_t bytes;
  };
  listening_socket listening_;
  rank_t devices_;
  std::vector<visitor> calling_, known_;
};

/// A frame as it came.
struct socket_frame {
  std::uint32_t kind = 0;
  std::string body;
};

/// A connection that frames go over, both ways, without waiting.
class framed_link {
 public:
  framed_link() = default;
  explicit framed_link(owned_descriptor link) : link_(std::move(link)) {}

  bool open() const { return link_.open() && !ended_; }
  int number() const { return link_.number(); }
  bool unsent() const { return !out_.empty(); }
  /// Bytes, of frames that have not come whole too.
  std::uint64_t received() const { return received_; }

  void post(std::uint32_t kind, std::string_view body) {
    constexpr std::uint32_t most = std::numeric_limits<std::uint32_t>::max();
    if (body.size() > most) refuse("a frame of ", body.size(), " bytes; at most ", most, " are sent in one");
    if (broken_) return;
    const header h{kind, static_cast<std::uint32_t>(body.size())};
    out_.append(reinterpret_cast<const char*>(&h), sizeof h).append(body);
    flush();
  }
  void flush() {
    while (open() && !out_.empty()) {
      const socket_progress p =
          send_some(number(), reinterpret_cast<const std::byte*>(out_.data()) + gone_, out_.size() - gone_);
      gone_ += p.bytes;
      if (p.ended) broken_ = true;  // what it said before it went is still to be read
      if (p.ended || gone_ == out_.size()) out_.clear(), gone_ = 0;
      else if (gone_ > out_.size() / 2) out_.erase(0, gone_), gone_ = 0;
      if (p.ended || p.bytes == 0) return;
    }
  }
  /// The next frame that has come whole.
  std::optional<socket_frame> next() {
    while (true) {
      header h;
      if (in_.size() >= sizeof h) {
        std::memcpy(&h, in_.data(), sizeof h);
        if (in_.size() >= sizeof h + h.bytes) {
          socket_frame frame{h.kind, in_.substr(sizeof h, h.bytes)};
          in_.erase(0, sizeof h + h.bytes);
          return frame;
        }
      }
      if (!open()) return std::nullopt;
      std::byte some[16384];
      const socket_progress p = receive_some(number(), some, sizeof some);
      in_.append(reinterpret_cast<const char*>(some), p.bytes);
      received_ += p.bytes;
      if (p.ended) ended_ = true;
      if (p.bytes == 0) return std::nullopt;
    }
  }
  bool broken() const { return broken_ && !open(); }
  /// No more is said; what the other says is still read.
  void finish() { ::shutdown(number(), SHUT_WR); }

 private:
  struct header {
    std::uint32_t kind;
    std::uint32_t bytes;
  };
  owned_descriptor link_;
  std::string in_, out_;
  std::size_t gone_ = 0;  // of out_, sent already
  std::uint64_t received_ = 0;
  bool ended_ = false, broken_ = false;
};

}  // namespace reshard
