// SPDX-License-Identifier: Apache-2.0
// TCP between processes, as little of it as an exchange needs: a listening socket, a connection that sends and receives
// without waiting, and what the kernel says when it fails, in a sentence.
// Builds on: base/patience.hpp, base/refusal.hpp and Linux's sockets.
#pragma once

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <system_error>
#include <utility>

#include <linux/sockios.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <reshard/base/integer.hpp>
#include <reshard/base/patience.hpp>

namespace reshard {

/// A file descriptor that is closed with it.
class owned_descriptor {
 public:
  explicit owned_descriptor(int number = -1) : number_(number) {}
  owned_descriptor(owned_descriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  owned_descriptor& operator=(owned_descriptor&& other) noexcept {
    std::swap(number_, other.number_);
    return *this;
  }
  ~owned_descriptor() {
    if (number_ >= 0) ::close(number_);
  }
  int number() const { return number_; }
  bool open() const { return number_ >= 0; }
  void close() { *this = owned_descriptor(); }

 private:
  int number_;
};

namespace detail {

[[noreturn]] inline void throw_socket_error(const std::string& what) {
  const int error = errno;
  throw std::system_error(error, std::generic_category(), "reshard: " + what);
}

/// "host:port" as addresses of the kernel; freed with it.
class resolved_address {
 public:
  explicit resolved_address(const std::string& address) {
    const std::size_t colon = address.rfind(':');
    if (colon == address.npos || colon == 0 || colon + 1 == address.size())
      refuse("the address '", address, "': it is written host:port");
    addrinfo hints = {};
    hints.ai_socktype = SOCK_STREAM;
    std::string host = address.substr(0, colon);
    if (host.size() > 2 && host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
    const std::string port = address.substr(colon + 1);
    addrinfo* found = nullptr;
    if (const int error = ::getaddrinfo(host.c_str(), port.c_str(), &hints, &found); error != 0)
      refuse("the address '", address, "' is not known: ", ::gai_strerror(error));
    list_.reset(found);
  }
  const addrinfo* first() const { return list_.get(); }
  int count() const {
    int n = 0;
    for (const addrinfo* a = first(); a != nullptr; a = a->ai_next) ++n;
    return n;
  }

 private:
  struct freed {
    void operator()(addrinfo* list) const { ::freeaddrinfo(list); }
  };
  std::unique_ptr<addrinfo, freed> list_;
};

inline void set_option(int socket, int level, int name) {
  const int on = 1;
  static_cast<void>(::setsockopt(socket, level, name, &on, sizeof on));
}

}  // namespace detail

/// Where a process is called: made before the processes start, or by each of its own address.
class listening_socket {
 public:
  /// "127.0.0.1:0" takes any free port.
  explicit listening_socket(const std::string& address) {
    const detail::resolved_address at(address);
    for (const addrinfo* a = at.first(); a != nullptr && !listen_at(*a);) a = a->ai_next;
    if (!descriptor_.open()) detail::throw_socket_error("cannot listen at " + address);
  }

