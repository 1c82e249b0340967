// SPDX-License-Identifier: Apache-2.0
// What processes say to each other over TCP beside messages: frames, a kind and some bytes, that are read whole.
// Builds on: transport/socket.hpp.
#pragma once

#include <cstdint>
#include <cstring>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <reshard/transport/socket.hpp>

namespace reshard {

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
  /// Whether all that was posted is with the other's kernel.
  bool all_arrived() const { return out_.empty() && reshard::all_arrived(number()); }

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
