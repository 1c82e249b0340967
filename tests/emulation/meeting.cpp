// SPDX-License-Identifier: Apache-2.0
// How ranks meet: a unique id names a socket of the process that made it; whoever comes brings the file of its device's
// memory, and when all have come, each gets all of them.
#include <array>
#include <cstdio>
#include <cstring>
#include <thread>

#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "world.hpp"

namespace emulation {
namespace {

struct hello {
  std::int32_t ranks, rank, device;
  char host[64];  // of NCCL_HOSTID, or all the same
};
struct reply {
  std::int32_t result;
  char why[124];
};

socklen_t name_of(const ncclUniqueId& id, sockaddr_un& name) {
  name = {};
  name.sun_family = AF_UNIX;
  std::memcpy(name.sun_path + 1, id.internal, std::strlen(id.internal));  // no file: gone with its process
  return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + std::strlen(id.internal));
}
/// One message with files.
bool send_with(int to, const void* data, std::size_t bytes, const std::vector<int>& files) {
  iovec part{const_cast<void*>(data), bytes};
  msghdr message{};
  message.msg_iov = &part, message.msg_iovlen = 1;
  std::vector<std::byte> control(CMSG_SPACE(files.size() * sizeof(int)));
  if (!files.empty()) {
    message.msg_control = control.data(), message.msg_controllen = control.size();
    cmsghdr* head = CMSG_FIRSTHDR(&message);
    head->cmsg_level = SOL_SOCKET, head->cmsg_type = SCM_RIGHTS, head->cmsg_len = CMSG_LEN(files.size() * sizeof(int));
    std::memcpy(CMSG_DATA(head), files.data(), files.size() * sizeof(int));
  }
  return ::sendmsg(to, &message, MSG_NOSIGNAL) == static_cast<ssize_t>(bytes);
}
bool receive_with(int from, void* data, std::size_t bytes, std::vector<int>& files) {
  iovec part{data, bytes};
  msghdr message{};
  message.msg_iov = &part, message.msg_iovlen = 1;
  std::array<std::byte, CMSG_SPACE((most_ranks + 1) * sizeof(int))> control{};
  message.msg_control = control.data(), message.msg_controllen = control.size();
  if (::recvmsg(from, &message, MSG_CMSG_CLOEXEC) != static_cast<ssize_t>(bytes)) return false;
  for (cmsghdr* head = CMSG_FIRSTHDR(&message); head != nullptr; head = CMSG_NXTHDR(&message, head)) {
    files.resize((head->cmsg_len - CMSG_LEN(0)) / sizeof(int));
    std::memcpy(files.data(), CMSG_DATA(head), files.size() * sizeof(int));
  }
  return true;
}

struct guest {
  int socket;
  hello said;
  int memory;
};
/// What is wrong with those who came; empty where they make a world.
reply judged(const std::vector<guest>& guests) {
  reply answer{};
  const auto say = [&](const std::string& why) {
    answer.result = ncclInvalidUsage;
    std::snprintf(answer.why, sizeof answer.why, "%s", why.c_str());
  };
  for (std::size_t i = 0; i < guests.size(); ++i)
    for (std::size_t j = 0; j < i; ++j) {
      const hello &a = guests[i].said, &b = guests[j].said;
      if (a.rank == b.rank) say("two processes say that they are rank " + std::to_string(a.rank));
      else if (a.device == b.device && std::strcmp(a.host, b.host) == 0)
        say("Duplicate GPU detected : rank " + std::to_string(a.rank) + " and rank " + std::to_string(b.rank) +
            " both on CUDA device " + std::to_string(a.device));
    }
  return answer;
}
/// The thread of who made the id. Whoever is missing makes it wait for ever.
void serve(int listening) {
  std::vector<guest> guests;
  while (guests.empty() || guests.size() < static_cast<std::size_t>(guests.front().said.ranks)) {
    guest next{::accept4(listening, nullptr, nullptr, SOCK_CLOEXEC), {}, -1};
    std::vector<int> files;
    if (next.socket < 0 || !receive_with(next.socket, &next.said, sizeof next.said, files) || files.size() != 1) {
      if (next.socket >= 0) ::close(next.socket);
      continue;
    }
    next.memory = files[0];
    if (!guests.empty() && next.said.ranks != guests.front().said.ranks)
      stop("ncclCommInitRank: one rank says that there are " + std::to_string(next.said.ranks) + " ranks, another " +
           std::to_string(guests.front().said.ranks));
    guests.push_back(next);
  }
  ::close(listening);
  const reply answer = judged(guests);
  const std::size_t n = guests.size();
  const int segment = ::memfd_create("communicator", MFD_CLOEXEC);
  if (segment < 0 ||
      ::ftruncate(segment, static_cast<off_t>(sizeof(rank_state) * n + 64 + sizeof(pair_state) * n * n)) != 0)
    stop("no segment for a communicator");
  std::vector<int> files{segment};
  files.resize(n + 1, -1);
  for (const guest& g : guests)
    if (g.said.rank >= 0 && static_cast<std::size_t>(g.said.rank) < n)
      files[static_cast<std::size_t>(g.said.rank) + 1] = g.memory;
  for (const guest& g : guests) {
    send_with(g.socket, &answer, sizeof answer, answer.result == ncclSuccess ? files : std::vector<int>{});
    ::close(g.socket);
  }
  for (const guest& g : guests) ::close(g.memory);
  ::close(segment);
}

}  // namespace

bool begin_meeting(ncclUniqueId& id) {
  static std::atomic<int> made{0};
  id = {};
  std::snprintf(id.internal, sizeof id.internal, "reshard-emulation-%d-%d-%ld", static_cast<int>(::getpid()), made++,
                static_cast<long>(clock::now().time_since_epoch().count()));
  const int listening = ::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  sockaddr_un name;
  const socklen_t length = name_of(id, name);
  if (listening < 0 || ::bind(listening, reinterpret_cast<sockaddr*>(&name), length) != 0 ||
      ::listen(listening, most_ranks) != 0)
    return false;
  std::thread([listening] { serve(listening); }).detach();
  return true;
}

met meet(const ncclUniqueId& id, int ranks, int rank, const std::function<bool()>& given_up) {
  met mine;
  const int socket = ::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  const auto end = [&](ncclResult_t result, const std::string& why) {
    ::close(socket);
    mine.result = result, mine.why = why;
    return std::move(mine);
  };
  sockaddr_un name;
  const socklen_t length = name_of(id, name);
  if (::connect(socket, reinterpret_cast<sockaddr*>(&name), length) != 0)
    return end(ncclRemoteError,
               "nobody answers for the unique id: it was used before, or the process that made it has ended");
  hello said{ranks, rank, current_device(), {}};
  const char* host = std::getenv("NCCL_HOSTID");
  std::snprintf(said.host, sizeof said.host, "%s", host != nullptr ? host : "");
  if (!send_with(socket, &said, sizeof said, {memory_file(current_device())}))
    return end(ncclRemoteError, "the process that made the unique id has ended");
  pollfd waiting{socket, POLLIN, 0};
  while (::poll(&waiting, 1, 2) <= 0)
    if (given_up()) return end(ncclInProgress, "given up");
  reply answer{};
  std::vector<int> files;
  if (!receive_with(socket, &answer, sizeof answer, files))
    return end(ncclRemoteError, "the process that made the unique id has ended");
  if (answer.result != ncclSuccess) return end(static_cast<ncclResult_t>(answer.result), answer.why);
  mine.shared = std::make_unique<world>(ranks, files[0], std::vector<int>(files.begin() + 1, files.end()));
  return end(ncclSuccess, "");
}

}  // namespace emulation