  int number() const { return descriptor_.number(); }
  /// The port that it has.
  int port() const {
    sockaddr_storage bound = {};
    socklen_t size = sizeof bound;
    if (::getsockname(descriptor_.number(), reinterpret_cast<sockaddr*>(&bound), &size) != 0)
      detail::throw_socket_error("a listening socket without a name");
    static_assert(offsetof(sockaddr_in, sin_port) == offsetof(sockaddr_in6, sin6_port));  // IPv6's lies there, too
    return ntohs(reinterpret_cast<const sockaddr_in&>(bound).sin_port);
  }
  /// Somebody who calls, or nothing.
  owned_descriptor accept() const {
    owned_descriptor caller(::accept4(descriptor_.number(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (caller.open()) detail::set_option(caller.number(), IPPROTO_TCP, TCP_NODELAY);
    return caller;
  }

 private:
  bool listen_at(const addrinfo& a) {
    owned_descriptor made(::socket(a.ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (!made.open()) return false;
    detail::set_option(made.number(), SOL_SOCKET, SO_REUSEADDR);
    constexpr int waiting = 4096;
    if (::bind(made.number(), a.ai_addr, a.ai_addrlen) != 0 || ::listen(made.number(), waiting) != 0) return false;
    descriptor_ = std::move(made);
    return true;
  }

  owned_descriptor descriptor_;
};

namespace detail {
/// A call to an address that is under way, to all that a host's name stands for in turn, each for its share of the
/// limit. Nothing of it waits but what asks for names, which has limits of its own.
class begun_call {
  using clock = std::chrono::steady_clock;

 public:
  begun_call() = default;  // of nobody
  begun_call(const std::string& address, patience limit)
      : names_(std::make_unique<resolved_address>(address)), next_(names_->first()), each_(limit / names_->count()) {
    dial();
  }

  /// Whether somebody may answer still.
  bool under_way() const { return made_.open(); }
  /// What polls as writable where there is an answer, and for how long to wait for it at most.
  int number() const { return made_.number(); }
  clock::duration left() const { return until_ - clock::now(); }
  /// The connection, once somebody has answered: then this is over. Nothing before, and nothing where nobody does.
  owned_descriptor answered() {
    for (; made_.open(); dial()) {
      pollfd answer{made_.number(), POLLOUT, 0};
      int error = 0;
      socklen_t size = sizeof error;
      if (::poll(&answer, 1, 0) != 1) {
        if (clock::now() < until_) return owned_descriptor();
      } else if (::getsockopt(made_.number(), SOL_SOCKET, SO_ERROR, &error, &size) == 0 && error == 0) {
        set_option(made_.number(), IPPROTO_TCP, TCP_NODELAY);
        return std::exchange(made_, owned_descriptor());
      }
    }
    return owned_descriptor();
  }

 private:
  void dial() {
    made_.close();
    for (; next_ != nullptr && !made_.open(); next_ = next_->ai_next) {
      owned_descriptor caller(::socket(next_->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
      if (!caller.open()) continue;
      if (::connect(caller.number(), next_->ai_addr, next_->ai_addrlen) != 0 && errno != EINPROGRESS) continue;
      made_ = std::move(caller), until_ = clock::now() + each_;
    }
  }

  std::unique_ptr<resolved_address> names_;
  const addrinfo* next_ = nullptr;
  clock::duration each_ = {};
  owned_descriptor made_;
  clock::time_point until_ = {};
};
}  // namespace detail

/// Calls an address, all that a host's name stands for in turn; nothing where nobody listens there (yet), or nobody
/// answers within the limit, as where a machine is off, or before `wakes` is readable. It may be called again.
inline owned_descriptor call_address(const std::string& address, patience limit, int wakes = -1) {
  for (detail::begun_call call(address, limit); call.under_way();) {
    pollfd answer[] = {{call.number(), POLLOUT, 0}, {wakes, POLLIN, 0}};
    const auto left = std::chrono::ceil<patience>(call.left()).count();
    ::poll(answer, 2, static_cast<int>(std::clamp<std::int64_t>(left, 0, 1 << 30)));
    if (answer[1].revents != 0) break;
    if (owned_descriptor made = call.answered(); made.open()) return made;
  }
  return owned_descriptor();
}

/// Whether an address answers at once, all that a host's name stands for, that nobody listens there: a process that did
/// is gone. One that lives, and one that does not answer, is no such address; one of a kind that this machine has not,
/// as of IPv6, says nothing.
inline bool is_deserted(const std::string& address) {
  const detail::resolved_address at(address);
  bool any = false;
  for (const addrinfo* a = at.first(); a != nullptr; a = a->ai_next) {
    const owned_descriptor made(::socket(a->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (!made.open() && errno == EAFNOSUPPORT) continue;
    if (!made.open()) return false;
    int error = ::connect(made.number(), a->ai_addr, a->ai_addrlen) == 0 ? 0 : errno;
    if (error == EINPROGRESS) {
      pollfd answer{made.number(), POLLOUT, 0};
      socklen_t size = sizeof error;
      if (::poll(&answer, 1, 2) != 1 || ::getsockopt(made.number(), SOL_SOCKET, SO_ERROR, &error, &size) != 0)
        return false;
    }
    if (error == EADDRNOTAVAIL) continue;
    if (error != ECONNREFUSED) return false;
    any = true;
  }
  return any;
}

/// What became of an attempt to send or receive without waiting.
struct socket_progress {
  std::size_t bytes = 0;
  bool ended = false;  // the other end is gone
};
/// Sends what the kernel takes at once.
inline socket_progress send_some(int socket, const std::byte* data, std::size_t bytes) {
  const ssize_t sent = ::send(socket, data, bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
  if (sent >= 0) return {static_cast<std::size_t>(sent), false};
  return {0, errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR};
}
/// Whether the other end's kernel has all that was sent, so that it is read there whatever becomes of this end.
inline bool all_arrived(int socket) {
  int under_way = 0;
  return ::ioctl(socket, SIOCOUTQ, &under_way) == 0 && under_way == 0;
}
/// Receives what the kernel has.
inline socket_progress receive_some(int socket, std::byte* data, std::size_t bytes) {
  const ssize_t came = ::recv(socket, data, bytes, MSG_DONTWAIT);
  if (came > 0) return {static_cast<std::size_t>(came), false};
  return {0, came == 0 || (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR)};
}

}  // namespace reshard
